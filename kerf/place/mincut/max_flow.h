// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Maximum flow for many related questions on one graph: terminal arcs only ever grow, the flow is
// kept, and a question asked in between is undone by a log. Dinic's algorithm (1970) on a graph
// whose terminal arcs are folded into one number for each node, as Boykov and Kolmogorov (2004) do.
// Integers: a cut is exact.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/search_budget.h"

namespace kerf::place {

using Flow = std::int64_t;
// Larger than any sum of capacities used here, small enough that a few of them add up.
inline constexpr Flow kEndless = Flow{1} << 58;

// The arcs between ordinary nodes, paired with their opposites. Built, frozen, then shared.
class FlowGraph {
 public:
  explicit FlowGraph(std::size_t nodes = 0) : first_(nodes + 1, 0) {}
  std::uint32_t add_node();
  void add_arc(std::uint32_t from, std::uint32_t to, Flow capacity, Flow back);
  void freeze();

  std::size_t num_nodes() const { return first_.size() - 1; }
  struct Arc {
    std::uint32_t to = 0;
    std::uint32_t twin = 0;  // the opposite arc
  };

 private:
  friend class MaxFlow;
  struct Pending {
    std::uint32_t from, to;
    Flow capacity, back;
  };
  std::vector<Pending> pending_;
  std::vector<std::uint32_t> first_;  // arcs of node n: first_[n] .. first_[n + 1]
  std::vector<Arc> arcs_;
  std::vector<Flow> capacity_;
};

// Room for one search at a time, so that copying a flow copies no more than the flow.
struct FlowScratch {
  std::vector<std::uint32_t> level;  // stamp + distance; anything below stamp is unvisited
  std::vector<std::uint32_t> cursor;
  std::vector<std::uint32_t> queue;
  std::uint32_t stamp = 0;
  std::int64_t steps = 0;  // arcs looked at: the work that budgets count
  bool reached(std::uint32_t node) const { return level[node] >= stamp; }

  // What is under way along a path.
  struct Visit {
    std::uint32_t node;
    Flow amount;  // wanted through it
    Flow pushed;
  };
  std::vector<Visit> path;

  // May be null. When it is spent, flows stop between two phases: their value then still is a lower
  // bound on the cut, but what is `reached` means nothing. Must outlive the scratch's use.
  SearchBudget* budget = nullptr;
  bool stopped = false;  // the last flow was
  bool out_of_budget();

 private:
  std::int64_t counted_ = 0;    // of the steps
  std::int64_t next_look_ = 0;  // at the clock, in steps
};

// A flow from an unnamed source to an unnamed sink. `graph` must outlive it.
class MaxFlow {
 public:
  explicit MaxFlow(const FlowGraph& graph);

  // Widens the arc from the source to `node`, or from `node` to the sink.
  void add_source(std::uint32_t node, Flow capacity);
  void add_sink(std::uint32_t node, Flow capacity);

  // Pushes until the flow is maximal (false) or reaches `limit` (true), or the budget ends (false,
  // `scratch.stopped`). When maximal, what `scratch.reached` is the smallest source side of a
  // minimum cut.
  bool augment(FlowScratch& scratch, Flow limit);
  // The same when only the source arc of `node` has grown since the flow was maximal, and `closed`
  // (by node) is the source side then: no new path enters it.
  bool augment_from(FlowScratch& scratch, std::uint32_t node, std::span<const std::uint8_t> closed,
                    Flow limit);

  Flow value() const { return value_; }
  std::size_t num_bytes() const { return (residual_.size() + terminal_.size()) * sizeof(Flow); }

  // From mark to undo, changes are logged; undo takes them back. Not nested.
  void mark();
  void undo();

 private:
  bool find_levels(FlowScratch& scratch, std::span<const std::uint8_t> closed);
  bool push_all(FlowScratch& scratch, std::span<const std::uint32_t> roots,
                std::span<const std::uint8_t> closed, Flow limit);
  Flow push(FlowScratch& scratch, std::uint32_t root, Flow amount);
  Flow drain(std::uint32_t node, Flow amount);
  void set_terminal(std::uint32_t node, Flow left);
  void move(std::uint32_t arc, Flow amount);

  const FlowGraph* graph_;
  std::vector<Flow> residual_;  // by arc
  std::vector<Flow> terminal_;  // by node: > 0 left from the source, < 0 left to the sink
  Flow value_ = 0;

  struct Change {
    std::uint32_t index;  // arcs first, then nodes
    Flow before;
  };
  std::vector<Change> log_;
  Flow logged_value_ = 0;
  bool logging_ = false;
};

}  // namespace kerf::place
