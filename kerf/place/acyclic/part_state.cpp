// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/part_state.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kerf::place::acyclic {

PartState::PartState(const Instance& level, const Goal& goal, std::span<const SlotId> part)
    : level_(level),
      goal_(goal),
      state_(level, part),
      time_(goal.parts(), 0),
      count_(goal.parts(), 0),
      timed_(goal.parts(), 0) {
  for (UnitId v{0}; v < level.num_units(); ++v) {
    time_[part[v]] += level.accelerator_time[v];
    ++count_[part[v]];
    if (level.accelerator_time[v] > 0) ++timed_[part[v]];
  }
  for (NetId net{0}; net < level.num_nets(); ++net) {
    cut_ += level.cost[net] * (state_.spread(net) - 1);
  }
}

double PartState::cut_change(UnitId v, SlotId to) const {
  double out = 0;
  for (const NetId net : level_.nets[v]) {
    if (state_.pins_on(net, part()[v]) == 1) out -= level_.cost[net];
    if (state_.pins_on(net, to) == 0) out += level_.cost[net];
  }
  return out;
}

void PartState::move(UnitId v, SlotId to) {
  const SlotId from = part()[v];
  const double time = level_.accelerator_time[v];
  cut_ += cut_change(v, to);
  time_[from] -= time;
  time_[to] += time;
  --count_[from];
  ++count_[to];
  if (time > 0) {
    --timed_[from];
    ++timed_[to];
  }
  state_.move(v, to);
}

bool PartState::is_at_border(UnitId v) const {
  return std::ranges::any_of(level_.nets[v], [&](NetId net) {
    return state_.pins_on(net, part()[v]) < level_.pins.length(net);
  });
}

PartState::Range PartState::range_of(UnitId v) const {
  Range out{SlotId{0}, SlotId{goal_.parts() - 1}};
  for (const UnitId u : level_.predecessors[v]) out.first = std::max(out.first, part()[u]);
  for (const UnitId u : level_.successors[v]) out.last = std::min(out.last, part()[u]);
  return out;
}

double PartState::memory_excess(SlotId p, double bytes) const {
  return bytes > level_.memory[p] ? (bytes - level_.memory[p]) / goal_.total_bytes : 0;
}

double PartState::time_excess(SlotId p, double time, std::uint32_t timed) const {
  return timed > 1 && time > goal_.limit[p] ? (time - goal_.limit[p]) / goal_.total_time : 0;
}

double PartState::memory_excess_change(UnitId v, SlotId to) const {
  if (!goal_.memory_binds) return 0;
  const SlotId from = part()[v];
  const double bytes = level_.bytes[v];
  return memory_excess(from, state_.bytes(from) - bytes) - memory_excess(from, state_.bytes(from)) +
         memory_excess(to, state_.bytes(to) + bytes) - memory_excess(to, state_.bytes(to));
}

double PartState::time_excess_change(UnitId v, SlotId to) const {
  const double time = level_.accelerator_time[v];
  if (!goal_.is_cut() || time <= 0) return 0;
  const SlotId from = part()[v];
  return time_excess(from, time_[from] - time, timed_[from] - 1) -
         time_excess(from, time_[from], timed_[from]) +
         time_excess(to, time_[to] + time, timed_[to] + 1) - time_excess(to, time_[to], timed_[to]);
}

Score PartState::score() const {
  Score out;
  for (SlotId p{0}; p < goal_.parts(); ++p) {
    out.memory += memory_excess(p, state_.bytes(p));
    out.time += time_excess(p, time_[p], timed_[p]);
    if (goal_.is_cut() && count_[p] == 0) out.empty += 1;
  }
  out.value = cut_;
  out.second = largest_load();
  if (!goal_.is_cut()) std::swap(out.value, out.second);
  return out;
}

}  // namespace kerf::place::acyclic
