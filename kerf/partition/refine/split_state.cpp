// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/refine/split_state.h"

#include <algorithm>

namespace kerf::partition {

FlatUnits::FlatUnits(const UnitProblem& problem)
    : cpu(problem.cpu()),
      num_devices(problem.cpu() + (problem.has_cpu ? 1U : 0U)),
      memory(problem.memory) {
  first_net.push_back(0);
  for (const LoadUnit& unit : problem.units) {
    accelerator_time.push_back(unit.accelerator_time);
    cpu_time.push_back(unit.cpu_time);
    bytes.push_back(unit.bytes);
    on_accelerator.push_back(unit.on_accelerator ? 1 : 0);
    net_of.insert(net_of.end(), unit.nets.begin(), unit.nets.end());
    first_net.push_back(static_cast<std::uint32_t>(net_of.size()));
  }
  first_pin.push_back(0);
  for (const LoadNet& net : problem.nets) {
    cost.push_back(net.cost);
    pin_of.insert(pin_of.end(), net.units.begin(), net.units.end());
    first_pin.push_back(static_cast<std::uint32_t>(pin_of.size()));
  }
}

SplitState::SplitState(const FlatUnits& units, std::span<const std::uint32_t> device)
    : units_(units) {
  reset(device);
}

void SplitState::reset(std::span<const std::uint32_t> device) {
  const std::size_t devices = units_.num_devices;
  device_.assign(device.begin(), device.end());
  count_.assign(units_.cost.size() * devices, 0);
  load_.assign(devices, 0);
  bytes_.assign(devices, 0);
  for (std::uint32_t u = 0; u < units_.num_units(); ++u) {
    load_[device_[u]] += units_.time(u, device_[u]);
    bytes_[device_[u]] += units_.bytes[u];
  }
  for (std::uint32_t net = 0; net < units_.cost.size(); ++net) {
    const auto pins = units_.pins(net);
    std::uint32_t* count = &count_[net * devices];
    for (const std::uint32_t u : pins) ++count[device_[u]];
    for (std::uint32_t d = 0; d < units_.cpu; ++d) {
      if (count[d] > 0 && count[d] < pins.size()) load_[d] += units_.cost[net];
    }
  }
}

double SplitState::busiest() const { return *std::max_element(load_.begin(), load_.end()); }

SplitState::Change SplitState::peek(std::uint32_t unit, std::uint32_t to) const {
  const std::uint32_t from = device_[unit];
  Change change{0, 0};
  for (const std::uint32_t net : units_.nets(unit)) {
    const std::uint32_t* count = &count_[net * units_.num_devices];
    const std::uint32_t pins = units_.first_pin[net + 1] - units_.first_pin[net];
    const double cost = units_.cost[net];
    // A device pays while it holds some pins and not all of them.
    if (count[from] == pins) {
      change.from += cost;
    } else if (count[from] == 1) {
      change.from -= cost;
    }
    if (count[to] == 0) {
      change.to += cost;
    } else if (count[to] + 1 == pins) {
      change.to -= cost;
    }
  }
  // A CPU never pays for tensors.
  if (from == units_.cpu) change.from = 0;
  if (to == units_.cpu) change.to = 0;
  change.from -= units_.time(unit, from);
  change.to += units_.time(unit, to);
  return change;
}

void SplitState::move(std::uint32_t unit, std::uint32_t to) {
  const std::uint32_t from = device_[unit];
  const Change change = peek(unit, to);
  load_[from] += change.from;
  load_[to] += change.to;
  bytes_[from] -= units_.bytes[unit];
  bytes_[to] += units_.bytes[unit];
  for (const std::uint32_t net : units_.nets(unit)) {
    std::uint32_t* count = &count_[net * units_.num_devices];
    --count[from];
    ++count[to];
  }
  device_[unit] = to;
}

}  // namespace kerf::partition
