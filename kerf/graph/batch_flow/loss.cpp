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

std::int64_t ignored_target(const Call& call) {
  return call.integer(4, "ignore_index").value_or(kUsualIgnoreIndex);
}

// Is it weighted by nothing but the targets that its own loss ignores?
bool counts_targets(const LossShape& shape) {
  return std::find(shape.counting.begin(), shape.counting.end(), shape.by) != shape.counting.end();
}

struct TargetOrigin {
  std::optional<std::size_t> input;  // whose elements they are
  bool never_negative = false;       // numbers of places, truth values
};

TargetOrigin origin_of_targets(const Graph& graph, const BatchFlow& flow, ValueId target) {
  // Each sample loses or gains as much by these as any other.
  static constexpr std::array<std::string_view, 18> kAlike{
      "view",     "reshape", "contiguous", "clone",     "alias",  "to",
      "_to_copy", "slice",   "unsqueeze",  "squeeze",   "detach", "pad",
      "select",   "flatten", "permute",    "transpose", "t",      "constant_pad_nd"};
  ValueId at = target;
  for (int steps = 0; steps < kMostSteps; ++steps) {
    const Value& value = graph.value(at);
    if (value.storage.valid() && graph.is_written(value.storage)) return {};
    if (value.dtype == DType::boolean) return {{}, true};
    if (value.origin == Origin::input) return {value.position, false};
    if (value.origin != Origin::node) return {};
    const Call made(graph, value.producer, flow.states);
    const std::string_view name = operator_name(made.node().op);
    if (name == "argmax" || name == "argmin") return {{}, true};
    const auto from = made.tensor(0, "self");
    if (!from || !is_one_of(name, kAlike)) return {};
    if (is_floating(graph.value(*from).dtype)) return {};  // rounds
    at = *from;
  }
  return {};
}

class Walk {
 public:
  Walk(const Graph& graph, const BatchFlow& flow) : graph_(graph), flow_(flow) {}

  LossShape shape(ValueId id) {
    const Value& value = graph_.value(id);
    const BatchState& state = flow_.states[id.index()];
    if (state.is_fixed()) return {LossKind::constant, {}, {}};
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
    return id ? shape(*id) : LossShape{LossKind::constant, {}, {}};
  }

  LossShape reduced(const Call& call, std::string_view name) {
    const auto x = call.tensor(0, "self");
    if (!x) return {};
    if (!call.state(*x).is_batched()) return shape(*x);
    if (call.state(*x).rows == BatchRows::numbers) return {};
    return {name == "mean" ? LossKind::mean : LossKind::sum, call.id(), {}};
  }

  LossShape added(const Call& call) {
    const LossShape a = of_operand(call, 0);
    const LossShape b = of_operand(call, 1);
    if (call.has_batch_number()) return {};
    if (is_mean(a) && b.kind == LossKind::constant) return a;
    if (is_mean(b) && a.kind == LossKind::constant) return b;
    if (is_mean(a) && is_mean(b)) return both_means(a, b);
    return a.kind == b.kind ? a : LossShape{};
  }

  static bool is_mean(const LossShape& shape) {
    return shape.kind == LossKind::mean || shape.kind == LossKind::weighted_mean;
  }

  // Of two reasons why it is weighted, the one that no look at targets can take away.
  static LossShape both_means(LossShape a, LossShape b) {
    const bool swap =
        b.kind == LossKind::weighted_mean && (a.kind == LossKind::mean || counts_targets(a));
    if (swap) std::swap(a, b);
    a.counting.insert(a.counting.end(), b.counting.begin(), b.counting.end());
    return a;
  }

  LossShape scaled(const Call& call, std::string_view name) {
    const LossShape a = of_operand(call, 0);
    if (name == "div" && call.tensor(1, "other") &&
        !call.state(*call.tensor(1, "other")).is_fixed()) {
      return {LossKind::weighted_mean, call.id(), {}};
    }
    if (const auto number = call.size(1, "other"); number && !number->is_constant()) {
      const bool by_count = name == "div" && a.kind == LossKind::sum && batch_factor(*number);
      return by_count ? LossShape{LossKind::mean, call.id(), {}} : LossShape{};
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
    if (*reduction == kSumReduction) return {LossKind::sum, call.id(), {}};
    if (*reduction != kMeanReduction) return {};
    return is_class_loss(name) ? class_mean(call) : LossShape{LossKind::mean, call.id(), {}};
  }

  // Without weights of classes, and if no target is ignored, a mean over samples. One label a
  // sample is rarely ignored; those of a sequence are where it is padded.
  LossShape class_mean(const Call& call) const {
    const auto target = call.tensor(1, "target");
    if (!target || call.tensor(2, "weight")) return {LossKind::weighted_mean, call.id(), {}};
    const Value& value = call.value(*target);
    const BatchState& state = call.state(*target);
    const bool same = state.is_batched() && state.rows == BatchRows::same;
    if (is_floating(value.dtype) || same) return {LossKind::mean, call.id(), {}};
    const std::int64_t ignored = ignored_target(call);
    const bool one = value.shape.size() == 1 && value.shape[0] == Expr::batch();
    if (one && ignored < 0 && origin_of_targets(graph_, flow_, *target).never_negative) {
      return {LossKind::mean, call.id(), {}};
    }
    const bool usual = one && ignored == kUsualIgnoreIndex;
    return {usual ? LossKind::mean : LossKind::weighted_mean, call.id(), {call.id()}};
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

std::optional<std::vector<LossTarget>> loss_targets(const Graph& graph, const BatchFlow& flow,
                                                    const LossShape& shape) {
  if (shape.kind == LossKind::weighted_mean && !counts_targets(shape)) return std::nullopt;
  std::vector<LossTarget> out;
  for (const NodeId loss : shape.counting) {
    const Call call(graph, loss, flow.states);
    const TargetOrigin origin = origin_of_targets(graph, flow, *call.tensor(1, "target"));
    const LossTarget found{origin.input.value_or(0), ignored_target(call)};
    if (origin.never_negative && found.ignored < 0) continue;
    if (!origin.input) return std::nullopt;
    if (std::find(out.begin(), out.end(), found) == out.end()) out.push_back(found);
  }
  return out;
}

}  // namespace kerf
