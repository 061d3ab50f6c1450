// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/state_writes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "kerf/graph/batch_flow/call.h"

namespace kerf {
namespace {

constexpr std::string_view kSamples = "writes values of the samples into it";
constexpr std::string_view kBatch = "writes values that depend on the batch size into it";
constexpr std::string_view kChanges = "changes it at every call";
constexpr std::string_view kReadFirst = "reads what the previous call left in it";
constexpr std::string_view kRandom = "writes random numbers into it";

// In-place operators whose result, where they write, owes nothing to what was there: a second time
// changes nothing. What they leave alone stays.
bool overwrites(const Call& call) {
  constexpr std::array<std::string_view, 8> kOverwriting = {
      "copy", "fill", "zero", "masked_fill", "index_fill", "index_copy", "index_put", "scatter"};
  const std::string_view op = call.node().op;
  const std::string_view name = operator_name(op);
  if (!op.starts_with("aten.")) return false;
  if (std::find(kOverwriting.begin(), kOverwriting.end(), name) == kOverwriting.end()) return false;
  if (name == "index_put") return !call.flag(3, "accumulate", false);
  const std::string_view overload = overload_name(op);
  return name != "scatter" || overload == "src" || overload == "value";
}

// Follows, node by node, which values may be others in a second micro-batch because of what the
// first has left behind.
class Proof {
 public:
  Proof(const Graph& graph, const BatchFlow& flow) : graph_(graph), flow_(flow) {
    touched_.resize(graph.num_values());
    for (const Weight& weight : graph.weights()) {
      const StorageId storage = graph.value(weight.value).storage;
      if (storage.valid() && graph.is_written(storage)) state_[storage.index()];
    }
    for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
      for (const StorageId storage : graph.writes(NodeId(n))) {
        const auto found = state_.find(storage.index());
        if (found != state_.end()) found->second.last_write = NodeId(n);
      }
    }
  }

  std::vector<StateWrite> run() {
    if (state_.empty()) return {};
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) follow(NodeId(n));
    std::vector<StateWrite> out;
    for (std::size_t w = 0; w < graph_.weights().size(); ++w) {
      const auto found = state_.find(graph_.value(graph_.weights()[w].value).storage.index());
      if (found == state_.end() || !found->second.why) continue;
      out.push_back({w, found->second.by, *found->second.why});
    }
    return out;
  }

 private:
  struct State {
    NodeId last_write;
    NodeId by;
    std::optional<std::string_view> why;  // it may end as something else
  };

  // Why a value may be another one in the second micro-batch; nothing: it is the same.
  using Reason = std::optional<std::string_view>;

  void follow(NodeId id) {
    const Node& node = graph_.node(id);
    const Call call(graph_, id, flow_.states);
    if (is_statistics(id)) {
      for (const StorageId storage : graph_.writes(id)) tainted_.insert(storage.index());
      return;
    }
    const bool overwriting = overwrites(call);
    Reason from = source_of(id, overwriting);
    if (node.random) from = kRandom;
    if (call.has_batch_number()) from = kBatch;
    if (!node.written.empty()) write(id, overwriting, from);
    for (const ValueId output : node.outputs) {
      if (output.valid() && from) touched_[output.index()] = from;
    }
  }

  static bool is_written(const Node& node, ValueId id) {
    return std::find(node.written.begin(), node.written.end(), id) != node.written.end();
  }

  // Of all that a node makes its results of.
  Reason source_of(NodeId id, bool overwriting) {
    const Node& node = graph_.node(id);
    Reason from;
    std::set<std::size_t> replaced;  // memory that is not looked at
    for (const ValueId input : graph_.inputs_of(id)) {
      const bool target = is_written(node, input);
      const StorageId storage = graph_.value(input).storage;
      if (touched_[input.index()]) from = touched_[input.index()];  // of a target: its place
      if (target && overwriting && storage.valid()) replaced.insert(storage.index());
      if (target) continue;
      if (!flow_.states[input.index()].is_fixed()) from = kSamples;
    }
    for (const StorageId storage : graph_.reads(id)) {
      if (replaced.contains(storage.index()) || is_view(id, storage)) continue;
      if (tainted_.contains(storage.index())) from = kChanges;
      if (const auto found = state_.find(storage.index()); found != state_.end()) {
        if (read(id, found->second)) from = kChanges;
      }
    }
    return from;
  }

  // True when the state may be another in a second micro-batch.
  bool read(NodeId id, State& state) {
    const auto writes = graph_.writes(id);
    const bool changes = std::any_of(writes.begin(), writes.end(), [&](StorageId storage) {
      const auto found = state_.find(storage.index());
      return found != state_.end() && &found->second == &state;
    });
    if (changes) return true;  // what it writes comes of what was there
    if (!(state.last_write < id)) refuse(state, id, kReadFirst);
    return state.why.has_value();
  }

  // Another name for the memory: nothing of what is in it is looked at.
  bool is_view(NodeId id, StorageId storage) const {
    const Node& node = graph_.node(id);
    return node.written.empty() && !node.outputs.empty() &&
           std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId output) {
             return output.valid() && graph_.value(output).storage == storage;
           });
  }

  void write(NodeId id, bool overwriting, Reason from) {
    for (const StorageId storage : graph_.writes(id)) {
      if (from) tainted_.insert(storage.index());
      const auto found = state_.find(storage.index());
      if (found == state_.end()) continue;
      if (from || !overwriting) refuse(found->second, id, from.value_or(kChanges));
    }
  }

  static void refuse(State& state, NodeId by, std::string_view why) {
    if (state.why) return;
    state.by = by;
    state.why = why;
  }

  // In train mode batch norm writes the statistics of the batch, and its module counts the calls.
  bool is_statistics(NodeId id) const {
    const auto& norms = flow_.batch_norms;
    if (std::find(norms.begin(), norms.end(), id) != norms.end()) return true;
    const Node& node = graph_.node(id);
    const bool within = std::any_of(norms.begin(), norms.end(), [&](NodeId norm) {
      return graph_.node(norm).scope == node.scope;
    });
    return within && !node.written.empty() &&
           std::all_of(node.written.begin(), node.written.end(),
                       [&](ValueId value) { return is_count(graph_.value(value).storage); });
  }

  bool is_count(StorageId storage) const {
    const auto& weights = graph_.weights();
    return std::any_of(weights.begin(), weights.end(), [&](const Weight& weight) {
      return graph_.value(weight.value).storage == storage &&
             weight.kind != WeightKind::parameter &&
             weight.names[0].ends_with("num_batches_tracked");
    });
  }

  const Graph& graph_;
  const BatchFlow& flow_;
  std::map<std::size_t, State> state_;  // by storage
  std::vector<Reason> touched_;         // of each value
  std::set<std::size_t> tainted_;       // storages into which such values went
};

}  // namespace

std::vector<StateWrite> unrepeatable_writes(const Graph& graph, const BatchFlow& flow) {
  return Proof(graph, flow).run();
}

std::string describe(const Weight& weight) {
  const std::string_view kind = weight.kind == WeightKind::parameter  ? "parameter"
                                : weight.kind == WeightKind::constant ? "tensor"
                                                                      : "buffer";
  std::string out = fmt::format("{} '{}'", kind, weight.names[0]);
  for (std::size_t i = 1; i < weight.names.size(); ++i) {
    out += fmt::format("{}'{}'", i == 1 ? " (also " : ", ", weight.names[i]);
  }
  return out + (weight.names.size() > 1 ? ")" : "");
}

}  // namespace kerf
