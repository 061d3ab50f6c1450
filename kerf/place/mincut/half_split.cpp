// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Conclusions from a half-made split (minimum cuts, balance of compute, counts of large units),
// drawn until none is left. Each removes only what no split below the limit does.
#include "kerf/place/mincut/half_split.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kerf::place {
namespace {

// The least of each crowd of sizes alike, ascending. More than 16 on a device are not counted.
std::vector<Flow> sizes_to_count(const CutNetwork& network, Flow limit) {
  std::vector<Flow> sizes;
  for (const Flow size : network.compute) {
    if (size * 16 > limit) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  std::vector<Flow> out;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (i == 0 || sizes[i] > sizes[i - 1] + sizes[i - 1] / 50) out.push_back(sizes[i]);
  }
  return out;
}

}  // namespace

HalfSplit::HalfSplit(const CutNetwork& network, Flow limit, FlowScratch& scratch)
    : network_(&network),
      domain_(network.num_units(), 0),
      placed_(network.num_units(), kNowhere),
      num_open_(network.num_units()) {
  sizes_ = sizes_to_count(network, limit);
  for (const DeviceKind& kind : network.kinds) {
    const std::uint32_t bit = kind.pays ? num_slots() : kCpu;
    for (UnitId t{0}; t < network.num_units(); ++t) {
      if (kind.holds[t] != 0) domain_[t] |= std::uint64_t{1} << bit;
    }
    if (kind.pays) {
      add_slot(kind, limit, scratch);
    } else {
      cpu_kind_ = &kind;
    }
  }
}

void HalfSplit::add_slot(const DeviceKind& kind, Flow limit, FlowScratch& scratch) {
  std::vector<Hold> hold(network_->num_units(), Hold::open);
  DeviceCut load(*network_, kind, 0);
  for (UnitId t{0}; t < network_->num_units(); ++t) {
    if (kind.holds[t] != 0) continue;
    hold[t] = Hold::elsewhere;
    load.forbid(t);
  }
  DeviceCut share = tune_reward(*network_, kind, hold, limit, scratch);
  slots_.push_back({&kind, std::move(load), std::move(share), std::move(hold),
                    static_cast<std::int64_t>(kind.devices.size())});
}

// The empty slot becomes one that holds something; the others that it stood for get a new one.
void HalfSplit::open_slot(std::uint32_t slot) {
  if (slots_[slot].copies > 1) {
    Slot others = slots_[slot];
    --others.copies;
    ++others.place;
    for (std::uint64_t& devices : domain_) {
      if ((devices >> slot & 1U) != 0) devices |= std::uint64_t{1} << num_slots();
    }
    slots_.push_back(std::move(others));
  }
  slots_[slot].copies = 1;
  slots_[slot].used = true;
}

bool HalfSplit::forbid(UnitId t, std::uint32_t device) {
  domain_[t] &= ~(std::uint64_t{1} << device);
  if (device != kCpu) {
    Slot& slot = slots_[device];
    slot.load.forbid(t);
    slot.share.forbid(t);
    slot.hold[t] = Hold::elsewhere;
  }
  return domain_[t] != 0;
}

bool HalfSplit::assign(UnitId t, std::uint32_t device) {
  if (device != kCpu && !slots_[device].used) open_slot(device);
  for (std::uint32_t d = 0; d < num_slots(); ++d) {
    if (d != device && may(t, d)) forbid(t, d);
  }
  domain_[t] = std::uint64_t{1} << device;
  placed_[t] = device;
  --num_open_;
  if (device == kCpu) {
    cpu_ += cpu_kind_->time[t];
    cpu_compute_ += network_->compute[t];
    cpu_bytes_ += network_->instance->bytes[t];
    return cpu_kind_->has_room(cpu_bytes_);
  }
  Slot& slot = slots_[device];
  slot.tune = slot.tune || slot.time == 0;  // its reward was that of an empty device
  slot.load.hold(t);
  slot.share.hold(t);
  slot.hold[t] = Hold::here;
  slot.time += slot.kind->time[t];
  slot.bytes += network_->instance->bytes[t];
  return slot.kind->has_room(slot.bytes);
}

// Is there room for all open units, cut as needed?
bool HalfSplit::has_memory() const {
  double wanted = 0;
  for (UnitId t{0}; t < placed_.size(); ++t) {
    if (placed_[t] == kNowhere) wanted += network_->instance->bytes[t];
  }
  double room = cpu_kind_ != nullptr ? cpu_kind_->memory - cpu_bytes_ : 0;
  double all = cpu_kind_ != nullptr ? cpu_kind_->memory : 0;
  for (const Slot& slot : slots_) {
    room += (slot.kind->memory - slot.bytes) * static_cast<double>(slot.copies);
    all += slot.kind->memory * static_cast<double>(slot.copies);
  }
  return std::isinf(all) || wanted <= room + 1e-9 * all;
}

bool HalfSplit::settle_all(Flow limit, FlowScratch& scratch) {
  return std::all_of(slots_.begin(), slots_.end(),
                     [&](Slot& slot) { return slot.load.settle(scratch, limit); });
}

bool HalfSplit::can_be_on(UnitId t, std::uint32_t device, Flow limit, FlowScratch& scratch) {
  const double bytes = network_->instance->bytes[t];
  if (device == kCpu) {
    return cpu_ + cpu_kind_->time[t] < limit && cpu_kind_->has_room(cpu_bytes_ + bytes);
  }
  Slot& slot = slots_[device];
  if (!slot.kind->has_room(slot.bytes + bytes)) return false;
  if (!slot.load.can_hold(scratch, t, limit)) return false;
  if (slot.least_compute <= 0) return true;
  // load = cost + reward * compute, and the others leave it at least so much compute.
  const double extra = slot.share.reward() * static_cast<double>(slot.least_compute);
  const Flow left = limit - static_cast<Flow>(extra * (1 - 1e-12)) + 1;
  return slot.share.can_hold(scratch, t, left);
}

bool HalfSplit::test_unit(UnitId t, Flow limit, FlowScratch& scratch, bool& changed) {
  if (domain_[t] == 0) return false;  // no device has the memory for it
  for (std::uint64_t left = domain_[t]; left != 0; left &= left - 1) {
    const auto device = static_cast<std::uint32_t>(std::countr_zero(left));
    if (can_be_on(t, device, limit, scratch)) continue;
    changed = true;
    if (!forbid(t, device)) return false;
  }
  if (std::popcount(domain_[t]) > 1) return true;
  changed = true;
  return assign(t, static_cast<std::uint32_t>(std::countr_zero(domain_[t])));
}

bool HalfSplit::propagate(Flow limit, FlowScratch& scratch, SearchBudget& budget) {
  for (bool changed = true; changed;) {
    changed = false;
    if (cpu_ >= limit || !has_memory() || !settle_all(limit, scratch)) return false;
    for (UnitId t{0}; t < placed_.size(); ++t) {
      if (placed_[t] != kNowhere) continue;
      if (budget.spent(scratch.steps)) return true;
      if (!test_unit(t, limit, scratch, changed)) return false;
    }
    if (changed) continue;
    if (!count_large(limit, changed)) return false;
    if (!changed && !balance(limit, scratch, changed)) return false;
  }
  return true;
}

// Compute that the CPU can take off the accelerators, units cut as needed.
Flow HalfSplit::most_on_cpu(Flow limit) const {
  std::vector<UnitId> open;
  for (UnitId t{0}; t < placed_.size(); ++t) {
    if (placed_[t] == kNowhere && may(t, kCpu)) open.push_back(t);
  }
  const auto gain = [&](UnitId t) {
    return static_cast<double>(network_->compute[t]) /
           (static_cast<double>(cpu_kind_->time[t]) + 1e-9);
  };
  std::sort(open.begin(), open.end(), [&](UnitId a, UnitId b) { return gain(a) > gain(b); });
  Flow room = limit - cpu_;
  Flow most = cpu_compute_;
  for (const UnitId t : open) {
    if (cpu_kind_->time[t] >= room) {
      return most + static_cast<Flow>(gain(t) * static_cast<double>(room)) + 1;
    }
    room -= cpu_kind_->time[t];
    most += network_->compute[t];
  }
  return most;
}

// What the devices can hold at most must cover all compute; what the others cannot is left to each.
bool HalfSplit::balance(Flow limit, FlowScratch& scratch, bool& changed) {
  std::vector<Flow> most;
  Flow all = most_on_cpu(limit);
  for (std::uint32_t d = 0; d < num_slots(); ++d) {
    Slot& slot = slots_[d];
    if (slot.tune) {
      slot.share = tune_reward(*network_, *slot.kind, slot.hold, limit, scratch);
      slot.tune = false;
    }
    slot.share.settle(scratch, kEndless / 8);
    Flow allowed = 0;
    for (UnitId t{0}; t < slot.hold.size(); ++t) {
      if (slot.hold[t] != Hold::elsewhere) allowed += network_->compute[t];
    }
    most.push_back(std::min(allowed, most_compute(slot.share, limit)));
    all += most.back() * slot.copies;
  }
  if (all < network_->total_compute) return false;
  for (std::uint32_t d = 0; d < num_slots(); ++d) {
    const Flow least = network_->total_compute - (all - most[d]);
    if (least > slots_[d].least_compute) {
      slots_[d].least_compute = least;
      for (UnitId t{0}; t < placed_.size(); ++t) {
        if (placed_[t] != kNowhere || !may(t, d) || can_be_on(t, d, limit, scratch)) continue;
        changed = true;
        if (!forbid(t, d)) return false;
      }
    }
  }
  return true;
}

std::size_t HalfSplit::num_bytes() const {
  std::size_t bytes = domain_.size() * 16;
  for (const Slot& slot : slots_) bytes += slot.load.num_bytes() + slot.share.num_bytes();
  return bytes;
}

Split HalfSplit::devices() const {
  Split out;
  for (const std::uint32_t slot : placed_) {
    const DeviceKind& kind = slot == kCpu ? *cpu_kind_ : *slots_[slot].kind;
    out.push_back(kind.devices[slot == kCpu ? 0 : slots_[slot].place]);
  }
  return out;
}

std::vector<HalfSplit::Choice> HalfSplit::choices_of(UnitId t) const {
  std::vector<Choice> choices;
  if (may(t, kCpu)) choices.push_back({t, kCpu, true, cpu_kind_->time[t]});
  for (std::uint32_t d = 0; d < num_slots(); ++d) {
    const DeviceCut& load = slots_[d].load;
    if (may(t, d)) choices.push_back({t, d, true, load.least_with(t) - load.least()});
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& a, const Choice& b) { return a.rise < b.rise; });
  return choices;
}

std::vector<HalfSplit::Choice> HalfSplit::find_branch(Flow limit) const {
  const Slot* fullest = nullptr;
  for (const Slot& slot : slots_) {
    if (!slot.used || !slot.smallest.valid()) continue;
    if (!fullest || slot.least_counted > fullest->least_counted) fullest = &slot;
  }
  if (fullest && is_tight(limit - fullest->least_counted, limit)) {
    const auto device = static_cast<std::uint32_t>(fullest - slots_.data());
    return {{fullest->smallest, device, true, 0}, {fullest->smallest, device, false, 0}};
  }
  if (crowded_.valid()) return choices_of(crowded_);
  std::vector<Choice> best;
  for (UnitId t{0}; t < placed_.size(); ++t) {
    if (placed_[t] != kNowhere) continue;
    std::vector<Choice> choices = choices_of(t);
    if (best.empty() || choices.front().rise > best.front().rise) best = std::move(choices);
  }
  return best;
}

}  // namespace kerf::place
