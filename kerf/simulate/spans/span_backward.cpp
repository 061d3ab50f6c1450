// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/spans/span_backward.h"

#include <algorithm>
#include <utility>

#include "kerf/graph/has_backward.h"
#include "kerf/simulate/step_memory/backward_rules.h"

namespace kerf {

SpanBackward::SpanBackward(const Graph& graph, const SavedSets& sets, bool accelerator)
    : graph_(graph),
      sets_(sets),
      accelerator_(accelerator),
      inside_(graph.num_values()),
      is_leaving_(graph.num_values()) {}

bool SpanBackward::is_made_in(const Span& span, ValueId id) const {
  const Value& value = graph_.value(id);
  return value.origin == Origin::node && value.producer >= span.first && value.producer < span.last;
}

std::int64_t SpanBackward::make_gradients(const Span& span, NodeId node) {
  std::int64_t made = 0;
  for (const ValueId id : graph_.inputs_of(node)) {
    const Value& value = graph_.value(id);
    if (value.scalar || !value.requires_grad) continue;
    if (!is_made_in(span, id)) {
      if (!is_leaving_[id.index()]) leaving_ += value.bytes(0).count;
      if (!is_leaving_[id.index()]) touched_.push_back(id);
      is_leaving_[id.index()] = true;
      continue;
    }
    // One that is passed on unchanged is the gradient of the result; two are added in place.
    if (inside_[id.index()] != 0 || passes_gradient(graph_, node, id, 0)) continue;
    inside_[id.index()] = value.bytes(0).count;
    touched_.push_back(id);
    made += value.bytes(0).count;
  }
  return made;
}

std::int64_t SpanBackward::workspace(NodeId node) const {
  if (!accelerator_) return 0;
  std::int64_t most = 0;
  for (const ValueId id : graph_.inputs_of(node)) {
    if (graph_.value(id).scalar || !graph_.value(id).requires_grad) continue;
    std::int64_t sum = 0;
    for (const Bytes bytes : gradient_workspaces(graph_, node, id, 0)) sum += bytes.count;
    most = std::max(most, sum);
  }
  return most;
}

std::int64_t SpanBackward::given_up(NodeId node) const {
  std::int64_t sum = 0;
  for (const SavedTensor& tensor : sets_.of(node)) sum += tensor.bytes.count;
  return sum;
}

SpanGradients SpanBackward::run(const Span& span) {
  std::int64_t live = 0;
  std::int64_t most = 0;
  leaving_ = 0;
  for (std::size_t n = span.last.index(); n-- > span.first.index();) {
    if (!has_backward(graph_, NodeId{n})) continue;
    live += make_gradients(span, NodeId{n});
    most = std::max(most, live + workspace(NodeId{n}));
    for (const ValueId id : graph_.nodes()[n].outputs) {
      if (id.valid()) live -= std::exchange(inside_[id.index()], 0);
    }
    live -= given_up(NodeId{n});
  }
  for (const ValueId id : touched_) {
    inside_[id.index()] = 0;
    is_leaving_[id.index()] = false;
  }
  touched_.clear();
  return {Bytes{most}, Bytes{leaving_}};
}

}  // namespace kerf
