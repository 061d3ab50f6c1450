// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The loads of an Instance in whole numbers, rounded down, as networks. The load of a set of units
// on a device, compute plus the nets it pays for, is submodular: the least load of a device that
// holds some units and not some others is a minimum cut.
#pragma once

#include <vector>

#include "kerf/place/instance.h"
#include "kerf/place/mincut/max_flow.h"

namespace kerf::place {

// Devices that are alike: equally fast, equally large.
struct DeviceKind {
  std::vector<SlotId> devices;  // ascending, as the Instance counts them
  double memory = 0;
  bool pays = true;                      // for nets; else compute is all its load
  std::vector<Flow> time = {};           // by unit
  std::vector<std::uint8_t> holds = {};  // by unit: the device supports it and has the memory

  bool has_room(double bytes) const { return bytes <= memory * (1 + 1e-12); }
};

struct CutNetwork {
  // `instance` must outlive it.
  CutNetwork(const Instance& instance, double per_one);

  std::uint32_t num_units() const { return instance->num_units(); }
  double to_time(Flow load) const { return static_cast<double>(load) / per_one; }
  // Rounded up: a load in whole numbers that reaches it stands for a time that reaches `time`.
  Flow to_limit(double time) const;

  // Does a device pay for the net that holds `in` (by unit)?
  template <class In>
  bool is_charged(NetId net, const In& in) const {
    const auto pins = instance->pins[net];
    std::size_t inside = 0;
    for (const UnitId t : pins) inside += in(t) ? 1 : 0;
    const bool free =
        instance->charging == Charging::link ? in(instance->source[net]) : inside == pins.size();
    return inside > 0 && !free;
  }

  const Instance* instance;
  double per_one = 1;             // whole numbers for one unit of time
  std::vector<DeviceKind> kinds;  // accelerators, the fastest and then the largest first; the CPU
  // By unit, on the fastest accelerator: the measure by which devices share out the work.
  std::vector<Flow> compute;
  Flow total_compute = 0;
  std::vector<UnitId> by_compute;  // units, the smallest first
  std::vector<Flow> cost;          // by net; 0: too cheap to count
  // Nodes 0 .. num_units - 1 are the units. A unit on the source side is on the device.
  FlowGraph graph;
};

// Whole numbers for one unit of time, so that `time` has about 40 bits and sums stay far below
// kEndless.
double scale_for(double time);
// What building a CutNetwork costs, in steps of a flow.
std::int64_t building_steps(const Instance& instance);

// A network whose minimum cut is the least load of a device of this kind, which pays: compute to
// the sink.
MaxFlow load_network(const CutNetwork& network, const DeviceKind& kind);

}  // namespace kerf::place
