// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/figures.h"

#include <algorithm>

#include "kerf/base/count_up.h"

namespace kerf::place::ideals {
namespace {

// What a stage that pays for nets saves at least when it loses the group.
std::vector<double> least_times(const Groups& groups) {
  std::vector<double> out(groups.num_units(), kInfinity);
  for (const DeviceClass& device : groups.classes) {
    if (!device.pays) continue;
    for (UnitId g{0}; g < groups.num_units(); ++g) out[g] = std::min(out[g], device.time[g]);
  }
  return out;
}

// How a group changes what it costs to cut after an ideal.
struct Change {
  double opened = 0;  // nets that the rest of its stage comes to pay for
  double closed = 0;  // nets that nobody after it pays for
};

Change host_staged_change(const Groups& groups, const std::vector<std::uint32_t>& inside,
                          UnitId group) {
  Change out;
  for (const NetId net : groups.nets[group]) {
    if (inside[net] == 0) out.opened += groups.cost[net];
    if (inside[net] + 1 == groups.pins[net].size()) out.closed += groups.cost[net];
  }
  return out;
}

constexpr std::uint32_t kMaker = 1U << 31;  // in inside, with link: the maker is inside

Change link_change(const Groups& groups, const std::vector<std::uint32_t>& inside, UnitId group) {
  Change out;
  for (const NetId net : groups.nets[group]) {
    const bool makes = groups.source[net] == group;
    const std::size_t readers = inside[net] & ~kMaker;
    const std::size_t all_readers = groups.pins[net].size() - 1;
    if (makes && readers < all_readers) out.opened += groups.cost[net];
    const bool is_last = !makes && readers + 1 == all_readers && (inside[net] & kMaker) != 0;
    if (is_last) out.closed += groups.cost[net];
  }
  return out;
}

}  // namespace

IdealFigures::IdealFigures(const Groups& groups, const Lattice& lattice, StepClock& clock)
    : accelerator_time(lattice.size(), 0), is_better_start(lattice.num_links(), false) {
  const bool is_link = groups.charging == Charging::link;
  const std::vector<double> least_time = least_times(groups);
  std::vector<std::uint32_t> inside(groups.num_nets(), 0);
  Walker walker(lattice);
  const auto weight = [&](UnitId group, NetId net) {
    return is_link && groups.source[net] == group ? kMaker : 1U;
  };
  const auto add = [&](UnitId group) {
    for (const NetId net : groups.nets[group]) inside[net] += weight(group, net);
  };
  const auto remove = [&](UnitId group) {
    for (const NetId net : groups.nets[group]) inside[net] -= weight(group, net);
  };
  for (std::uint32_t ideal = 0; ideal < lattice.size(); ++ideal) {
    walker.move_to(ideal, remove, add);
    std::size_t at = lattice.first_link(ideal);
    for (const Link& link : lattice.links(ideal)) {
      const Change change = is_link ? link_change(groups, inside, link.group)
                                    : host_staged_change(groups, inside, link.group);
      is_better_start[at++] = change.opened <= least_time[link.group] + change.closed;
      accelerator_time[link.to] = accelerator_time[ideal] + groups.accelerator_time[link.group];
      if (clock.is_late_after(1 + groups.nets[link.group].size())) return;
    }
  }
}

Capacity::Capacity(const Groups& groups)
    : groups_(groups),
      total_(groups.total_accelerator_time()),
      slack_(1e-9 * total_),
      of_class_(groups.classes.size(), 0) {
  const double slowness = groups.greatest_slowness();
  for (const double cost : groups.cost) slack_ += 1e-12 * cost / slowness;
  if (groups.has_cpu()) compute_ = by_rate(groups.accelerator_time, groups.classes.back().time);
}

Capacity::Items Capacity::by_rate(const std::vector<double>& gain,
                                  const std::vector<double>& time) {
  std::vector<UnitId> order = count_up<UnitId>(gain.size());
  std::vector<double> rate;
  for (std::size_t g = 0; g < gain.size(); ++g) {
    rate.push_back(time[g] > 0 ? gain[g] / time[g] : kInfinity);
  }
  std::sort(order.begin(), order.end(),
            [&](UnitId a, UnitId b) { return rate[a] != rate[b] ? rate[a] > rate[b] : a < b; });
  Items out;
  for (const UnitId g : order) {
    out.gain.push_back(gain[g]);
    out.time.push_back(time[g]);
  }
  return out;
}

// Fractional knapsack.
double Capacity::fill(const Items& items, double room) {
  double total = 0;
  for (std::size_t i = 0; i < items.gain.size(); ++i) {
    if (items.time[i] > room) return total + items.gain[i] * (room / items.time[i]);
    room -= items.time[i];
    total += items.gain[i];
  }
  return total;
}

double Capacity::max_shared(std::size_t device_class, double time, double left) const {
  const DeviceClass& device = groups_.classes[device_class];
  if (device.is_cpu) return kInfinity;
  const double must_take = time - (left - of(device_class)) - slack_;
  return limit_ - device.slowness * must_take;
}

void Capacity::set_limit(double limit) {
  limit_ = limit;
  for (std::size_t c = 0; c < of_class_.size(); ++c) {
    const DeviceClass& device = groups_.classes[c];
    const double fits = device.slowness > 0 ? limit / device.slowness : kInfinity;
    of_class_[c] = device.is_cpu ? fill(compute_, limit) : fits;
  }
}

}  // namespace kerf::place::ideals
