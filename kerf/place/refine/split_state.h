// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A split of units over devices whose loads are kept up move by move. Moving a unit changes the
// loads of the device it leaves and of the one it joins, and of no other, however tensors are
// charged: host_staged, a tensor that starts or stops being shared is held by nobody else; link, a
// third device that reads a tensor pays the same wherever else it is made. A peek or a move costs
// one step for each net of the unit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/load_problem.h"

namespace kerf::place {

// UnitProblem in flat arrays.
struct FlatUnits {
  explicit FlatUnits(const UnitProblem& problem);

  std::uint32_t num_units() const { return static_cast<std::uint32_t>(bytes.size()); }
  bool has_cpu() const { return num_devices > cpu; }
  // Its time on a device.
  double time(std::uint32_t unit, std::uint32_t device) const {
    return device == cpu ? cpu_time[unit] : accelerator_time[unit] * slowness[device];
  }
  bool runs_on(std::uint32_t unit, std::uint32_t device) const {
    return (device == cpu ? on_cpu[unit] : on_accelerator[unit]) != 0;
  }
  std::span<const std::uint32_t> nets(std::uint32_t unit) const {
    return {net_of.data() + first_net[unit], first_net[unit + 1] - first_net[unit]};
  }
  // Whether the unit makes the tensor at a place of `nets(unit)`.
  bool makes(std::uint32_t unit, std::size_t place) const {
    return makes_of[first_net[unit] + place] != 0;
  }
  std::span<const std::uint32_t> pins(std::uint32_t net) const {
    return {pin_of.data() + first_pin[net], first_pin[net + 1] - first_pin[net]};
  }

  std::uint32_t num_pins(std::uint32_t net) const { return first_pin[net + 1] - first_pin[net]; }

  std::uint32_t cpu = 0;  // also the number of accelerators
  std::uint32_t num_devices = 0;
  Charging charging = Charging::host_staged;
  std::vector<double> slowness;                           // by accelerator
  std::vector<double> memory;                             // by device
  std::vector<double> accelerator_time, cpu_time, bytes;  // by unit
  std::vector<std::uint8_t> on_accelerator, on_cpu;       // by unit
  std::vector<std::uint32_t> first_net, net_of;           // nets of units
  std::vector<std::uint8_t> makes_of;                     // as net_of
  std::vector<std::uint32_t> first_pin, pin_of;           // units of nets
  std::vector<double> cost;                               // by net
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
    return units_.runs_on(unit, to) && bytes_[to] + units_.bytes[unit] <= units_.memory[to];
  }
  // Whether the two may change places.
  bool swap_fits(std::uint32_t unit, std::uint32_t other) const {
    const double more = units_.bytes[unit] - units_.bytes[other];
    const std::uint32_t a = device_[unit];
    const std::uint32_t b = device_[other];
    return units_.runs_on(unit, b) && units_.runs_on(other, a) &&
           bytes_[b] + more <= units_.memory[b] && bytes_[a] - more <= units_.memory[a];
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
  void reset(std::span<const std::uint32_t> device);
  // Sums again from scratch: what additions and subtractions lost comes back. Debug builds check
  // that it is no more than that.
  void refresh();

 private:
  template <Charging kCharging>
  void add_net(std::uint32_t unit, std::size_t place, std::uint32_t from, std::uint32_t to,
               Change& change) const;
  template <Charging kCharging>
  Change tensors_of_move(std::uint32_t unit, std::uint32_t from, std::uint32_t to) const;
  template <Charging kCharging>
  Change tensors_of_swap(std::uint32_t unit, std::uint32_t other, std::uint32_t from,
                         std::uint32_t to) const;
  void add_staged_tensors();
  void add_linked_tensors();

  const FlatUnits& units_;
  std::vector<std::uint32_t> device_;
  std::vector<std::uint32_t> count_;  // by net and device: units there
  std::vector<double> load_, bytes_;  // by device
};

}  // namespace kerf::place
