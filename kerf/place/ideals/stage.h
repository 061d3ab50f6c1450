// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The load of one stage, kept up as groups join it.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/place/ideals/groups.h"

namespace kerf::place::ideals {

// A plan: `ends` rise to the number of groups; groups order[ends[s-1]] .. order[ends[s]-1] are
// stage s, on a device of class on[s].
struct Chain {
  std::vector<UnitId> order;
  std::vector<std::uint32_t> ends;
  std::vector<std::uint32_t> on;
  double load = kInfinity;  // the largest; infinite: no plan
};

// Sums of a stage. `load` may fall as the stage grows, when a net comes to lie inside it; the
// others cannot.
struct Sums {
  double load = 0;
  double time = 0;    // compute
  double shared = 0;  // nets it pays for whatever joins it
  double bytes = 0;
  double least() const { return time + shared; }
};

// What a stage pays for besides compute.
enum class Paying : std::uint8_t { nothing, host_staged, link };

// Host-staged: a stage pays for a net that it holds a part of. One that an earlier stage holds too
// can never lie inside it.
// Link: a stage pays for a net that it reads and another makes. Where an earlier one makes it, this
// stage never will. `before_` counts makers alone.
class StageNets {
 public:
  explicit StageNets(const Groups& groups)
      : groups_(groups),
        is_link_(groups.charging == Charging::link),
        in_stage_(groups.num_nets(), 0),
        before_(groups.num_nets(), 0) {
    num_pins_.reserve(groups.num_nets());
    for (NetId net{0}; net < groups.num_nets(); ++net) {
      num_pins_.push_back(static_cast<std::uint32_t>(groups.pins[net].size()));
    }
  }
  // Groups of earlier stages.
  void add_before(UnitId group) { change_before(group, 1); }
  void remove_before(UnitId group) { change_before(group, ~0U); }

  Paying paying(const DeviceClass& on) const {
    if (!on.pays) return Paying::nothing;
    return is_link_ ? Paying::link : Paying::host_staged;
  }
  // `kPaying` is paying(on): innermost loops ask once.
  template <Paying kPaying>
  Sums add(UnitId group, const DeviceClass& on, Sums sums) {
    const double time = on.time[group];
    sums.load += time;
    sums.time += time;
    sums.bytes += groups_.bytes[group];
    if constexpr (kPaying == Paying::host_staged) add_host_staged(group, sums);
    if constexpr (kPaying == Paying::link) add_link(group, sums);
    return sums;
  }
  template <Paying kPaying>
  void remove(UnitId group) {
    if constexpr (kPaying == Paying::nothing) return;
    for (const NetId net : groups_.nets[group]) {
      const bool makes = kPaying == Paying::link && groups_.source[net] == group;
      in_stage_[net] -= makes ? kMaker : 1;
    }
  }
  // Calls run.template operator()<paying>().
  template <class Run>
  auto with_paying(const DeviceClass& on, Run&& run) {
    switch (paying(on)) {
      case Paying::nothing: return run.template operator()<Paying::nothing>();
      case Paying::host_staged: return run.template operator()<Paying::host_staged>();
      default: return run.template operator()<Paying::link>();
    }
  }

 private:
  static constexpr std::uint32_t kMaker = 1U << 31;  // in in_stage_, with link

  void change_before(UnitId group, std::uint32_t by) {
    for (const NetId net : groups_.nets[group]) {
      if (!is_link_ || groups_.source[net] == group) before_[net] += by;
    }
  }
  void add_host_staged(UnitId group, Sums& sums) {
    for (const NetId net : groups_.nets[group]) {
      const std::uint32_t count = ++in_stage_[net];
      if (count == 1) {
        sums.load += groups_.cost[net];
        if (before_[net] > 0) sums.shared += groups_.cost[net];
      } else if (count == num_pins_[net]) {
        sums.load -= groups_.cost[net];
      }
    }
  }
  void add_link(UnitId group, Sums& sums) {
    for (const NetId net : groups_.nets[group]) {
      const std::uint32_t held = in_stage_[net];
      if (groups_.source[net] == group) {
        in_stage_[net] += kMaker;
        if (held > 0) sums.load -= groups_.cost[net];
        continue;
      }
      ++in_stage_[net];
      if (held > 0) continue;
      sums.load += groups_.cost[net];
      if (before_[net] > 0) sums.shared += groups_.cost[net];
    }
  }

  const Groups& groups_;
  bool is_link_;
  std::vector<std::uint32_t> num_pins_;
  std::vector<std::uint32_t> in_stage_;
  std::vector<std::uint32_t> before_;
};

}  // namespace kerf::place::ideals
