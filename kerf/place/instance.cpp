// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/instance.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kerf/base/count_up.h"
#include "kerf/base/error.h"
#include "kerf/base/sort_unique.h"

namespace kerf::place {
namespace {

bool all_equal(std::span<const double> figures) {
  return std::adjacent_find(figures.begin(), figures.end(), std::not_equal_to<>()) == figures.end();
}

}  // namespace

bool Devices::has_equal_speeds() const { return all_equal(slowness); }

bool Devices::has_equal_accelerators() const {
  return has_equal_speeds() && all_equal(std::span(memory).first(cpu));
}

void Unit::join(const Unit& other) {
  accelerator_time += other.accelerator_time;
  cpu_time += other.cpu_time;
  bytes += other.bytes;
  on_accelerator = on_accelerator && other.on_accelerator;
  on_cpu = on_cpu && other.on_cpu;
}

double Instance::total_accelerator_time() const {
  return std::accumulate(accelerator_time.begin(), accelerator_time.end(), 0.0);
}

InstanceBuilder::InstanceBuilder(Devices devices) {
  static_cast<Devices&>(out_) = std::move(devices);
  KERF_CHECK(out_.num_devices == out_.cpu || out_.num_devices == out_.cpu + 1,
             "devices that are neither accelerators nor the CPU");
  KERF_CHECK(out_.slowness.size() == out_.cpu && out_.memory.size() == out_.num_devices,
             "a device without its slowness or memory");
}

void InstanceBuilder::add_unit(const Unit& unit) {
  out_.accelerator_time.push_back(unit.accelerator_time);
  out_.cpu_time.push_back(unit.cpu_time);
  out_.bytes.push_back(unit.bytes);
  out_.on_accelerator.push_back(unit.on_accelerator ? 1 : 0);
  out_.on_cpu.push_back(unit.on_cpu ? 1 : 0);
}

void InstanceBuilder::add_net(double cost, UnitId source, std::span<const UnitId> pins) {
  if (!(cost > 0)) return;
  row_.assign(pins.begin(), pins.end());
  row_.push_back(source);
  sort_unique(row_);
  if (row_.size() < 2) return;
  pins_.append(row_);
  source_.push_back(source);
  cost_.push_back(cost);
}

// Who makes a tensor counts only where the maker pays otherwise than the others.
void InstanceBuilder::add_nets() {
  const bool by_source = out_.charging == Charging::link;
  std::vector<NetId> sorted = count_up<NetId>(cost_.size());
  const auto is_before = [&](NetId a, NetId b) {
    const auto left = pins_[a];
    const auto right = pins_[b];
    if (left.front() != right.front()) return left.front() < right.front();
    const auto order = std::lexicographical_compare_three_way(left.begin(), left.end(),
                                                              right.begin(), right.end());
    if (order != 0) return order < 0;
    return by_source && source_[a] < source_[b];
  };
  std::stable_sort(sorted.begin(), sorted.end(), is_before);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const NetId net = sorted[i];
    if (i > 0 && !is_before(sorted[i - 1], net)) {
      out_.cost.back() += cost_[net];
      continue;
    }
    KERF_CHECK(pins_[net].back() < out_.num_units(), "a net names a unit that does not exist");
    out_.pins.append(pins_[net]);
    out_.source.push_back(source_[net]);
    out_.cost.push_back(cost_[net]);
  }
  out_.nets = transpose(out_.pins, out_.num_units());
  out_.makes_of.reserve(out_.nets.num_values());
  for (UnitId t{0}; t < out_.num_units(); ++t) {
    for (const NetId net : out_.nets[t]) {
      out_.makes_of.push_back(out_.source[net] == t ? 1 : 0);
    }
  }
}

Instance InstanceBuilder::build_unordered() && {
  add_nets();
  return std::move(out_);
}

Instance InstanceBuilder::build() && {
  const std::uint32_t count = out_.num_units();
  for (const auto& [from, to] : edges_) {
    KERF_CHECK(from < count && to < count, "an edge names a unit that does not exist");
  }
  out_.successors = to_rows(count, edges_);
  out_.predecessors = transpose(out_.successors, count);
  if (out_.own_order.empty()) {
    out_.own_order = count_up<UnitId>(count);
  }
  KERF_CHECK(out_.own_order.size() == count, "the order is not a permutation of the units");
  add_nets();
  return std::move(out_);
}

Instance merge(const Instance& instance, std::span<const UnitId> group, std::size_t groups) {
  std::vector<Unit> units(groups);
  for (UnitId t{0}; t < group.size(); ++t) {
    if (group[t].valid()) units[group[t]].join(instance.unit(t));
  }
  InstanceBuilder builder(instance);
  for (const Unit& unit : units) builder.add_unit(unit);
  std::vector<UnitId> pins;
  for (NetId net{0}; net < instance.num_nets(); ++net) {
    pins.clear();
    for (const UnitId t : instance.pins[net]) {
      if (group[t].valid()) pins.push_back(group[t]);
    }
    if (pins.size() < 2) continue;
    const UnitId source = group[instance.source[net]];
    builder.add_net(instance.cost[net], !source.valid() ? pins.front() : source, pins);
  }
  return std::move(builder).build_unordered();
}

Loads find_loads(const Instance& instance, std::span<const SlotId> device) {
  Loads loads(instance.num_devices);
  for (UnitId t{0}; t < instance.num_units(); ++t) {
    const SlotId own = device[t];
    loads.compute[own] += instance.time(t, own);
    loads.bytes[own] += instance.bytes[t];
    loads.fits = loads.fits && instance.runs_on(t, own);
  }
  std::vector<bool> touches(instance.num_devices);
  for (NetId net{0}; net < instance.num_nets(); ++net) {
    std::fill(touches.begin(), touches.end(), false);
    std::size_t count = 0;
    for (const UnitId t : instance.pins[net]) {
      if (!touches[device[t]]) ++count;
      touches[device[t]] = true;
    }
    if (count < 2) continue;
    loads.charge(instance.charging, instance.cpu, instance.cost[net], device[instance.source[net]],
                 touches);
  }
  loads.sum_up(instance.memory);
  return loads;
}

}  // namespace kerf::place
