// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The backward of one span by itself. Private to simulate/spans.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/graph/span.h"
#include "kerf/profile/saved/saved.h"

namespace kerf {

struct SpanGradients {
  Bytes inside;   // of what only the span knows, at most, less what it has given up by then
  Bytes leaving;  // of its inputs and weights
};

// One walk a span; what it needs by value is made once. All must outlive it.
class SpanBackward {
 public:
  SpanBackward(const Graph& graph, const SavedSets& sets, bool accelerator);
  SpanGradients run(const Span& span);

 private:
  bool is_made_in(const Span& span, ValueId id) const;
  // Bytes that the gradients of a node's arguments add to those inside.
  std::int64_t make_gradients(const Span& span, NodeId node);
  std::int64_t workspace(NodeId node) const;
  std::int64_t given_up(NodeId node) const;

  const Graph& graph_;
  const SavedSets& sets_;
  bool accelerator_;
  // By value: the bytes of its gradient, where it is inside and has one of its own.
  std::vector<std::int64_t> inside_;
  std::vector<bool> is_leaving_;  // by value: it has a gradient that leaves the span at hand
  std::vector<ValueId> touched_;
  std::int64_t leaving_ = 0;
};

}  // namespace kerf
