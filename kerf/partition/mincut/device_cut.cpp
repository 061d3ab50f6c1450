// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/mincut/device_cut.h"

#include <algorithm>
#include <cmath>

namespace kerf::partition {

DeviceCut::DeviceCut(const CutProblem& problem, double price)
    : flow_(problem.graph),
      price_(price),
      words_(static_cast<std::uint32_t>((problem.num_classes() + 63) / 64)),
      closed_(problem.graph.num_nodes(), 0),
      with_(problem.num_classes(), -kEndless),
      valid_(problem.num_classes(), 0),
      sides_(problem.num_classes() * words_, 0) {
  for (std::uint32_t c = 0; c < problem.num_classes(); ++c) {
    const double cost = price * static_cast<double>(problem.compute[c]);
    // Costs are rounded down, rewards up: the least cost is never too large.
    const auto rounded = static_cast<Flow>(std::floor(cost));
    if (rounded >= 0) {
      flow_.add_sink(c, rounded);
    } else {
      flow_.add_source(c, -rounded);
      offset_ += rounded;
    }
  }
}

void DeviceCut::hold(std::uint32_t c) {
  flow_.add_source(c, kEndless / 4);
  dirty_ = dirty_ || closed_[c] == 0;
  for (std::uint32_t u = 0; u < valid_.size(); ++u) {
    if (valid_[u] != 0 && !in_side(u, c)) valid_[u] = 0;
  }
}

void DeviceCut::forbid(std::uint32_t c) {
  flow_.add_sink(c, kEndless / 4);
  dirty_ = dirty_ || closed_[c] != 0;
  for (std::uint32_t u = 0; u < valid_.size(); ++u) {
    if (valid_[u] != 0 && in_side(u, c)) valid_[u] = 0;
  }
}

bool DeviceCut::settle(FlowScratch& scratch, Flow limit) {
  if (!dirty_) return least_ < limit;
  const bool reached = flow_.augment(scratch, limit - offset_);
  least_ = flow_.value() + offset_;
  if (reached) return false;
  for (std::uint32_t n = 0; n < closed_.size(); ++n) closed_[n] = scratch.reached(n) ? 1 : 0;
  dirty_ = false;
  return true;
}

void DeviceCut::keep_side(const FlowScratch& scratch, std::uint32_t test) {
  std::uint64_t* side = &sides_[test * words_];
  std::fill(side, side + words_, 0);
  for (std::uint32_t c = 0; c < with_.size(); ++c) {
    if (closed_[c] != 0) side[c / 64] |= std::uint64_t{1} << (c % 64);
  }
  for (const std::uint32_t n : scratch.queue) {
    if (n < with_.size()) side[n / 64] |= std::uint64_t{1} << (n % 64);
  }
}

bool DeviceCut::can_hold(FlowScratch& scratch, std::uint32_t c, Flow limit) {
  if (valid_[c] != 0 || with_[c] >= limit) return with_[c] < limit;
  if (!settle(scratch, limit)) return false;
  if (closed_[c] != 0) {
    scratch.queue.clear();
    with_[c] = least_;
  } else {
    flow_.mark();
    flow_.add_source(c, kEndless / 4);
    flow_.augment_from(scratch, c, closed_, limit - offset_);
    with_[c] = flow_.value() + offset_;
    flow_.undo();
  }
  if (with_[c] >= limit) return false;
  keep_side(scratch, c);
  valid_[c] = 1;
  return true;
}

}  // namespace kerf::partition
