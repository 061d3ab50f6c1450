// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/refine/split_state.h"

#include <algorithm>
#include <cmath>

#include "kerf/base/error.h"

namespace kerf::place {

SplitState::SplitState(const Instance& units, std::span<const SlotId> device) : units_(units) {
  reset(device);
}

void SplitState::reset(std::span<const SlotId> device) {
  device_.assign(device.begin(), device.end());
  load_.assign(units_.num_devices, 0);
  bytes_.assign(units_.num_devices, 0);
  for (UnitId u{0}; u < units_.num_units(); ++u) {
    load_[device_[u]] += units_.time(u, device_[u]);
    bytes_[device_[u]] += units_.bytes[u];
  }
  count_.assign(units_.num_nets() * units_.num_devices, 0);
  for (NetId net{0}; net < units_.num_nets(); ++net) {
    std::uint32_t* count = &count_[net * std::size_t{units_.num_devices}];
    for (const UnitId u : units_.pins[net]) ++count[device_[u]];
  }
  if (units_.charging == Charging::link) {
    add_linked_tensors();
  } else {
    add_staged_tensors();
  }
}

void SplitState::add_staged_tensors() {
  for (NetId net{0}; net < units_.num_nets(); ++net) {
    const std::uint32_t* count = &count_[net * std::size_t{units_.num_devices}];
    for (SlotId d{0}; d < units_.cpu; ++d) {
      if (count[d] > 0 && count[d] < units_.pins.length(net)) load_[d] += units_.cost[net];
    }
  }
}

void SplitState::add_linked_tensors() {
  for (UnitId u{0}; u < units_.num_units(); ++u) {
    const auto nets = units_.nets[u];
    for (std::size_t i = 0; i < nets.size(); ++i) {
      if (!units_.makes(u, i)) continue;
      const std::uint32_t* count = &count_[nets[i] * std::size_t{units_.num_devices}];
      for (SlotId d{0}; d < units_.num_devices; ++d) {
        if (d != device_[u] && count[d] > 0) load_[d] += units_.cost[nets[i]];
      }
    }
  }
}

void SplitState::refresh() {
  const std::vector<SlotId> device = device_;
  const std::vector<double> kept = load_;
  reset(device);
  for (std::size_t d = 0; d < kept.size(); ++d) {
    KERF_DCHECK(std::abs(kept[d] - load_[d]) <= 1e-6 * (1 + busiest()),
                "a load kept up move by move differs from the load summed from scratch");
  }
}

double SplitState::busiest() const { return *std::max_element(load_.begin(), load_.end()); }

std::uint32_t SplitState::spread(NetId net) const {
  std::uint32_t out = 0;
  for (SlotId d{0}; d < units_.num_devices; ++d) out += pins_on(net, d) > 0 ? 1 : 0;
  return out;
}

// What the unit's move makes two devices pay more for its net at `place`. Searches spend their time
// here.
template <Charging kCharging>
void SplitState::add_net(UnitId unit, std::size_t place, SlotId from, SlotId to,
                         Change& change) const {
  const NetId net = units_.nets[unit][place];
  const std::uint32_t* count = &count_[net * std::size_t{units_.num_devices}];
  const double cost = units_.cost[net];
  if constexpr (kCharging == Charging::host_staged) {
    // A device pays while it holds some units of the net and not all of them.
    const std::uint32_t pins = units_.pins.length(net);
    change.from += cost * ((count[from] == pins ? 1.0 : 0.0) - (count[from] == 1 ? 1.0 : 0.0));
    change.to += cost * ((count[to] == 0 ? 1.0 : 0.0) - (count[to] + 1 == pins ? 1.0 : 0.0));
  } else if (units_.makes(unit, place)) {
    // It leaves its readers to pay, and frees those it joins.
    change.from += count[from] > 1 ? cost : 0.0;
    change.to -= count[to] > 0 ? cost : 0.0;
  } else {
    // The last reader to leave and the first to join: the maker is not there then.
    change.from -= count[from] == 1 ? cost : 0.0;
    change.to += count[to] == 0 ? cost : 0.0;
  }
}

template <Charging kCharging>
SplitState::Change SplitState::tensors_of_move(UnitId unit, SlotId from, SlotId to) const {
  Change change{0, 0};
  const std::size_t nets = units_.nets[unit].size();
  for (std::size_t i = 0; i < nets; ++i) add_net<kCharging>(unit, i, from, to, change);
  return change;
}

template <Charging kCharging>
SplitState::Change SplitState::tensors_of_swap(UnitId unit, UnitId other, SlotId from,
                                               SlotId to) const {
  Change there{0, 0};
  Change back{0, 0};
  const auto nets = units_.nets[unit];
  const auto others = units_.nets[other];
  // Both lists ascend. What both hold keeps as many units on either device.
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < nets.size() || j < others.size()) {
    if (j == others.size() || (i < nets.size() && nets[i] < others[j])) {
      add_net<kCharging>(unit, i++, from, to, there);
    } else if (i == nets.size() || others[j] < nets[i]) {
      add_net<kCharging>(other, j++, to, from, back);
    } else {
      if constexpr (kCharging == Charging::link) {
        // Its maker changes places with one that reads it.
        const double cost = units_.cost[nets[i]];
        const double moved = units_.makes(unit, i) ? cost : units_.makes(other, j) ? -cost : 0.0;
        there.from += moved;
        there.to -= moved;
      }
      ++i;
      ++j;
    }
  }
  return {there.from + back.to, there.to + back.from};
}

// Staged through its own memory, a tensor costs a CPU nothing.
SplitState::Change SplitState::peek(UnitId unit, SlotId to) const {
  const SlotId from = device_[unit];
  Change change;
  if (units_.charging == Charging::link) {
    change = tensors_of_move<Charging::link>(unit, from, to);
  } else {
    change = tensors_of_move<Charging::host_staged>(unit, from, to);
    if (from == units_.cpu) change.from = 0;
    if (to == units_.cpu) change.to = 0;
  }
  change.from -= units_.time(unit, from);
  change.to += units_.time(unit, to);
  return change;
}

SplitState::Change SplitState::peek_swap(UnitId unit, UnitId other) const {
  const SlotId from = device_[unit];
  const SlotId to = device_[other];
  Change change;
  if (units_.charging == Charging::link) {
    change = tensors_of_swap<Charging::link>(unit, other, from, to);
  } else {
    change = tensors_of_swap<Charging::host_staged>(unit, other, from, to);
    if (from == units_.cpu) change.from = 0;
    if (to == units_.cpu) change.to = 0;
  }
  change.from += units_.time(other, from) - units_.time(unit, from);
  change.to += units_.time(unit, to) - units_.time(other, to);
  return change;
}

void SplitState::move(UnitId unit, SlotId to) { move(unit, to, peek(unit, to)); }

void SplitState::move(UnitId unit, SlotId to, const Change& change) {
  const SlotId from = device_[unit];
  load_[from] += change.from;
  load_[to] += change.to;
  bytes_[from] -= units_.bytes[unit];
  bytes_[to] += units_.bytes[unit];
  for (const NetId net : units_.nets[unit]) {
    std::uint32_t* count = &count_[net * units_.num_devices];
    --count[from];
    ++count[to];
  }
  device_[unit] = to;
}

}  // namespace kerf::place
