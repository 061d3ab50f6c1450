// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A split of units over devices whose loads are kept up move by move. Moving a unit changes the
// loads of the device it leaves and of the one it joins, and of no other: a tensor that starts or
// stops being shared is held by nobody else. A peek or a move costs one step for each net of the
// unit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/plan/load/load_problem.h"

namespace kerf::partition {

// UnitProblem in flat arrays.
struct FlatUnits {
  explicit FlatUnits(const UnitProblem& problem);

  std::uint32_t num_units() const { return static_cast<std::uint32_t>(bytes.size()); }
  // Its time on a device.
  double time(std::uint32_t unit, std::uint32_t device) const {
    return device == cpu ? cpu_time[unit] : accelerator_time[unit];
  }
  bool runs_on(std::uint32_t unit, std::uint32_t device) const {
    return device == cpu || on_accelerator[unit] != 0;
  }
  std::span<const std::uint32_t> nets(std::uint32_t unit) const {
    return {net_of.data() + first_net[unit], first_net[unit + 1] - first_net[unit]};
  }
  std::span<const std::uint32_t> pins(std::uint32_t net) const {
    return {pin_of.data() + first_pin[net], first_pin[net + 1] - first_pin[net]};
  }

  std::uint32_t cpu = 0;  // also the number of accelerators
  std::uint32_t num_devices = 0;
  double memory = 0;
  std::vector<double> accelerator_time, cpu_time, bytes;  // by unit
  std::vector<std::uint8_t> on_accelerator;
  std::vector<std::uint32_t> first_net, net_of;  // nets of units
  std::vector<std::uint32_t> first_pin, pin_of;  // units of nets
  std::vector<double> cost;                      // by net
};

class SplitState {
 public:
  // `units` must outlive the state.
  SplitState(const FlatUnits& units, std::span<const std::uint32_t> device);

  std::span<const std::uint32_t> devices() const { return device_; }
  std::uint32_t device(std::uint32_t unit) const { return device_[unit]; }
  double load(std::uint32_t device) const { return load_[device]; }
  double busiest() const;
  bool fits(std::uint32_t unit, std::uint32_t to) const {
    return to == units_.cpu ||
           (units_.on_accelerator[unit] != 0 && bytes_[to] + units_.bytes[unit] <= units_.memory);
  }
  // Whether the two may change places.
  bool swap_fits(std::uint32_t unit, std::uint32_t other) const {
    const double more = units_.bytes[unit] - units_.bytes[other];
    const std::uint32_t a = device_[unit];
    const std::uint32_t b = device_[other];
    return (b == units_.cpu || bytes_[b] + more <= units_.memory) &&
           (a == units_.cpu || bytes_[a] - more <= units_.memory);
  }

  // What a move would add to the loads of the device it leaves and of the one it joins.
  struct Change {
    double from = 0;
    double to = 0;
  };
  Change peek(std::uint32_t unit, std::uint32_t to) const;
  // The same for two units on different devices that change places.
  Change peek_swap(std::uint32_t unit, std::uint32_t other) const;
  void move(std::uint32_t unit, std::uint32_t to);
  // `change` is what peek answers.
  void move(std::uint32_t unit, std::uint32_t to, const Change& change);
  // Sums again from scratch: what additions and subtractions lost comes back.
  void reset(std::span<const std::uint32_t> device);

 private:
  // In line: searches spend their time here.
  void add_net(std::uint32_t net, std::uint32_t from, std::uint32_t to, Change& change) const {
    const std::uint32_t* count = &count_[net * units_.num_devices];
    const std::uint32_t pins = units_.first_pin[net + 1] - units_.first_pin[net];
    const double cost = units_.cost[net];
    // A device pays while it holds some units of the net and not all of them.
    change.from += cost * ((count[from] == pins ? 1.0 : 0.0) - (count[from] == 1 ? 1.0 : 0.0));
    change.to += cost * ((count[to] == 0 ? 1.0 : 0.0) - (count[to] + 1 == pins ? 1.0 : 0.0));
  }
  Change finished(std::uint32_t unit, std::uint32_t from, std::uint32_t to,
                  const Change& nets) const {
    // A CPU never pays for tensors.
    return {(from == units_.cpu ? 0 : nets.from) - units_.time(unit, from),
            (to == units_.cpu ? 0 : nets.to) + units_.time(unit, to)};
  }

  const FlatUnits& units_;
  std::vector<std::uint32_t> device_;
  std::vector<std::uint32_t> count_;  // by net and device: units there
  std::vector<double> load_, bytes_;  // by device
};

}  // namespace kerf::partition
