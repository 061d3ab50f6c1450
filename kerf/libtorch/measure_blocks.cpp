// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/measure_blocks.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "kerf/device/local_machine.h"
#include "kerf/graph/condition.h"
#include "kerf/graph/passes/subgraph.h"
#include "kerf/graph/train_mode.h"
#include "kerf/libtorch/block_gradients.h"
#include "kerf/libtorch/block_walk.h"
#include "kerf/libtorch/cold_caches.h"
#include "kerf/libtorch/kept_memory.h"
#include "kerf/libtorch/measure_one_block.h"
#include "kerf/libtorch/memory_listener.h"
#include "kerf/libtorch/own_thread.h"
#include "kerf/libtorch/torch_backend.h"
#include "kerf/profile/block_levels.h"
#include "kerf/profile/measured_sizes.h"

namespace kerf {
namespace {

// Blocks that do the same work, in the order of their first ones.
struct Kinds {
  std::vector<std::string> signatures;  // by kind
  std::vector<std::size_t> first;       // by kind: a block
  std::vector<std::size_t> of_block;
};

Kinds find_kinds(const Graph& graph, const std::vector<Block>& blocks, std::int64_t batch,
                 bool every_block) {
  Kinds out;
  std::map<std::string, std::size_t> known;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const std::string signature = kerf::signature(graph, blocks[b].nodes, batch);
    const std::string key = every_block ? fmt::format("{} {}", signature, b) : signature;
    const auto [kind, is_new] = known.try_emplace(key, out.first.size());
    if (is_new) {
      out.signatures.push_back(signature);
      out.first.push_back(b);
    }
    out.of_block.push_back(kind->second);
  }
  return out;
}

// Is it laid out as in the trace? A dimension of one row has any stride.
bool is_laid_out(const at::Tensor& tensor, const Value& traced, std::int64_t batch) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.numel() == 0) return true;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    const Expr& stride = traced.strides[static_cast<std::size_t>(d)];
    if (tensor.size(d) > 1 && tensor.stride(d) != stride.eval(batch)) return false;
  }
  return true;
}

// The first input or weight that is not as it was traced, and how; "" where all are. Strides inside
// the model and what needs gradients, and so the times of blocks, follow in ways that no graph
// tells.
std::string other_than_traced(const BlockSetting& setting) {
  const Graph& graph = setting.graph;
  for (std::size_t i = 0; i < setting.inputs.size(); ++i) {
    const GraphInput& input = graph.inputs()[i];
    if (is_laid_out(setting.inputs[i], graph.value(input.value), setting.batch)) continue;
    return fmt::format("input '{}' has other strides", input.path);
  }
  for (std::size_t i = 0; i < setting.weights.size(); ++i) {
    const Weight& weight = graph.weights()[i];
    const Value& value = graph.value(weight.value);
    const at::Tensor& tensor = setting.weights[i];
    if (!is_laid_out(tensor, value, setting.batch)) {
      return fmt::format("weight '{}' has other strides", weight.names.front());
    }
    if (setting.training && tensor.requires_grad() != value.requires_grad) {
      return fmt::format("weight '{}' {}", weight.names.front(),
                         value.requires_grad ? "is frozen" : "is trained");
    }
  }
  return "";
}

bool runs_python(const Graph& graph, const Block& block) {
  return std::any_of(block.nodes.begin(), block.nodes.end(),
                     [&](NodeId node) { return graph.node(node).op == "opaque"; });
}

std::string name_of(const Graph& graph, const Block& block) {
  if (block.is_operator) return graph.node(block.nodes.front()).op;
  for (const Scope& scope : graph.scopes()) {
    if (scope.path == block.path) return scope.class_name;
  }
  return "";
}

void note_once(Profile& profile) {
  std::vector<std::string> kept;
  for (std::string& note : profile.notes) {
    if (std::find(kept.begin(), kept.end(), note) == kept.end()) kept.push_back(std::move(note));
  }
  profile.notes = std::move(kept);
}

// What caches are emptied of before each pass: all that they hold, where a step of the model comes
// by more than that before it uses anything again. Not on accelerators, where no step was compared.
Bytes bytes_to_empty(const BlockSetting& setting) {
  if (!setting.device.host) return {};
  const Bytes caches = cache_bytes(setting.device.cores);
  Bytes step;
  for (const Storage& storage : setting.graph.storages()) {
    step += Bytes{storage.bytes.eval(setting.batch)};
  }
  if (setting.training) step += step;  // gradients
  return step > caches ? caches : Bytes{};
}

MeasuringConditions all_conditions(const Device& device, const BlockOptions& options,
                                   Bytes emptied) {
  MeasuringConditions out = options.conditions;
  if (device.host) {
    out.emplace_back("caches", emptied > Bytes{} ? fmt::format("emptied of {}", to_string(emptied))
                                                 : "as passes leave them");
  }
  out.emplace_back("device kind", device.kind);
  out.emplace_back("cores", std::to_string(device.cores.size()));
  out.emplace_back("options", !options.training   ? "inference"
                              : options.recompute ? "training, recompute"
                                                  : "training");
  return out;
}

class BlockMeasuring {
 public:
  BlockMeasuring(const BlockSetting& setting, const Cluster& cluster, const BlockOptions& options)
      : setting_(setting),
        cluster_(cluster),
        options_(options),
        difference_(other_than_traced(setting)),
        blocks_(blocks_to_measure(setting.graph)),
        kinds_(find_kinds(setting.graph, blocks_, setting.batch,
                          options.every_block || !difference_.empty())),
        known_(kinds_.first.size()),
        emptied_(bytes_to_empty(setting)),
        cache_(options.cache_folder, all_conditions(setting.device, options, emptied_)),
        profile_(measured_sizes(setting.graph, setting.device.kind, setting.device.host,
                                setting.batch, setting.training)) {
    look_up();
  }

  bool has_work() const {
    return std::any_of(wanted_.begin(), wanted_.end(), [](bool w) { return w; });
  }

  void work(TorchRun& run) {
    BlockWalk walk(setting_, cluster_, blocks_, wanted_, setting_.torch_device.is_cpu());
    const ColdCaches caches(emptied_);
    SampleLimits limits = options_;
    const auto count = std::count(wanted_.begin(), wanted_.end(), true);
    limits.budget_seconds /= static_cast<double>(std::max<std::ptrdiff_t>(count, 1));
    const auto tell = [&](std::size_t done) {
      if (options_.progress) options_.progress(done, walk.num_steps());
    };
    tell(0);
    walk.run(
        run,
        [&](std::size_t block, BlockRun& seat) {
          const std::size_t kind = kinds_.of_block[block];
          known_[kind] = measure_one_block(seat, setting_, options_, limits, caches, profile_);
          if (why_not_kept(blocks_[block]).empty() && MemoryListener::has_room()) {
            cache_.store(kinds_.signatures[kind], *known_[kind]);
          }
        },
        tell);
  }

  Profile finish() {
    for (std::size_t b = 0; b < blocks_.size(); ++b) add_block(b);
    profile_.recompute = options_.recompute;
    profile_.cache = cache_.use();
    profile_.notes.insert(profile_.notes.end(), cache_.notes().begin(), cache_.notes().end());
    note_idle_neighbours();
    note_difference();
    note_once(profile_);
    fill_levels(setting_.graph, profile_);
    return std::move(profile_);
  }

 private:
  void look_up() {
    wanted_.assign(blocks_.size(), false);
    for (std::size_t kind = 0; kind < kinds_.first.size(); ++kind) {
      const Block& block = blocks_[kinds_.first[kind]];
      if (const std::string why = why_not_kept(block); !why.empty()) {
        cache_.skip(why);
      } else {
        known_[kind] = cache_.find(kinds_.signatures[kind], block.nodes.size());
      }
      if (!known_[kind]) wanted_[kinds_.first[kind]] = true;
    }
  }

  // Where the signature does not say all that a block's figures depend on.
  std::string why_not_kept(const Block& block) const {
    if (runs_python(setting_.graph, block)) return "what runs as Python is measured each time";
    if (!difference_.empty()) return "inputs or weights are not as traced";
    return "";
  }

  void add_block(std::size_t number) {
    const Block& block = blocks_[number];
    const std::size_t kind = kinds_.of_block[number];
    const KnownBlock& known = *known_[kind];
    MeasuredBlock& out = profile_.blocks.emplace_back();
    out.path = block.path;
    out.name = name_of(setting_.graph, block);
    out.nodes = block.nodes;
    out.kind = static_cast<std::int64_t>(kind);
    const BlockCost sizes = block_sizes(setting_.graph, block.nodes, setting_.batch);
    out.cost = known.cost;
    out.cost.weights = sizes.weights;
    out.cost.inputs = sizes.inputs;
    out.cost.outputs = sizes.outputs;
    for (std::size_t n = 0; n < block.nodes.size(); ++n) {
      set_measured(known.nodes[n], profile_.nodes[block.nodes[n].index()]);
    }
  }

  static void set_measured(const NodeCost& known, NodeCost& cost) {
    cost.forward = known.forward;
    cost.forward_spread = known.forward_spread;
    cost.forward_apart = known.forward_apart;
    cost.backward = known.backward;
    cost.backward_spread = known.backward_spread;
    cost.backward_weights = known.backward_weights;
    cost.backward_apart = known.backward_apart;
    cost.backward_workspace = known.backward_workspace;
    cost.samples = known.samples;
    cost.peak = cost.inputs + cost.weights + cost.outputs + known.workspace();
  }

  void note_idle_neighbours() {
    const auto others = std::count_if(cluster_.devices.begin(), cluster_.devices.end(),
                                      [](const Device& device) { return device.host; });
    if (!setting_.device.host || others < 2) return;
    profile_.notes.emplace_back(
        "blocks were measured while the other CPU devices were idle: together they may be slower");
  }

  void note_difference() {
    if (difference_.empty()) return;
    profile_.notes.push_back(fmt::format(
        "each block was measured by itself, and none is kept: {}, unlike when the model "
        "was traced; trace it as it is now",
        difference_));
  }

  const BlockSetting& setting_;
  const Cluster& cluster_;
  const BlockOptions& options_;
  const std::string difference_;  // of the inputs and weights from the traced ones
  std::vector<Block> blocks_;
  Kinds kinds_;
  std::vector<bool> wanted_;                      // by block: to be measured now
  std::vector<std::optional<KnownBlock>> known_;  // by kind
  Bytes emptied_;                                 // caches, before each pass
  BlockCache cache_;
  Profile profile_;
};

// Calls `work` where and as a stage on the device would run, with a run of the batch.
void at_seat(const BlockSetting& setting, TorchBackend& backend, const Cluster& cluster,
             const std::function<void(TorchRun&)>& work) {
  const bool on_caller = backend.runs_on_caller(setting.device_id);
  TorchRun run(cluster.num_devices(), on_caller);
  run.batches = {setting.batch};
  run.inputs = {setting.inputs};
  if (!on_caller) backend.mark_inputs(run);
  const auto seated = [&] {
    if (!on_caller) backend.start_worker(setting.device_id);
    backend.enter(run, setting.device_id);
    try {
      work(run);
    } catch (...) {
      backend.leave(run, setting.device_id);
      throw;
    }
    backend.leave(run, setting.device_id);
  };
  if (!on_caller) return run_on_own_thread(seated);
  const c10::InferenceMode no_inference_mode(false);
  const c10::AutoGradMode no_grad(false);
  seated();
}

}  // namespace

Profile measure_blocks(const Graph& graph, const Cluster& cluster, DeviceId device,
                       std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                       std::int64_t batch, const OpaqueCalls& opaque, const BlockOptions& options) {
  if (options.training) check_train_mode(graph, "libtorch.measure");
  check_conditions(graph.conditions(), batch, 1, "[libtorch.measure]");
  const c10::InferenceMode no_inference_mode(false);  // what is copied here is written later
  const KeptMemory kept_memory;                       // as in a pipeline that runs
  TorchBackend backend(graph, cluster, weights, opaque);
  const std::vector<at::Tensor> own_weights = own_written_weights(graph, std::move(weights));
  const std::vector<at::Tensor> own_inputs = own_written_inputs(graph, inputs);
  const BlockSetting setting{graph,           cluster.device(device),
                             device,          backend.torch_device(device),
                             opaque,          own_weights,
                             own_inputs,      batch,
                             options.training};
  std::optional<BlockGradients> kept_gradients;
  if (options.training) kept_gradients.emplace(graph, backend.weights());
  BlockMeasuring measuring(setting, cluster, options);
  if (measuring.has_work()) {
    at_seat(setting, backend, cluster, [&](TorchRun& run) { measuring.work(run); });
  }
  return measuring.finish();
}

}  // namespace kerf
