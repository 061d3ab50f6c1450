// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/loss.h"

#include <algorithm>
#include <array>
#include <set>

#include "kerf/graph/batch_flow/call.h"

namespace kerf {
namespace {

constexpr int kMostSteps = 200;  // from a result back to the samples
constexpr std::int64_t kUsualIgnoreIndex = -100;

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class Walk {
 public:
  Walk(const Graph& graph, const BatchFlow& flow) : graph_(graph), flow_(flow) {}

  LossShape shape(ValueId id) {
    const Value& value = graph_.value(id);
    const BatchState& state = flow_.states[id.index()];
    if (state.is_fixed()) return {LossKind::constant, {}};
    const bool written = value.storage.valid() && graph_.is_written(value.storage);
    if (state.is_batched() || value.origin != Origin::node || written || steps_-- <= 0) return {};
    const Call call(graph_, value.producer, flow_.states);
    const std::string_view name = operator_name(call.node().op);
    static constexpr std::array<std::string_view, 12> kKeep{
        "clone", "detach",  "to",      "_to_copy",  "alias",   "contiguous",
        "view",  "reshape", "squeeze", "unsqueeze", "type_as", "neg"};
    if (is_one_of(name, kKeep)) return of_operand(call, 0);
    if (name == "mean" || name == "sum") return reduced(call, name);
    if (name == "add" || name == "sub") return added(call);
    if (name == "mul" || name == "div") return scaled(call, name);
    return loss(call, name);
  }

 private:
  LossShape of_operand(const Call& call, std::size_t position) {
    const auto id = call.tensor(position, position == 0 ? "self" : "other");
    return id ? shape(*id) : LossShape{LossKind::constant, {}};
  }

  LossShape reduced(const Call& call, std::string_view name) {
    const auto x = call.tensor(0, "self");
    if (!x) return {};
    if (!call.state(*x).is_batched()) return shape(*x);
    if (call.state(*x).rows == BatchRows::numbers) return {};
    return {name == "mean" ? LossKind::mean : LossKind::sum, call.id()};
  }

  LossShape added(const Call& call) {
    const LossShape a = of_operand(call, 0);
    const LossShape b = of_operand(call, 1);
    if (a.kind == LossKind::weighted_mean) return a;
    if (b.kind == LossKind::weighted_mean || b.kind == a.kind) return b;
    if (a.kind == LossKind::mean && b.kind == LossKind::constant) return a;
    if (b.kind == LossKind::mean && a.kind == LossKind::constant) return b;
    return {};
  }

  LossShape scaled(const Call& call, std::string_view name) {
    const LossShape a = of_operand(call, 0);
    if (name == "div" && call.tensor(1, "other") &&
        !call.state(*call.tensor(1, "other")).is_fixed()) {
      return {LossKind::weighted_mean, call.id()};
    }
    if (const auto number = call.size(1, "other"); number && !number->is_constant()) {
      const bool by_count = name == "div" && a.kind == LossKind::sum && batch_factor(*number);
      return by_count ? LossShape{LossKind::mean, call.id()} : LossShape{};
    }
    const LossShape b = of_operand(call, 1);
    if (a.kind == LossKind::constant) return name == "mul" ? b : LossShape{};
    return b.kind == LossKind::constant ? a : LossShape{};
  }

  LossShape loss(const Call& call, std::string_view name) const {
    const auto reduction = loss_reduction(call);
    if (!reduction) return {};
    // What could not be followed up to here is said of the values that it came from.
    const BatchState each = unreduced_loss(call);
    const bool lost_here = each.is_lost() && each.by == call.id();
    if (each.kind == BatchState::Kind::mixed || lost_here) return {};
    if (*reduction == kSumReduction) return {LossKind::sum, call.id()};
    if (*reduction != kMeanReduction) return {};
    const bool alike = !is_class_loss(name) || counts_alike(call);
    return {alike ? LossKind::mean : LossKind::weighted_mean, call.id()};
  }

  // One target a sample, none of them set aside, no class weighed: the mean over targets is the
  // mean over samples. Targets of a sequence are set aside by ignore_index where it is padded.
  bool counts_alike(const Call& call) const {
    const auto target = call.tensor(1, "target");
    if (!target || call.tensor(2, "weight")) return false;
    const Value& value = call.value(*target);
    if (is_floating(value.dtype)) return true;  // probabilities: none can be set aside
    const bool usual =
        call.integer(4, "ignore_index").value_or(kUsualIgnoreIndex) == kUsualIgnoreIndex;
    return usual && value.shape.size() == 1 && value.shape[0] == Expr::batch();
  }

  const Graph& graph_;
  const BatchFlow& flow_;
  int steps_ = kMostSteps;
};

}  // namespace

LossShape loss_shape(const Graph& graph, const BatchFlow& flow, ValueId value) {
  return Walk(graph, flow).shape(value);
}

BatchState lost_source(const Graph& graph, const BatchFlow& flow, ValueId value, Sources sources) {
  BatchState found;
  const auto consider = [&](const BatchState& state) {
    const bool mixed = state.kind == BatchState::Kind::mixed;
    const bool worse = found.is_fixed() || (mixed && found.kind != BatchState::Kind::mixed);
    if (worse || (state.kind == found.kind && state.by < found.by)) found = state;
  };
  std::vector<ValueId> open{value};
  std::set<ValueId> seen{value};
  while (!open.empty()) {
    const Value& at = graph.value(open.back());
    const BatchState& state = flow.states[open.back().index()];
    open.pop_back();
    if (!state.is_lost()) continue;
    const bool here = sources == Sources::all || state.by == at.producer;
    if (at.depends_on_batch() && here) consider(state);
    if (at.origin != Origin::node) continue;
    const Call call(graph, at.producer, flow.states);
    if (loss_reduction(call)) {
      const BatchState each = unreduced_loss(call);
      if (each.is_lost() && each.by == at.producer) consider(each);
    }
    for (const ValueId from : graph.inputs_of(at.producer)) {
      if (seen.insert(from).second) open.push_back(from);
    }
  }
  return found;
}

std::optional<LossTargets> loss_targets(const Graph& graph, const BatchFlow& flow, NodeId loss) {
  const Call call(graph, loss, flow.states);
  const auto target = call.tensor(1, "target");
  if (!is_class_loss(operator_name(call.node().op))) return std::nullopt;
  if (!target || call.tensor(2, "weight")) return std::nullopt;
  // Each sample loses or gains as much by these as any other.
  static constexpr std::array<std::string_view, 13> kAlike{
      "view",      "reshape", "contiguous", "clone", "alias",          "to", "_to_copy", "slice",
      "unsqueeze", "squeeze", "detach",     "pad",   "constant_pad_nd"};
  ValueId at = *target;
  for (int steps = 0; steps < kMostSteps; ++steps) {
    const Value& value = graph.value(at);
    if (value.storage.valid() && graph.is_written(value.storage)) return std::nullopt;
    if (value.origin == Origin::input) {
      return LossTargets{{value.position},
                         call.integer(4, "ignore_index").value_or(kUsualIgnoreIndex)};
    }
    if (value.origin != Origin::node) return std::nullopt;
    const Call made(graph, value.producer, flow.states);
    const auto from = made.tensor(0, "self");
    if (!from || !is_one_of(operator_name(made.node().op), kAlike)) return std::nullopt;
    at = *from;
  }
  return std::nullopt;
}

}  // namespace kerf
