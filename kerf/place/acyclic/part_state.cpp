// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/part_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kerf::place::acyclic {

PartState::PartState(const Level& level, const Goal& goal, Numbers part)
    : level_(level),
      goal_(goal),
      part_(std::move(part)),
      time_(goal.parts(), 0),
      bytes_(goal.parts(), 0),
      transfer_(goal.parts(), 0),
      count_(goal.parts(), 0),
      timed_(goal.parts(), 0),
      spread_(level.num_nets(), 0) {
  for (std::uint32_t v = 0; v < level.size(); ++v) {
    time_[part_[v]] += level.time[v];
    bytes_[part_[v]] += level.bytes[v];
    ++count_[part_[v]];
    if (level.time[v] > 0) ++timed_[part_[v]];
  }
  first_slot_.reserve(level.num_nets());
  std::size_t slots = 0;
  for (std::uint32_t net = 0; net < level.num_nets(); ++net) {
    first_slot_.push_back(slots);
    slots += std::min<std::size_t>(goal.parts(), level.pins[net].size());
  }
  slots_.resize(slots);
  for (std::uint32_t net = 0; net < level.num_nets(); ++net) {
    for (const std::uint32_t pin : level.pins[net]) enter(net, part_[pin]);
  }
  charge_all();
}

void PartState::charge_all() {
  for (std::uint32_t net = 0; net < level_.num_nets(); ++net) {
    if (spread_[net] < 2) continue;
    cut_ += level_.cost[net] * (spread_[net] - 1);
    const std::uint32_t home = part_[level_.source[net]];
    for (std::uint32_t i = 0; i < spread_[net]; ++i) {
      const std::uint32_t p = slots_[first_slot_[net] + i].part;
      if (p == home && goal_.charging == Charging::link) continue;
      transfer_[p] += level_.cost[net];
    }
  }
}

std::uint32_t PartState::pins_in(std::uint32_t net, std::uint32_t part) const {
  const Slot* slot = slots_.data() + first_slot_[net];
  for (std::uint32_t i = 0; i < spread_[net]; ++i) {
    if (slot[i].part == part) return slot[i].pins;
  }
  return 0;
}

void PartState::enter(std::uint32_t net, std::uint32_t part) {
  Slot* slot = slots_.data() + first_slot_[net];
  for (std::uint32_t i = 0; i < spread_[net]; ++i) {
    if (slot[i].part == part) {
      ++slot[i].pins;
      return;
    }
  }
  slot[spread_[net]++] = {part, 1};
}

void PartState::leave(std::uint32_t net, std::uint32_t part) {
  Slot* slot = slots_.data() + first_slot_[net];
  std::uint32_t i = 0;
  while (slot[i].part != part) ++i;
  if (--slot[i].pins == 0) slot[i] = slot[--spread_[net]];
}

PartState::Change PartState::change_of_net(std::uint32_t net, std::uint32_t v,
                                           std::uint32_t to) const {
  const std::uint32_t from = part_[v];
  const std::uint32_t in_from = pins_in(net, from);
  const std::uint32_t in_to = pins_in(net, to);
  const double cost = level_.cost[net];
  const bool leaves = in_from == 1;
  const bool enters = in_to == 0;
  const auto pays = [&](bool before, bool after) {
    return (after ? cost : 0) - (before ? cost : 0);
  };
  Change out;
  out.cut = pays(leaves, enters);
  if (goal_.charging == Charging::host_staged) {
    const bool before = spread_[net] > 1;
    const bool after = spread_[net] + (enters ? 1U : 0U) - (leaves ? 1U : 0U) > 1;
    out.from = pays(before, after && !leaves);
    out.to = pays(before && !enters, after);
  } else if (level_.source[net] == v) {
    out.from = pays(false, !leaves);
    out.to = pays(!enters, false);
  } else {
    const std::uint32_t home = part_[level_.source[net]];
    out.from = pays(home != from, home != from && !leaves);
    out.to = pays(home != to && !enters, home != to);
  }
  return out;
}

PartState::Change PartState::change_of(std::uint32_t v, std::uint32_t to) const {
  Change out;
  for (const std::uint32_t net : level_.nets[v]) {
    const Change change = change_of_net(net, v, to);
    out.cut += change.cut;
    out.from += change.from;
    out.to += change.to;
  }
  return out;
}

void PartState::move(std::uint32_t v, std::uint32_t to) {
  const std::uint32_t from = part_[v];
  const Change change = change_of(v, to);
  cut_ += change.cut;
  transfer_[from] += change.from;
  transfer_[to] += change.to;
  time_[from] -= level_.time[v];
  time_[to] += level_.time[v];
  bytes_[from] -= level_.bytes[v];
  bytes_[to] += level_.bytes[v];
  --count_[from];
  ++count_[to];
  if (level_.time[v] > 0) {
    --timed_[from];
    ++timed_[to];
  }
  for (const std::uint32_t net : level_.nets[v]) {
    leave(net, from);
    enter(net, to);
  }
  part_[v] = to;
}

PartState::Range PartState::range_of(std::uint32_t v) const {
  Range out{0, goal_.parts() - 1};
  for (const std::uint32_t u : level_.predecessors[v]) out.first = std::max(out.first, part_[u]);
  for (const std::uint32_t u : level_.successors[v]) out.last = std::min(out.last, part_[u]);
  return out;
}

double PartState::largest_load() const {
  double out = 0;
  for (std::uint32_t p = 0; p < goal_.parts(); ++p) out = std::max(out, load(p));
  return out;
}

double PartState::memory_excess(std::uint32_t p, double bytes) const {
  return bytes > goal_.memory[p] ? (bytes - goal_.memory[p]) / goal_.total_bytes : 0;
}

double PartState::time_excess(std::uint32_t p, double time, std::uint32_t timed) const {
  return timed > 1 && time > goal_.limit[p] ? (time - goal_.limit[p]) / goal_.total_time : 0;
}

double PartState::memory_excess_change(std::uint32_t v, std::uint32_t to) const {
  if (!goal_.memory_binds) return 0;
  const std::uint32_t from = part_[v];
  const double bytes = level_.bytes[v];
  return memory_excess(from, bytes_[from] - bytes) - memory_excess(from, bytes_[from]) +
         memory_excess(to, bytes_[to] + bytes) - memory_excess(to, bytes_[to]);
}

double PartState::time_excess_change(std::uint32_t v, std::uint32_t to) const {
  const double time = level_.time[v];
  if (!goal_.is_cut() || time <= 0) return 0;
  const std::uint32_t from = part_[v];
  return time_excess(from, time_[from] - time, timed_[from] - 1) -
         time_excess(from, time_[from], timed_[from]) +
         time_excess(to, time_[to] + time, timed_[to] + 1) - time_excess(to, time_[to], timed_[to]);
}

Score PartState::score() const {
  Score out;
  for (std::uint32_t p = 0; p < goal_.parts(); ++p) {
    out.memory += memory_excess(p, bytes_[p]);
    out.time += time_excess(p, time_[p], timed_[p]);
    if (goal_.is_cut() && count_[p] == 0) out.empty += 1;
  }
  out.value = cut_;
  out.second = largest_load();
  if (!goal_.is_cut()) std::swap(out.value, out.second);
  return out;
}

}  // namespace kerf::place::acyclic
