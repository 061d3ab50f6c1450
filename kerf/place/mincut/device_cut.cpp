// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/mincut/device_cut.h"

#include <algorithm>
#include <cmath>

namespace kerf::place {

namespace {

// Rounded down, and so that what doubles lose does not round it up: the least cost is never too
// large.
Flow cost_of(Flow time, Flow compute, double reward) {
  if (reward == 0) return time;
  const double rewarded = reward * static_cast<double>(compute);
  const double lost = 0x1p-5 + (static_cast<double>(time) + rewarded) * 0x1p-51;
  return static_cast<Flow>(std::floor(static_cast<double>(time) - rewarded - lost));
}

}  // namespace

DeviceCut::DeviceCut(const CutNetwork& network, const DeviceKind& kind, double reward)
    : flow_(network.graph),
      reward_(reward),
      words_((network.num_units() + 63) / 64),
      closed_(network.graph.num_nodes(), 0),
      closed_side_(words_, 0),
      with_(network.num_units(), -kEndless),
      valid_(network.num_units(), 0),
      sides_(std::size_t{network.num_units()} * words_, 0) {
  for (UnitId t{0}; t < network.num_units(); ++t) {
    const Flow cost = cost_of(kind.time[t], network.compute[t], reward);
    if (cost >= 0) {
      flow_.add_sink(t, cost);
    } else {
      flow_.add_source(t, -cost);
      offset_ += cost;
    }
  }
}

void DeviceCut::hold(UnitId t) {
  flow_.add_source(t, kEndless / 4);
  dirty_ = dirty_ || closed_[t] == 0;
  for (UnitId u{0}; u < valid_.size(); ++u) {
    if (valid_[u] != 0 && !in_side(u, t)) valid_[u] = 0;
  }
}

void DeviceCut::forbid(UnitId t) {
  flow_.add_sink(t, kEndless / 4);
  dirty_ = dirty_ || closed_[t] != 0;
  for (UnitId u{0}; u < valid_.size(); ++u) {
    if (valid_[u] != 0 && in_side(u, t)) valid_[u] = 0;
  }
}

bool DeviceCut::settle(FlowScratch& scratch, Flow limit) {
  if (!dirty_) return least_ < limit;
  const bool reached = flow_.augment(scratch, limit - offset_);
  least_ = flow_.value() + offset_;
  if (reached) return false;
  if (scratch.stopped) return least_ < limit;
  std::fill(closed_side_.begin(), closed_side_.end(), 0);
  for (std::uint32_t n = 0; n < closed_.size(); ++n) {
    closed_[n] = scratch.reached(n) ? 1 : 0;
    if (closed_[n] != 0 && n < with_.size()) closed_side_[n / 64] |= std::uint64_t{1} << (n % 64);
  }
  dirty_ = false;
  return true;
}

void DeviceCut::keep_side(const FlowScratch& scratch, std::uint32_t test) {
  std::uint64_t* side = &sides_[test * words_];
  std::copy(closed_side_.begin(), closed_side_.end(), side);
  for (const std::uint32_t n : scratch.queue) {
    if (n < with_.size()) side[n / 64] |= std::uint64_t{1} << (n % 64);
  }
}

bool DeviceCut::can_hold(FlowScratch& scratch, UnitId t, Flow limit) {
  if (valid_[t] != 0 || with_[t] >= limit) return with_[t] < limit;
  if (!settle(scratch, limit)) return false;
  if (dirty_) return true;  // out of budget
  if (closed_[t] != 0) {
    scratch.queue.clear();
    scratch.stopped = false;
    with_[t] = least_;
  } else {
    flow_.mark();
    flow_.add_source(t, kEndless / 4);
    flow_.augment_from(scratch, t, closed_, limit - offset_);
    with_[t] = flow_.value() + offset_;
    flow_.undo();
  }
  if (with_[t] >= limit) return false;
  if (scratch.stopped) return true;
  keep_side(scratch, t);
  valid_[t] = 1;
  return true;
}

}  // namespace kerf::place
