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
  for (const std::uint32_t net : units_.nets(unit)) add_net(net, from, to, change);
  return finished(unit, from, to, change);
}

SplitState::Change SplitState::peek_swap(std::uint32_t unit, std::uint32_t other) const {
  const std::uint32_t from = device_[unit];
  const std::uint32_t to = device_[other];
  Change there{0, 0};
  Change back{0, 0};
  const auto nets = units_.nets(unit);
  const auto others = units_.nets(other);
  // Both lists ascend. What both hold keeps as many units on either device.
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < nets.size() || j < others.size()) {
    if (j == others.size() || (i < nets.size() && nets[i] < others[j])) {
      add_net(nets[i++], from, to, there);
    } else if (i == nets.size() || others[j] < nets[i]) {
      add_net(others[j++], to, from, back);
    } else {
      ++i;
      ++j;
    }
  }
  there = finished(unit, from, to, there);
  back = finished(other, to, from, back);
  return {there.from + back.to, there.to + back.from};
}

void SplitState::move(std::uint32_t unit, std::uint32_t to) { move(unit, to, peek(unit, to)); }

void SplitState::move(std::uint32_t unit, std::uint32_t to, const Change& change) {
  const std::uint32_t from = device_[unit];
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
