// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What every interval of the graph's order costs, read off a scan from its first node on.
//
// All figures of an interval [i, j) are sums over its nodes c of changes that depend on i only by
// comparison: "if i lies in (low, high]". A tensor is received at its first use in the interval
// (previous use or maker before i), a weight likewise, memory is released at the last use if it was
// allocated inside, and so on. So a scan from i visits each node once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "kerf/base/stop_clock.h"
#include "kerf/plan/problem.h"

namespace kerf::partition {

// Positions of nodes, in changes that apply to some starts of intervals.
inline constexpr std::int32_t kBefore = -1;  // before the first node
inline constexpr std::int32_t kAlways = std::numeric_limits<std::int32_t>::max();

// One stage that is the interval [i, j); bytes and times of one micro-batch.
struct IntervalFigures {
  double time = 0;                  // on a device of speed 1
  std::int64_t received_count = 0;  // tensors made before i
  std::int64_t received = 0;        // their bytes
  std::int64_t sent_count =
      0;  // tensors made inside and used from j on; `link`: whose gradients come back
  std::int64_t sent = 0;    // their bytes
  std::int64_t inputs = 0;  // graph inputs
  std::int64_t weights = 0;
  std::int64_t live = 0;  // allocated at node j
  std::int64_t peak = 0;  // the most that was, workspace included
  std::int64_t held = 0;  // left behind for later stages and the caller

  // What the memory engine predicts when the stage is alone on its device; see simulate/memory.h.
  std::int64_t memory(std::int64_t n_microbatches) const {
    const std::int64_t running = held * (n_microbatches - 1) + received + inputs + peak;
    return weights + std::max(running, held * n_microbatches);
  }
  // Never above memory() for any longer interval with the same start.
  std::int64_t least_memory() const { return weights + peak; }
};

class Intervals {
 public:
  explicit Intervals(const Problem& problem);

  std::size_t num_nodes() const { return nodes_.size(); }
  // Calls visit(j, figures) for j = i + 1, i + 2, ... until it returns false or the nodes end.
  template <class Visit>
  void scan(std::size_t i, Visit&& visit) const;

  // Time of the nodes before a position.
  double work_before(std::size_t position) const { return work_before_[position]; }
  // Tensors that cross a position: made before it, used after it.
  struct Crossing {
    std::int64_t count = 0;
    std::int64_t bytes = 0;
  };
  const Crossing& crossing(std::size_t position) const { return crossing_[position]; }
  // Weights used before a position, and from it on; each storage once.
  std::int64_t weights_before(std::size_t position) const { return weights_before_[position]; }
  std::int64_t weights_after(std::size_t position) const { return weights_after_[position]; }

  struct Received {
    std::int32_t low;    // its maker or its previous use, whichever is later
    std::int32_t maker;  // the node that makes it
    ValueId value;
  };
  // Tensors that node `c` uses, made by nodes.
  const std::vector<Received>& received(std::size_t c) const { return received_[c]; }

 private:
  enum class Kind : std::uint8_t { received, input, weight, allocate, release, held, sent, kept };
  struct Change {
    std::int32_t low;  // applies to starts i with low < i <= high
    std::int32_t high;
    Kind kind;
    std::int64_t bytes;
  };
  struct NodeFigures {
    double time = 0;
    std::int64_t allocated = 0;
    std::int64_t workspace = 0;
    std::uint32_t first = 0;  // its changes: before the peak is read ...
    std::uint32_t after = 0;  // ... and after it
    std::uint32_t end = 0;
  };
  struct Collector;

  static void apply(const Change& change, std::int32_t start, IntervalFigures& figures);

  std::vector<NodeFigures> nodes_;
  std::vector<Change> changes_;
  std::vector<std::vector<Received>> received_;
  std::vector<double> work_before_;
  std::vector<Crossing> crossing_;
  std::vector<std::int64_t> weights_before_;
  std::vector<std::int64_t> weights_after_;
};

inline void Intervals::apply(const Change& change, std::int32_t start, IntervalFigures& figures) {
  if (change.low >= start || start > change.high) return;
  switch (change.kind) {
    case Kind::received:
      ++figures.received_count;
      figures.received += change.bytes;
      break;
    case Kind::input: figures.inputs += change.bytes; break;
    case Kind::weight: figures.weights += change.bytes; break;
    case Kind::allocate:
    case Kind::release: figures.live += change.bytes; break;
    case Kind::held: figures.held += change.bytes; break;
    case Kind::sent:
      ++figures.sent_count;
      figures.sent += change.bytes;
      break;
    case Kind::kept:
      --figures.sent_count;
      figures.sent -= change.bytes;
      break;
  }
}

template <class Visit>
void Intervals::scan(std::size_t i, Visit&& visit) const {
  IntervalFigures figures;
  const auto start = static_cast<std::int32_t>(i);
  for (std::size_t c = i; c < nodes_.size(); ++c) {
    const NodeFigures& node = nodes_[c];
    figures.time += node.time;
    figures.live += node.allocated;
    for (std::uint32_t k = node.first; k < node.after; ++k) apply(changes_[k], start, figures);
    figures.peak = std::max(figures.peak, figures.live + node.workspace);
    for (std::uint32_t k = node.after; k < node.end; ++k) apply(changes_[k], start, figures);
    if (!visit(c + 1, static_cast<const IntervalFigures&>(figures))) {
      return count_steps(static_cast<std::int64_t>(c + 1 - i));
    }
  }
  count_steps(static_cast<std::int64_t>(nodes_.size() - i));
}

}  // namespace kerf::partition
