// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Nodes that cannot be separated: strongly connected components (Tarjan 1972) of the graph in which
// each glued group is tied into a ring. Linear time.
#include <algorithm>

#include "kerf/partition/bounds/bounds.h"

namespace kerf::partition {
namespace {

class Components {
 public:
  explicit Components(const Graph& graph)
      : graph_(graph),
        ring_(graph.num_nodes()),
        index_(graph.num_nodes()),
        low_(graph.num_nodes()),
        on_stack_(graph.num_nodes()),
        component_(graph.num_nodes(), kNone) {
    for (const std::vector<NodeId>& group : graph.glued()) {
      for (std::size_t k = 0; k < group.size(); ++k) {
        ring_[group[k].index()] = group[(k + 1) % group.size()];
      }
    }
  }

  std::vector<std::size_t> run() {
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (index_[n] == 0) visit(n);
    }
    return renumber();
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Frame {
    std::size_t node;
    std::size_t edge = 0;
  };

  // Successors, then the next of its glued group.
  std::size_t neighbour(std::size_t node, std::size_t edge) const {
    const auto successors = graph_.successors(NodeId{node});
    if (edge < successors.size()) return successors[edge].index();
    if (edge == successors.size() && ring_[node].valid()) return ring_[node].index();
    return kNone;
  }

  void enter(std::size_t node) {
    index_[node] = low_[node] = ++counter_;
    on_stack_[node] = true;
    stack_.push_back(node);
    frames_.push_back({node});
  }

  // Explicit frames: graphs are deeper than the stack.
  void visit(std::size_t root) {
    enter(root);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const std::size_t node = frame.node;
      const std::size_t next = neighbour(node, frame.edge++);
      if (next == kNone) {
        frames_.pop_back();
        if (!frames_.empty()) {
          low_[frames_.back().node] = std::min(low_[frames_.back().node], low_[node]);
        }
        if (low_[node] == index_[node]) close(node);
      } else if (index_[next] == 0) {
        enter(next);
      } else if (on_stack_[next]) {
        low_[node] = std::min(low_[node], index_[next]);
      }
    }
  }

  void close(std::size_t root) {
    for (std::size_t node = kNone; node != root;) {
      node = stack_.back();
      stack_.pop_back();
      on_stack_[node] = false;
      component_[node] = root;
    }
  }

  std::vector<std::size_t> renumber() const {
    std::vector<std::size_t> number(component_.size(), kNone);
    std::vector<std::size_t> units(component_.size());
    std::size_t next = 0;
    for (std::size_t n = 0; n < component_.size(); ++n) {
      std::size_t& unit = number[component_[n]];
      if (unit == kNone) unit = next++;
      units[n] = unit;
    }
    return units;
  }

  const Graph& graph_;
  std::vector<NodeId> ring_;
  std::vector<std::size_t> index_, low_;
  std::vector<bool> on_stack_;
  std::vector<std::size_t> component_;
  std::vector<std::size_t> stack_;
  std::vector<Frame> frames_;
  std::size_t counter_ = 0;
};

}  // namespace

std::vector<std::size_t> indivisible_units(const Graph& graph) { return Components(graph).run(); }

}  // namespace kerf::partition
