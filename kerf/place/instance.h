// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The form of the problem that every search takes: units for devices, the nets (tensors) that
// devices pay for when units which share one are held apart, and what comes before what. Checked
// where it is built, then trusted. A contraction of an Instance is an Instance.
//
//   InstanceBuilder builder(devices);
//   builder.add_unit({.accelerator_time = 2, .cpu_time = 9, .bytes = 1});
//   builder.add_unit({.accelerator_time = 3, .cpu_time = 8, .bytes = 1});
//   builder.add_net(0.5, UnitId{0}, {{UnitId{1}}});
//   builder.add_edge(UnitId{0}, UnitId{1});
//   Instance instance = std::move(builder).build();
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/rows.h"
#include "kerf/place/loads.h"

namespace kerf::place {

using Order = std::vector<UnitId>;  // each once
using Split = std::vector<SlotId>;  // device by unit
using UnitRows = RowsOf<UnitId, UnitId>;

// Accelerators 0 .. cpu - 1, and `cpu`, which stands for the CPUs, where there are some.
struct Devices {
  SlotId cpu{0};  // also the number of accelerators
  std::uint32_t num_devices = 0;
  Charging charging = Charging::host_staged;
  std::vector<double> slowness;  // by accelerator: its times x this
  std::vector<double> memory;    // by device

  bool has_cpu() const { return num_devices > cpu; }
  bool has_equal_speeds() const;
  bool has_equal_accelerators() const;
};

struct Unit {
  double accelerator_time = 0;  // slowness 1
  double cpu_time = 0;
  double bytes = 0;
  bool on_accelerator = true;
  bool on_cpu = true;

  void join(const Unit& other);  // both on one device
};

struct Instance : Devices {
  std::uint32_t num_units() const { return static_cast<std::uint32_t>(bytes.size()); }
  std::uint32_t num_nets() const { return static_cast<std::uint32_t>(cost.size()); }
  Unit unit(UnitId unit) const {
    return {accelerator_time[unit], cpu_time[unit], bytes[unit], on_accelerator[unit] != 0,
            on_cpu[unit] != 0};
  }
  double time(UnitId unit, SlotId device) const {
    return device == cpu ? cpu_time[unit] : accelerator_time[unit] * slowness[device];
  }
  bool runs_on(UnitId unit, SlotId device) const {
    return (device == cpu ? on_cpu[unit] : on_accelerator[unit]) != 0;
  }
  // Whether the unit makes the tensor at a place of `nets[unit]`.
  bool makes(UnitId unit, std::size_t place) const {
    return makes_of[nets.start(unit) + place] != 0;
  }
  double total_accelerator_time() const;  // slowness 1

  // By unit.
  std::vector<double> accelerator_time, cpu_time, bytes;
  std::vector<std::uint8_t> on_accelerator, on_cpu;
  RowsOf<UnitId, NetId> nets;          // ascending
  std::vector<std::uint8_t> makes_of;  // for each value of `nets`
  // Precedence, distinct and ascending; colour classes may wait for each other in a circle. No rows
  // at all where it is not asked for.
  UnitRows successors, predecessors;
  Order own_order;  // units as the problem's own order has them
  // By net. Equal ones (link: of one source too) are one, their costs added.
  std::vector<double> cost;
  std::vector<UnitId> source;  // unit that makes the tensor
  RowsOf<NetId, UnitId> pins;  // units that hold or read it, the source included, ascending; >= 2
};

class InstanceBuilder {
 public:
  // The figures of the devices must be there, one for each.
  explicit InstanceBuilder(Devices devices);

  void add_unit(const Unit& unit);
  // A tensor and who reads it; free ones and those that nobody else reads are left out. Pins may
  // come in any order, more than once, and with the source or without.
  void add_net(double cost, UnitId source, std::span<const UnitId> pins);
  void add_edge(UnitId from, UnitId to) { edges_.emplace_back(from, to); }
  // Each unit once; by number unless it is given.
  void set_order(Order order) { out_.own_order = std::move(order); }

  // Nets are numbered by their pins. Throws Error(internal) where a net or an edge names a unit
  // that there is not.
  Instance build() &&;
  // The same without precedence, for searches that do not look at it.
  Instance build_unordered() &&;

 private:
  void add_nets();

  Instance out_;
  PairsOf<UnitId, UnitId> edges_;
  // As added.
  RowsOf<NetId, UnitId> pins_;
  std::vector<double> cost_;
  std::vector<UnitId> source_;
  std::vector<UnitId> row_;
};

// The units of one group become one: group[unit] in 0 .. groups - 1. Units of no group (an
// invalid one) are left out, and of the nets what they held; a net whose maker is left out has
// another pin stand in. Without precedence, which most searches over contractions do not ask for;
// with it: merge_ordered in coarsen/contraction.h.
Instance merge(const Instance& instance, std::span<const UnitId> group, std::size_t groups);

// The same figures as find_loads of a LoadProblem has: what searches keep up incrementally is
// checked against this.
Loads find_loads(const Instance& instance, std::span<const SlotId> device);

}  // namespace kerf::place
