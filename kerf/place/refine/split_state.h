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

#include "kerf/place/instance.h"

namespace kerf::place {

// Nets that a search over it looks at in one of the steps that clocks count.
inline constexpr std::int64_t kWorkOfAStep = 3;

class SplitState {
 public:
  // `units` must outlive the state.
  SplitState(const Instance& units, std::span<const SlotId> device);

  std::span<const SlotId> devices() const { return device_; }
  SlotId device(UnitId unit) const { return device_[unit]; }
  double load(SlotId device) const { return load_[device]; }
  double bytes(SlotId device) const { return bytes_[device]; }
  double busiest() const;
  // Units of a net on a device, and devices that hold some.
  std::uint32_t pins_on(NetId net, SlotId device) const {
    return count_[net * std::size_t{units_.num_devices} + device];
  }
  std::uint32_t spread(NetId net) const;
  bool fits(UnitId unit, SlotId to) const {
    return units_.runs_on(unit, to) && bytes_[to] + units_.bytes[unit] <= units_.memory[to];
  }
  // Whether the two may change places.
  bool swap_fits(UnitId unit, UnitId other) const {
    const double more = units_.bytes[unit] - units_.bytes[other];
    const SlotId a = device_[unit];
    const SlotId b = device_[other];
    return units_.runs_on(unit, b) && units_.runs_on(other, a) &&
           bytes_[b] + more <= units_.memory[b] && bytes_[a] - more <= units_.memory[a];
  }

  // What a move would add to the loads of the device it leaves and of the one it joins.
  struct Change {
    double from = 0;
    double to = 0;
  };
  Change peek(UnitId unit, SlotId to) const;
  // The same for two units on different devices that change places.
  Change peek_swap(UnitId unit, UnitId other) const;
  void move(UnitId unit, SlotId to);
  // `change` is what peek answers.
  void move(UnitId unit, SlotId to, const Change& change);
  void reset(std::span<const SlotId> device);
  // Sums again from scratch: what additions and subtractions lost comes back. Debug builds check
  // that it is no more than that.
  void refresh();

 private:
  template <Charging kCharging>
  void add_net(UnitId unit, std::size_t place, SlotId from, SlotId to, Change& change) const;
  template <Charging kCharging>
  Change tensors_of_move(UnitId unit, SlotId from, SlotId to) const;
  template <Charging kCharging>
  Change tensors_of_swap(UnitId unit, UnitId other, SlotId from, SlotId to) const;
  void add_staged_tensors();
  void add_linked_tensors();

  const Instance& units_;
  std::vector<SlotId> device_;
  std::vector<std::uint32_t> count_;  // by net and device: units there
  std::vector<double> load_, bytes_;  // by device
};

}  // namespace kerf::place
