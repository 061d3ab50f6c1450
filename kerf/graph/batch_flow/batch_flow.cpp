// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/batch_flow.h"

#include <algorithm>
#include <unordered_map>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

constexpr std::string_view kOpaque = "opaque";

class Analysis {
 public:
  Analysis(const Graph& graph, OpaqueBlocks opaque) : graph_(graph), opaque_(opaque) {
    flow_.states.resize(graph.num_values());
    for (std::size_t v = 0; v < graph.num_values(); ++v) {
      const StorageId storage = graph.value(ValueId(v)).storage;
      if (storage.valid() && graph.is_written(storage)) {
        names_[storage.index()].push_back(ValueId(v));
      }
    }
  }

  BatchFlow run() {
    for (const GraphInput& input : graph_.inputs()) {
      const auto state = state_by_shape(graph_.value(input.value), BatchRows::own);
      state_of(input.value) =
          state ? *state
                : BatchState::unknown({}, "an input holds the batch in more than one dimension");
    }
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) follow(NodeId(n));
    return std::move(flow_);
  }

 private:
  BatchState& state_of(ValueId id) { return flow_.states[id.index()]; }

  void follow(NodeId id) {
    const Node& node = graph_.node(id);
    const Call call(graph_, id, flow_.states);
    std::vector<BatchState> results;
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      results.push_back(node.outputs[k].valid() ? result(call, k) : BatchState());
      settle_layout(node.outputs[k], results.back());
    }
    const std::vector<BatchState> before = written_states(node);
    const BatchState side_effect = effect_of(call);
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (node.outputs[k].valid()) state_of(node.outputs[k]) = results[k];
    }
    for (std::size_t w = 0; w < node.written.size(); ++w) {
      const ValueId target = node.written[w];
      const auto same = std::find_if(node.outputs.begin(), node.outputs.end(), [&](ValueId out) {
        return out.valid() && graph_.value(out).storage == graph_.value(target).storage;
      });
      const BatchState after = same == node.outputs.end()
                                   ? side_effect
                                   : results[static_cast<std::size_t>(same - node.outputs.begin())];
      write(id, target, before[w], after);
    }
    note(call, results);
  }

  // Memory that is written later must have one layout, under all its names.
  void settle_layout(ValueId id, BatchState& state) const {
    if (!id.valid() || !state.is_batched() || !state.any_layout()) return;
    const StorageId storage = graph_.value(id).storage;
    if (state.outer * state.inner > 1 && storage.valid() && graph_.is_written(storage)) {
      state.rows = BatchRows::own;
    }
  }

  BatchState result(const Call& call, std::size_t position) const {
    const ValueId id = call.node().outputs[position];
    if (call.node().op == kOpaque) return opaque_result(call, id);
    const BatchRuleEntry* rule = BatchRules::all().find(call.node().op);
    if (rule == nullptr) return without_rule(call, id);
    if (rule->numbers == BatchNumbers::mix && call.has_batch_number()) {
      return call.mixed("computes with the number of samples");
    }
    return rule->apply(call, id, position);
  }

  // Whatever an operator does: of what is the same for all samples it makes the same.
  BatchState without_rule(const Call& call, ValueId id) const {
    const auto inputs = graph_.inputs_of(call.id());
    if (const BatchState* lost = first_lost(call, {inputs.begin(), inputs.end()})) return *lost;
    const bool fixed = std::all_of(inputs.begin(), inputs.end(),
                                   [&](ValueId input) { return call.state(input).is_fixed(); });
    if (!fixed || call.has_batch_number()) return call.unknown("has no rule");
    return held_to_shape(call, id, {});
  }

  // A block may hold the batch in its results as it likes; when the user vouches for it, the shape
  // says how.
  BatchState opaque_result(const Call& call, ValueId id) const {
    const auto inputs = graph_.inputs_of(call.id());
    const BatchState* lost = first_lost(call, {inputs.begin(), inputs.end()});
    if (opaque_ == OpaqueBlocks::unknown || lost != nullptr) {
      return lost != nullptr ? *lost : call.unknown("runs as Python, which is not analysed");
    }
    const auto state = state_by_shape(graph_.value(id), BatchRows::own);
    const bool fixed = std::all_of(inputs.begin(), inputs.end(),
                                   [&](ValueId input) { return call.state(input).is_fixed(); });
    if (state && (fixed || state->is_batched())) return *state;
    return call.unknown("gives a result without a batch dimension");
  }

  // What a write leaves behind that no output of the node shows.
  BatchState effect_of(const Call& call) const {
    const auto inputs = graph_.inputs_of(call.id());
    if (const BatchState* lost = first_lost(call, {inputs.begin(), inputs.end()})) return *lost;
    const bool fixed = std::all_of(inputs.begin(), inputs.end(),
                                   [&](ValueId input) { return call.state(input).is_fixed(); });
    if (fixed) return {};
    const bool known = BatchRules::all().find(call.node().op) != nullptr;
    return known ? call.mixed("writes values of samples into memory that all of them share")
                 : call.unknown("has no rule");
  }

  std::vector<BatchState> written_states(const Node& node) {
    std::vector<BatchState> out;
    for (const ValueId id : node.written) out.push_back(state_of(id));
    return out;
  }

  // All names of the memory see what was written into it.
  void write(NodeId node, ValueId target, const BatchState& before, const BatchState& after) {
    if (after.is_fixed()) return;
    for (const StorageId storage : graph_.writes(node)) {
      for (const ValueId name : names_[storage.index()]) {
        const NodeId producer = graph_.value(name).producer;
        if (producer.valid() && node < producer) break;  // made later; values come in order
        if (name != target && producer == node) continue;
        state_of(name) = after_write(node, state_of(name), before, after);
      }
    }
  }

  // Views are followed exactly, so that an element of memory belongs to one sample under all its
  // names; a write that keeps that keeps them all.
  static BatchState after_write(NodeId node, const BatchState& name, const BatchState& before,
                                const BatchState& after) {
    if (name.kind == BatchState::Kind::mixed) return name;
    if (after.is_lost()) return after;
    if (name.is_lost()) return name;
    const bool numbers = name.rows == BatchRows::numbers || after.rows == BatchRows::numbers;
    const bool laid_alike = before.is_batched() && before.dim == after.dim &&
                            before.outer == after.outer && before.inner == after.inner;
    if (!name.is_batched() || numbers || !laid_alike) {
      return BatchState::unknown(node, "writes values of samples through another name");
    }
    BatchState out = name;
    if (after.rows == BatchRows::own) out.rows = BatchRows::own;
    return out;
  }

  void note(const Call& call, const std::vector<BatchState>& results) {
    const bool lost_here = std::any_of(results.begin(), results.end(), [&](const BatchState& s) {
      return s.kind == BatchState::Kind::unknown && s.by == call.id();
    });
    if (lost_here) flow_.not_followed.push_back(call.id());
    const bool norm = operator_name(call.node().op) == "batch_norm" && graph_.data().training &&
                      call.flag(5, "training", true);
    const auto x = call.tensor(0, "input");
    if (norm && x && !call.state(*x).is_fixed()) flow_.batch_norms.push_back(call.id());
  }

  const Graph& graph_;
  OpaqueBlocks opaque_;
  BatchFlow flow_;
  std::unordered_map<std::size_t, std::vector<ValueId>> names_;  // of memory that is written
};

}  // namespace

BatchFlow analyse_batch(const Graph& graph, OpaqueBlocks opaque) {
  return Analysis(graph, opaque).run();
}

}  // namespace kerf
