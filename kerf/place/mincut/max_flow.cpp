// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/mincut/max_flow.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kerf/base/stop_clock.h"

namespace kerf::place {

bool FlowScratch::out_of_budget() {
  // An arc takes some six nanoseconds.
  count_steps((steps - std::exchange(counted_, steps)) * 5 / 8);
  constexpr std::int64_t kStepsBetweenLooks = 20'000;  // some 0.2 ms
  if (budget == nullptr) return false;
  if (steps >= budget->work || budget->timed_out) return true;
  if (steps < next_look_) return false;
  next_look_ = steps + kStepsBetweenLooks;
  return budget->spent(steps);
}

std::uint32_t FlowGraph::add_node() {
  first_.push_back(0);
  return static_cast<std::uint32_t>(first_.size() - 2);
}

void FlowGraph::add_arc(std::uint32_t from, std::uint32_t to, Flow capacity, Flow back) {
  pending_.push_back({from, to, capacity, back});
}

void FlowGraph::freeze() {
  std::fill(first_.begin(), first_.end(), 0);
  for (const Pending& arc : pending_) {
    ++first_[arc.from + 1];
    ++first_[arc.to + 1];
  }
  for (std::size_t n = 1; n < first_.size(); ++n) first_[n] += first_[n - 1];
  arcs_.resize(2 * pending_.size());
  capacity_.resize(arcs_.size());
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (const Pending& arc : pending_) {
    const std::uint32_t there = next[arc.from]++;
    const std::uint32_t back = next[arc.to]++;
    arcs_[there] = {arc.to, back};
    arcs_[back] = {arc.from, there};
    capacity_[there] = arc.capacity;
    capacity_[back] = arc.back;
  }
}

MaxFlow::MaxFlow(const FlowGraph& graph)
    : graph_(&graph), residual_(graph.capacity_), terminal_(graph.num_nodes(), 0) {}

void MaxFlow::set_terminal(std::uint32_t node, Flow left) {
  if (logging_) {
    log_.push_back({static_cast<std::uint32_t>(residual_.size()) + node, terminal_[node]});
  }
  terminal_[node] = left;
}

void MaxFlow::move(std::uint32_t arc, Flow amount) {
  const std::uint32_t twin = graph_->arcs_[arc].twin;
  if (logging_) {
    log_.push_back({arc, residual_[arc]});
    log_.push_back({twin, residual_[twin]});
  }
  residual_[arc] -= amount;
  residual_[twin] += amount;
}

void MaxFlow::add_source(std::uint32_t node, Flow capacity) {
  value_ += std::min(capacity, std::max<Flow>(0, -terminal_[node]));
  set_terminal(node, terminal_[node] + capacity);
}

void MaxFlow::add_sink(std::uint32_t node, Flow capacity) {
  value_ += std::min(capacity, std::max<Flow>(0, terminal_[node]));
  set_terminal(node, terminal_[node] - capacity);
}

void MaxFlow::mark() {
  log_.clear();
  logged_value_ = value_;
  logging_ = true;
}

void MaxFlow::undo() {
  for (std::size_t i = log_.size(); i-- > 0;) {
    const Change& change = log_[i];
    if (change.index < residual_.size()) {
      residual_[change.index] = change.before;
    } else {
      terminal_[change.index - residual_.size()] = change.before;
    }
  }
  log_.clear();
  value_ = logged_value_;
  logging_ = false;
}

// Breadth first from what is in the queue. Stops at the first level that holds a sink arc: longer
// paths are the next phase's.
bool MaxFlow::find_levels(FlowScratch& scratch, std::span<const std::uint8_t> closed) {
  std::uint32_t last = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t i = 0; i < scratch.queue.size(); ++i) {
    const std::uint32_t n = scratch.queue[i];
    if (scratch.level[n] >= last) break;
    const std::uint32_t begin = graph_->first_[n];
    const std::uint32_t end = graph_->first_[n + 1];
    scratch.steps += end - begin;
    for (std::uint32_t a = begin; a < end; ++a) {
      const std::uint32_t to = graph_->arcs_[a].to;
      if (residual_[a] <= 0 || scratch.reached(to)) continue;
      if (!closed.empty() && closed[to] != 0) continue;
      scratch.level[to] = scratch.level[n] + 1;
      scratch.cursor[to] = graph_->first_[to];
      scratch.queue.push_back(to);
      if (terminal_[to] < 0) last = scratch.level[to];
    }
  }
  return last != std::numeric_limits<std::uint32_t>::max();
}

Flow MaxFlow::drain(std::uint32_t node, Flow amount) {
  if (terminal_[node] >= 0) return 0;
  const Flow drained = std::min(amount, -terminal_[node]);
  set_terminal(node, terminal_[node] + drained);
  return drained;
}

// Depth first without recursion: in a long chain a path is as long as the chain.
Flow MaxFlow::push(FlowScratch& scratch, std::uint32_t root, Flow amount) {
  scratch.path.clear();
  FlowScratch::Visit visit{root, amount, drain(root, amount)};
  for (;;) {
    std::uint32_t a = scratch.cursor[visit.node];
    const std::uint32_t begin = a;
    const std::uint32_t end = graph_->first_[visit.node + 1];
    const std::uint32_t below = scratch.level[visit.node] + 1;
    if (visit.pushed < visit.amount) {
      while (a < end && (residual_[a] <= 0 || scratch.level[graph_->arcs_[a].to] != below)) ++a;
      scratch.steps += a - begin + (a < end ? 1 : 0);
      scratch.cursor[visit.node] = a;
      if (a < end) {
        const std::uint32_t to = graph_->arcs_[a].to;
        const Flow wanted = std::min(visit.amount - visit.pushed, residual_[a]);
        scratch.path.push_back(visit);
        visit = {to, wanted, drain(to, wanted)};
        continue;
      }
    }
    if (scratch.path.empty()) return visit.pushed;
    const Flow pushed = visit.pushed;
    visit = scratch.path.back();
    scratch.path.pop_back();
    std::uint32_t& arc = scratch.cursor[visit.node];
    if (pushed > 0) move(arc, pushed);
    visit.pushed += pushed;
    if (visit.pushed < visit.amount) ++arc;  // else this arc may carry more
  }
}

bool MaxFlow::push_all(FlowScratch& scratch, std::span<const std::uint32_t> roots,
                       std::span<const std::uint8_t> closed, Flow limit) {
  const auto nodes = static_cast<std::uint32_t>(graph_->num_nodes());
  scratch.level.resize(nodes, 0);
  scratch.cursor.resize(nodes, 0);
  scratch.stopped = false;
  for (;;) {
    if (value_ >= limit) return true;
    if (scratch.out_of_budget()) {
      scratch.stopped = true;
      return false;
    }
    // Levels of one search lie above those of all earlier ones: nothing to clear.
    if (scratch.stamp > std::numeric_limits<std::uint32_t>::max() - 3 * nodes - 3) {
      std::fill(scratch.level.begin(), scratch.level.end(), 0);
      scratch.stamp = 0;
    }
    scratch.stamp += nodes + 1;
    scratch.queue.clear();
    for (const std::uint32_t root : roots) {
      if (terminal_[root] <= 0) continue;
      scratch.level[root] = scratch.stamp;
      scratch.cursor[root] = graph_->first_[root];
      scratch.queue.push_back(root);
    }
    if (!find_levels(scratch, closed)) return false;
    for (const std::uint32_t root : roots) {
      if (terminal_[root] <= 0) continue;
      const Flow pushed = push(scratch, root, std::min(terminal_[root], limit - value_));
      set_terminal(root, terminal_[root] - pushed);
      value_ += pushed;
      if (value_ >= limit) return true;
    }
  }
}

bool MaxFlow::augment(FlowScratch& scratch, Flow limit) {
  std::vector<std::uint32_t> roots;
  scratch.steps += static_cast<std::int64_t>(terminal_.size()) / 8;
  for (std::uint32_t n = 0; n < terminal_.size(); ++n) {
    if (terminal_[n] > 0) roots.push_back(n);
  }
  return push_all(scratch, roots, {}, limit);
}

bool MaxFlow::augment_from(FlowScratch& scratch, std::uint32_t node,
                           std::span<const std::uint8_t> closed, Flow limit) {
  if (terminal_[node] <= 0) {  // the sink takes it all
    push_all(scratch, {}, {}, limit);
    return value_ >= limit;
  }
  const std::uint32_t roots[] = {node};
  return push_all(scratch, roots, closed, limit);
}

}  // namespace kerf::place
