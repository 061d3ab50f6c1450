// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A UnitProblem in whole numbers, rounded down, units that must share a device fused into one. The
// load of a set of units on an accelerator, compute plus the nets it cuts, is submodular: the least
// load of a device that holds some units and not some others is a minimum cut.
#pragma once

#include <span>
#include <vector>

#include "kerf/partition/mincut/max_flow.h"
#include "kerf/plan/load/load_problem.h"

namespace kerf::partition {

struct CutProblem {
  // One class for each group of units; `group[unit]` counts up from 0 without holes.
  CutProblem(const UnitProblem& problem, std::span<const std::uint32_t> group, double per_one);

  std::size_t num_classes() const { return compute.size(); }
  double to_time(Flow load) const { return static_cast<double>(load) / per_one; }
  // Rounded up: a load in whole numbers that reaches it stands for a time that reaches `time`.
  Flow to_limit(double time) const;

  double per_one = 1;  // whole numbers for one unit of time
  int num_accelerators = 0;
  bool has_cpu = false;
  double memory = 0;
  std::vector<std::uint32_t> group;       // class by unit
  std::vector<Flow> compute;              // on an accelerator, by class
  std::vector<Flow> cpu;                  // by class
  std::vector<double> bytes;              // by class
  std::vector<std::uint8_t> accelerable;  // by class
  struct Net {
    std::vector<std::uint32_t> classes;
    Flow cost = 0;
  };
  std::vector<Net> nets;
  Flow total_compute = 0;
  std::vector<std::uint32_t> by_compute;  // classes, the smallest first
  // Nodes 0 .. num_classes - 1 are the classes. A class on the source side is on the device.
  FlowGraph graph;
};

// Every unit a class of its own.
std::vector<std::uint32_t> single_groups(const UnitProblem& problem);
// Whole numbers for one unit of time, so that `time` has about 40 bits and sums stay far below
// kEndless.
double scale_for(double time);

// A network whose minimum cut is the least load of a device: compute to the sink.
MaxFlow load_network(const CutProblem& problem);

}  // namespace kerf::partition
