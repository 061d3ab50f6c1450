// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Where communication is nearly free the question is bin packing, and minimum cuts say little.
// Counting says more: a device holds only so many large units, hence each must hold at least what
// the others cannot, and what sits beside them has to fit.
#include <algorithm>

#include "kerf/place/mincut/half_split.h"

namespace kerf::place {
namespace {

// How many of `ascending` stay below `room` together: the smallest do best.
struct Fill {
  std::int64_t count = 0;
  Flow room = 0;  // left
};
Fill most_below(const std::vector<Flow>& ascending, Flow room) {
  Fill fill{0, room};
  for (const Flow time : ascending) {
    if (time >= fill.room) break;
    fill.room -= time;
    ++fill.count;
  }
  return fill;
}

}  // namespace

// Of the open units of at least this size that may go there, the times there, ascending.
std::vector<Flow> HalfSplit::open_large(Flow least, std::uint32_t device) const {
  const DeviceKind& kind = device == kCpu ? *cpu_kind_ : *slots_[device].kind;
  std::vector<Flow> times;
  times.reserve(placed_.size());
  for (const UnitId t : network_->by_compute) {
    if (placed_[t] != kNowhere || network_->compute[t] < least || !may(t, device)) continue;
    times.push_back(kind.time[t]);
  }
  if (!std::is_sorted(times.begin(), times.end())) std::sort(times.begin(), times.end());
  return times;
}

// The smallest open unit of at least this size, of those that may go to `device` if one is named.
UnitId HalfSplit::smallest_open(Flow least, std::uint32_t device) const {
  UnitId smallest;
  Flow size = kEndless;
  for (UnitId t{0}; t < placed_.size(); ++t) {
    const bool open = placed_[t] == kNowhere && (device == kNowhere || may(t, device));
    if (!open || network_->compute[t] < least || network_->compute[t] >= size) continue;
    size = network_->compute[t];
    smallest = t;
  }
  return smallest;
}

// Forbids what does not fit next to `wanted` more large units.
bool HalfSplit::crowd_out(Flow least, std::uint32_t device, std::int64_t wanted, Flow limit,
                          bool& changed) {
  const std::vector<Flow> large = open_large(least, device);
  const Slot& slot = slots_[device];
  Flow smallest = slot.time;
  for (std::int64_t i = 0; i < wanted; ++i) smallest += large[static_cast<std::size_t>(i)];
  if (smallest >= limit) return false;
  if (smallest > slots_[device].least_counted) {
    slots_[device].least_counted = smallest;
    slots_[device].smallest = smallest_open(least, device);
  }
  const auto count = static_cast<std::size_t>(wanted);
  const Flow last = large[count - 1];
  const Flow next = count < large.size() ? large[count] : kEndless;
  for (UnitId t{0}; t < placed_.size(); ++t) {
    if (placed_[t] != kNowhere || !may(t, device)) continue;
    const Flow size = slot.kind->time[t];
    const bool large_too = network_->compute[t] >= least;
    // A large one takes the place of the last wanted, or is among them.
    const Flow with = large_too ? smallest + std::max<Flow>(0, size - last) : smallest + size;
    const bool wanted_here = slot.copies == 1 && large_too && size <= last;
    if (with < limit && !(wanted_here && smallest - size + next >= limit)) continue;
    changed = true;
    // Out: too large beside the rest. In: without it the rest is too large.
    if (with < limit) return assign(t, device);
    if (!forbid(t, device)) return false;
  }
  return true;
}

bool HalfSplit::count_from(Flow least, Flow limit, bool& changed) {
  std::int64_t total = 0;
  std::vector<std::int64_t> held(num_slots(), 0);
  std::int64_t in_all = 0;
  for (UnitId t{0}; t < placed_.size(); ++t) {
    if (network_->compute[t] < least) continue;
    ++total;
    if (placed_[t] == kCpu) ++in_all;
    if (placed_[t] < num_slots()) ++held[placed_[t]];
  }
  if (cpu_kind_ != nullptr) in_all += most_below(open_large(least, kCpu), limit - cpu_).count;
  std::vector<std::int64_t> most;
  std::int64_t at_ease = in_all;  // no device all but full
  for (std::uint32_t d = 0; d < num_slots(); ++d) {
    const Slot& slot = slots_[d];
    const Fill fill = most_below(open_large(least, d), limit - slot.time);
    most.push_back(held[d] + fill.count);
    in_all += most[d] * slot.copies;
    at_ease += (most[d] - (fill.count > 0 && is_tight(fill.room, limit) ? 1 : 0)) * slot.copies;
  }
  if (in_all < total) return false;
  if (at_ease < total && !crowded_.valid()) crowded_ = smallest_open(least);
  for (std::uint32_t d = 0; d < num_slots(); ++d) {
    const std::int64_t wanted = total - (in_all - most[d]) - held[d];
    if (wanted > 0 && !crowd_out(least, d, wanted, limit, changed)) return false;
    if (changed) return true;  // the counts are stale
  }
  return true;
}

bool HalfSplit::count_large(Flow limit, bool& changed) {
  crowded_ = {};
  for (Slot& slot : slots_) {
    slot.least_counted = 0;
    slot.smallest = {};
  }
  return std::all_of(sizes_.begin(), sizes_.end(),
                     [&](Flow least) { return changed || count_from(least, limit, changed); });
}

}  // namespace kerf::place
