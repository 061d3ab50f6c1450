// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/step_memory/step.h"

#include <algorithm>

#include "kerf/simulate/step_memory/backward_rules.h"

namespace kerf {
namespace {

// What cuBLAS and cuBLASLt take at their first product, for good: PyTorch 2.11 on compute
// capability 9.0. Taken before all else, as in a process that has run a product before; else the
// first step may cut them out of blocks that the cache has free.
constexpr std::int64_t kMatrixLibrary[] = {32 << 20, 32 << 20, 1 << 20};

bool is_tensor(const Graph& graph, ValueId id) { return id.valid() && !graph.value(id).scalar; }

}  // namespace

Step::Step(const Graph& graph, const StepRequest& request)
    : graph_(graph), request_(request), ledger_(request.accelerator) {
  const std::size_t storages = graph.storages().size();
  storage_tensors_.resize(storages);
  stays_.resize(storages);
  is_result_.resize(storages);
  kinds_.assign(storages, MemoryKind::temporaries);
  kept_.resize(graph.num_nodes());
  gradients_.resize(graph.num_values());
  if (training()) {
    const std::vector<RegionNumber> none(graph.num_nodes(), kNoRegion);
    sets_ = find_saved(graph, request.batch, request.accelerator, request.regions);
    inside_ = find_saved(graph, request.batch, request.accelerator, none);
    for (const SavedTensor& tensor : sets_.tensors) {
      if (!tensor.value.valid()) continue;
      kinds_[storage_of(tensor.value).index()] = MemoryKind::saved;
    }
  }
  for (const GraphOutput& output : graph.outputs()) {
    for_each_value(output.leaf, [&](ValueId id) {
      if (is_tensor(graph, id)) is_result_[storage_of(id).index()] = true;
    });
  }
  const RegionNumber last = request.regions.empty()
                                ? kNoRegion
                                : *std::max_element(request.regions.begin(), request.regions.end());
  region_nodes_.resize(static_cast<std::size_t>(last + 1));
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    if (is_region_node(n)) {
      region_nodes_[static_cast<std::size_t>(request.regions[n])].push_back(n);
    }
  }
  count_uses();
}

Bytes Step::storage_bytes(StorageId id) const {
  return Bytes{graph_.storage(id).bytes.eval(request_.batch)};
}

void Step::note(std::string_view phase, std::size_t node) {
  if (!ledger_.found_new_peak()) return;
  found_.phase = phase;
  found_.node = node < graph_.num_nodes() ? graph_.nodes()[node].name : std::string();
}

void Step::count_uses() {
  uses_.assign(graph_.storages().size(), 0);
  for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
    for (const ValueId id : graph_.inputs_of(NodeId{n})) {
      if (is_tensor(graph_, id)) ++uses_[storage_of(id).index()];
    }
  }
}

void Step::ready_matrix_library() {
  bool is_used = false;
  for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
    is_used = is_used || uses_matrix_library(graph_, NodeId{n});
  }
  if (!is_used) return;
  for (const std::int64_t bytes : kMatrixLibrary) {
    ledger_.make(MemoryKind::workspace, Bytes{bytes});
  }
}

void Step::set_up() {
  const auto put = [&](ValueId id, MemoryKind kind) {
    const StorageId storage = storage_of(id);
    if (!storage.valid() || stays_[storage.index()]) return;
    stays_[storage.index()] = true;
    storage_tensors_[storage.index()] = ledger_.make(kind, storage_bytes(storage));
  };
  if (request_.accelerator) ready_matrix_library();
  for (const Weight& weight : graph_.weights()) put(weight.value, MemoryKind::weights);
  for (const GraphInput& input : graph_.inputs()) {
    if (is_tensor(graph_, input.value)) put(input.value, MemoryKind::inputs);
  }
}

// A storage is allocated where its first value is made.
void Step::make_outputs(std::size_t n, bool again) {
  for (const ValueId id : graph_.nodes()[n].outputs) {
    if (!is_tensor(graph_, id)) continue;
    const StorageId storage = storage_of(id);
    if (storage_tensors_[storage.index()].valid()) continue;
    const bool is_result = is_result_[storage.index()] && !again;
    const MemoryKind kind = is_result ? MemoryKind::results : kinds_[storage.index()];
    storage_tensors_[storage.index()] = ledger_.make(kind, storage_bytes(storage));
  }
}

void Step::keep(std::size_t n, const SavedSets& sets) {
  for (const SavedTensor& tensor : sets.of(NodeId{n})) {
    if (!tensor.value.valid()) {
      kept_[n].push_back(ledger_.make(MemoryKind::saved, tensor.bytes));
      continue;
    }
    const TensorId id = storage_tensors_[storage_of(tensor.value).index()];
    if (!id.valid()) continue;  // made and given up: an operator that keeps what nobody made here
    ledger_.share(id);
    kept_[n].push_back(id);
  }
}

void Step::give_up_storage(StorageId storage) {
  TensorId& id = storage_tensors_[storage.index()];
  if (!id.valid() || stays_[storage.index()]) return;
  ledger_.release(id);
  id = TensorId{};
}

void Step::use_workspaces(const std::vector<Bytes>& workspaces) {
  std::vector<TensorId> made;
  for (const Bytes bytes : workspaces) made.push_back(ledger_.make(MemoryKind::workspace, bytes));
  for (const TensorId id : made) ledger_.release(id);
}

void Step::done_reading(std::size_t n) {
  const auto check = [&](ValueId id) {
    if (!is_tensor(graph_, id)) return;
    const StorageId storage = storage_of(id);
    if (uses_left_[storage.index()] == 0 && !is_result_[storage.index()]) give_up_storage(storage);
  };
  for (const ValueId id : graph_.inputs_of(NodeId{n})) {
    if (is_tensor(graph_, id)) --uses_left_[storage_of(id).index()];
  }
  for (const ValueId id : graph_.inputs_of(NodeId{n})) check(id);
  for (const ValueId id : graph_.nodes()[n].outputs) check(id);
}

void Step::run_node(std::size_t n, const SavedSets& sets, bool again) {
  const NodeId id{n};
  ledger_.set_node(id);
  make_outputs(n, again);
  if (request_.profile != nullptr) {
    use_workspaces({request_.profile->node(id).workspace()});
  } else if (request_.accelerator) {
    use_workspaces({forward_workspace(graph_, id, request_.batch)});
  }
  if (training()) keep(n, sets);
  note(again ? "backward" : "forward", n);
  done_reading(n);
}

void Step::forward() {
  uses_left_ = uses_;
  const Bytes before = ledger_.in_use();
  for (std::size_t n = 0; n < graph_.num_nodes(); ++n) run_node(n, sets_, false);
  found_.saved = ledger_.of(MemoryKind::saved);
  found_.added_by_forward = ledger_.in_use() - before;
}

// The loss gives a gradient for each result, and nobody needs the results themselves any more.
void Step::end_forward() {
  ledger_.set_node({});
  std::vector<ValueId> seeds;
  for (const GraphOutput& output : graph_.outputs()) {
    for_each_value(output.leaf, [&](ValueId id) {
      if (!is_tensor(graph_, id)) return;
      const bool is_new = std::find(seeds.begin(), seeds.end(), id) == seeds.end();
      if (training() && graph_.value(id).requires_grad && is_new) seeds.push_back(id);
    });
  }
  for (std::size_t s = 0; s < is_result_.size(); ++s) {
    if (is_result_[s]) give_up_storage(StorageId{s});
  }
  for (const ValueId id : seeds) {
    const Bytes bytes = graph_.value(id).bytes(request_.batch);
    gradients_[id.index()] = ledger_.make(MemoryKind::temporaries, bytes);
    note("backward", graph_.num_nodes());
  }
}

void Step::recompute(RegionNumber region) {
  const std::vector<std::size_t>& nodes = region_nodes_[static_cast<std::size_t>(region)];
  // As PyTorch does, no further than to the last operator that keeps something.
  std::size_t end = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!inside_.of(NodeId{nodes[i]}).empty()) end = i + 1;
  }
  for (const std::size_t n : nodes) {
    for (const ValueId id : graph_.inputs_of(NodeId{n})) {
      if (is_tensor(graph_, id)) uses_left_[storage_of(id).index()] = 0;
    }
  }
  for (std::size_t i = 0; i < end; ++i) {
    for (const ValueId id : graph_.inputs_of(NodeId{nodes[i]})) {
      if (is_tensor(graph_, id)) ++uses_left_[storage_of(id).index()];
    }
  }
  for (std::size_t i = 0; i < end; ++i) run_node(nodes[i], inside_, true);
}

TensorId Step::gradient_for(std::size_t n, ValueId argument, TensorId incoming) {
  if (incoming.valid() && passes_gradient(graph_, NodeId{n}, argument, request_.batch)) {
    ledger_.share(incoming);
    return incoming;
  }
  const bool is_weight = graph_.value(argument).origin == Origin::weight;
  const MemoryKind kind = is_weight ? MemoryKind::gradients : MemoryKind::temporaries;
  return ledger_.make(kind, graph_.value(argument).bytes(request_.batch));
}

// Of two gradients for one value, one takes the sum if nobody else has it.
void Step::give_gradient(ValueId to, TensorId gradient) {
  TensorId& there = gradients_[to.index()];
  const bool is_weight = graph_.value(to).origin == Origin::weight;
  if (!there.valid()) {
    there = gradient;
    if (!is_weight) return;
    if (ledger_.owners(gradient) == 1) return ledger_.recount(gradient, MemoryKind::gradients);
    // What others read too is copied before it becomes a parameter's gradient.
    there = ledger_.make(MemoryKind::gradients, graph_.value(to).bytes(request_.batch));
    return ledger_.release(gradient);
  }
  if (ledger_.owners(there) == 1) {
    ledger_.release(gradient);
  } else if (ledger_.owners(gradient) == 1) {
    ledger_.release(there);
    there = gradient;
  } else {
    const Bytes bytes = graph_.value(to).bytes(request_.batch);
    const TensorId sum = ledger_.make(MemoryKind::temporaries, bytes);
    ledger_.release(there);
    ledger_.release(gradient);
    there = sum;
  }
}

void Step::give_up_saved(std::size_t n) {
  for (const TensorId id : kept_[n]) ledger_.release(id);
  kept_[n].clear();
}

void Step::backward_node(std::size_t n) {
  const Node& node = graph_.nodes()[n];
  TensorId incoming;
  for (const ValueId id : node.outputs) {
    if (id.valid() && gradients_[id.index()].valid()) incoming = gradients_[id.index()];
  }
  const bool has_rules = request_.accelerator && request_.profile == nullptr;
  if (incoming.valid() && node.grad_enabled) {
    std::vector<std::pair<ValueId, TensorId>> made;
    for (const ValueId id : graph_.inputs_of(NodeId{n})) {
      const bool is_wanted = is_tensor(graph_, id) && graph_.value(id).requires_grad;
      if (!is_wanted) continue;
      made.emplace_back(id, gradient_for(n, id, incoming));
      if (has_rules) use_workspaces(gradient_workspaces(graph_, NodeId{n}, id, request_.batch));
    }
    if (request_.profile != nullptr) {
      use_workspaces({request_.profile->node(NodeId{n}).backward_workspace});
    }
    for (const auto& [id, gradient] : made) {
      if (has_rules) use_workspaces(sum_workspaces(graph_, NodeId{n}, id, request_.batch));
    }
    for (const auto& [id, gradient] : made) give_gradient(id, gradient);
    note("backward", n);
  }
  for (const ValueId id : node.outputs) {
    if (!id.valid() || !gradients_[id.index()].valid()) continue;
    ledger_.release(gradients_[id.index()]);
    gradients_[id.index()] = TensorId{};
  }
}

void Step::backward() {
  ran_again_.assign(region_nodes_.size(), false);
  // What a region keeps of its surroundings stays until its first node's backward.
  std::vector<std::vector<TensorId>> held(region_nodes_.size());
  for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
    if (!is_region_node(n)) continue;
    auto& all = held[static_cast<std::size_t>(request_.regions[n])];
    all.insert(all.end(), kept_[n].begin(), kept_[n].end());
    kept_[n].clear();
  }
  for (std::size_t n = graph_.num_nodes(); n-- > 0;) {
    const RegionNumber region = request_.regions[n];
    const auto number = static_cast<std::size_t>(region);
    if (region != kNoRegion && !ran_again_[number]) {
      ran_again_[number] = true;
      if (!held[number].empty()) recompute(region);
    }
    ledger_.set_node(NodeId{n});
    backward_node(n);
    give_up_saved(n);
    if (region == kNoRegion || region_nodes_[number].front() != n) continue;
    for (const TensorId id : held[number]) ledger_.release(id);
  }
}

void Step::optimizer_step() {
  ledger_.set_node({});
  const Optimizer& optimizer = *request_.optimizer;
  const auto for_each_trained = [&](auto&& visit) {
    for (const Weight& weight : graph_.weights()) {
      if (gradients_[weight.value.index()].valid()) {
        visit(graph_.value(weight.value).bytes(request_.batch));
      }
    }
  };
  if (!has_state_) {
    for_each_trained([&](Bytes bytes) {
      for (int i = 0; i < optimizer.state; ++i) ledger_.make(MemoryKind::optimizer, bytes);
    });
    has_state_ = true;
  }
  std::vector<TensorId> temporaries;
  for (int i = 0; i < optimizer.temporaries; ++i) {
    for_each_trained(
        [&](Bytes bytes) { temporaries.push_back(ledger_.make(MemoryKind::temporaries, bytes)); });
  }
  note("optimizer", graph_.num_nodes());
  // A Python list gives up its items from the last to the first.
  std::reverse(temporaries.begin(), temporaries.end());
  for (const TensorId id : temporaries) ledger_.release(id);
  for (TensorId& id : gradients_) {
    if (id.valid()) ledger_.release(id);
    id = TensorId{};
  }
}

StepMemory Step::run() {
  set_up();
  for (const bool is_judged : {false, true}) {
    if (is_judged) ledger_.start_judging();
    if (is_judged && request_.list_blocks) ledger_.start_listing();
    forward();
    end_forward();
    if (!training()) continue;
    backward();
    optimizer_step();
  }
  found_.peak = ledger_.peak();
  found_.at_peak = ledger_.at_peak();
  found_.reserved = request_.accelerator ? ledger_.peak_reserved() : Bytes{};
  found_.ops_without_rule = sets_.ops_without_rule;
  found_.blocks = ledger_.take_blocks();
  return found_;
}

}  // namespace kerf
