// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// An Instance in whole numbers, rounded down, units that must share a device fused into one. The
// load of a set of units on a device, compute plus the nets it pays for, is submodular: the least
// load of a device that holds some units and not some others is a minimum cut.
#pragma once

#include <span>
#include <vector>

#include "kerf/place/instance.h"
#include "kerf/place/mincut/max_flow.h"

namespace kerf::place {

// Devices that are alike: equally fast, equally large.
struct DeviceKind {
  std::vector<std::uint32_t> devices;  // ascending, as the Instance counts them
  double memory = 0;
  bool pays = true;                      // for nets; else compute is all its load
  std::vector<Flow> time = {};           // by class
  std::vector<std::uint8_t> holds = {};  // by class: the device supports it and has the memory

  bool has_room(double bytes) const { return bytes <= memory * (1 + 1e-12); }
};

struct CutProblem {
  // One class for each group of units; `group[unit]` counts up from 0 without holes.
  CutProblem(const Instance& problem, std::span<const std::uint32_t> group, double per_one);

  std::size_t num_classes() const { return compute.size(); }
  double to_time(Flow load) const { return static_cast<double>(load) / per_one; }
  // Rounded up: a load in whole numbers that reaches it stands for a time that reaches `time`.
  Flow to_limit(double time) const;

  struct Net {
    std::vector<std::uint32_t> classes;  // ascending
    std::uint32_t source = 0;            // class; 0 where all pay alike
    Flow cost = 0;
  };
  // Does a device pay for the net that holds `in` (by class)?
  template <class In>
  bool is_charged(const Net& net, const In& in) const {
    std::size_t inside = 0;
    for (const std::uint32_t c : net.classes) inside += in(c) ? 1 : 0;
    return inside > 0 &&
           (charging == Charging::link ? !in(net.source) : inside < net.classes.size());
  }

  double per_one = 1;  // whole numbers for one unit of time
  Charging charging = Charging::host_staged;
  std::vector<DeviceKind> kinds;  // accelerators, the fastest and then the largest first; the CPU
  std::vector<std::uint32_t> group;  // class by unit
  // By class, on the fastest accelerator: the measure by which devices share out the work.
  std::vector<Flow> compute;
  std::vector<double> bytes;  // by class
  std::vector<Net> nets;
  Flow total_compute = 0;
  std::vector<std::uint32_t> by_compute;  // classes, the smallest first
  // Nodes 0 .. num_classes - 1 are the classes. A class on the source side is on the device.
  FlowGraph graph;
};

// Every unit a class of its own.
std::vector<std::uint32_t> single_groups(const Instance& problem);
// Whole numbers for one unit of time, so that `time` has about 40 bits and sums stay far below
// kEndless.
double scale_for(double time);
// What building a CutProblem costs, in steps of a flow.
std::int64_t building_steps(const Instance& problem);

// A network whose minimum cut is the least load of a device of this kind, which pays: compute to
// the sink.
MaxFlow load_network(const CutProblem& problem, const DeviceKind& kind);

}  // namespace kerf::place
