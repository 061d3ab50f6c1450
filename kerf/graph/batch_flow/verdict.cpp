// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "kerf/graph/batch_flow/batch_flow.h"
#include "kerf/graph/batch_flow/loss.h"
#include "kerf/graph/batch_flow/state_writes.h"

namespace kerf {
namespace {

// Collects what was found; the worst counts, and of several the first operator.
class Judgement {
 public:
  Judgement(const Graph& graph, const BatchFlow& flow) : graph_(graph), flow_(flow) {}

  void add(const BatchState& state, const std::string& where, bool of_state = false) {
    if (state.is_lost()) add(kind_of(state), state.by, state.why, where, of_state);
  }

  void add(Independence kind, NodeId by, std::string_view why, const std::string& where,
           bool of_state = false) {
    const bool worse = kind > verdict_.kind;
    const bool earlier = kind == verdict_.kind && kind != Independence::proved && by.valid() &&
                         (!verdict_.by.valid() || by < verdict_.by);
    if (!worse && !earlier) return;
    verdict_.kind = kind;
    verdict_.by = by;
    verdict_.where = where;
    verdict_.of_state = of_state;
    verdict_.reason =
        by.valid() ? fmt::format("{} {}", graph_.describe(by), why) : std::string(why);
  }

  BatchVerdict finish() {
    for (const NodeId id : flow_.not_followed) {
      if (verdict_.kind != Independence::proved && id != verdict_.by) ++verdict_.others;
    }
    for (const NodeId id : flow_.batch_norms) {
      verdict_.batch_norms.push_back(graph_.scope(graph_.node(id).scope).path);
    }
    return verdict_;
  }

 private:
  Independence kind_of(const BatchState& state) const {
    if (state.kind == BatchState::Kind::mixed) return Independence::mixes;
    const bool block = state.by.valid() && graph_.node(state.by).op == "opaque";
    return block ? Independence::opaque : Independence::unknown;
  }

  const Graph& graph_;
  const BatchFlow& flow_;
  BatchVerdict verdict_;
};

void judge_outputs(const Graph& graph, const BatchFlow& flow, const JudgedOutputs& which,
                   Judgement& judgement) {
  for (const GraphOutput& output : graph.outputs()) {
    const auto* id = output.leaf.find<ValueId>();
    if (id == nullptr || which.left_out.contains(output.path)) continue;
    const Value& value = graph.value(*id);
    const BatchState& state = flow.states[id->index()];
    const std::string where = fmt::format("output '{}'", output.path);
    if (state.is_batched() && state.rows == BatchRows::numbers) {
      judgement.add(Independence::mixes, value.producer, "numbers the samples of the batch", where);
    }
    const auto sources = which.weighed.contains(output.path) ? Sources::direct : Sources::all;
    judgement.add(value.depends_on_batch() ? state : lost_source(graph, flow, *id, sources), where);
  }
}

NodeId writer_of(const Graph& graph, StorageId storage) {
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    for (const StorageId written : graph.writes(NodeId(n))) {
      if (written == storage) return NodeId(n);
    }
  }
  return {};
}

// Tensors that the model keeps, and inputs that it writes.
void judge_memory(const Graph& graph, const BatchFlow& flow, Judgement& judgement) {
  for (const StateWrite& write : unrepeatable_writes(graph, flow)) {
    const Weight& weight = graph.weights()[write.weight];
    const std::string where = describe(weight);
    judgement.add(flow.states[weight.value.index()], where, true);
    judgement.add(Independence::mixes, write.by, write.why, where, true);
  }
  for (const GraphInput& input : graph.inputs()) {
    const StorageId storage = graph.value(input.value).storage;
    if (!storage.valid() || !graph.is_written(storage)) continue;
    const BatchState& state = flow.states[input.value.index()];
    const std::string where = fmt::format("input '{}'", input.path);
    judgement.add(state, where, true);
    if (state.is_fixed()) {
      judgement.add(Independence::mixes, writer_of(graph, storage),
                    "writes into it, and all micro-batches share it", where, true);
    }
  }
}

}  // namespace

std::string_view to_string(Independence kind) {
  switch (kind) {
    case Independence::proved: return "proved";
    case Independence::unknown: return "unknown";
    case Independence::opaque: return "opaque";
    case Independence::mixes: return "mixes";
  }
  return "unknown";
}

BatchVerdict judge_batch(const Graph& graph, const BatchFlow& flow, const JudgedOutputs& which) {
  if (graph.is_static()) return {};  // nothing is cut
  Judgement judgement(graph, flow);
  judge_outputs(graph, flow, which, judgement);
  judge_memory(graph, flow, judgement);
  return judgement.finish();
}

}  // namespace kerf
