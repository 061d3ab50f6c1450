// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Placement as a plain optimisation problem: nodes with a time on an accelerator and on a CPU,
// tensors with the time it takes to move them, k accelerators with memory limits, some CPUs.
// Published problems come in this form (ingest/dnn_partitioning.h), times in the file's own unit.
// Searches take it as an Instance (place/lower_load.h).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kerf/place/loads.h"

namespace kerf {

struct LoadNode {
  std::int64_t id = 0;  // the file's
  std::string name = {};
  double accelerator_time = 0;
  double cpu_time = 0;
  double bytes = 0;                 // of an accelerator's memory
  bool on_accelerator = true;       // false: CPU only, whatever its time there
  bool on_cpu = true;               // false: accelerators only, whatever its time there
  bool backward = false;            // follows its colour class; contiguity is about the others
  std::int64_t colour = kNoColour;  // nodes of one colour share a device
  double transfer = 0;              // of its output tensor
  static constexpr std::int64_t kNoColour = std::numeric_limits<std::int64_t>::min();
};

struct LoadProblem {
  std::string name;
  std::vector<LoadNode> nodes;
  std::vector<std::vector<std::uint32_t>> successors;  // by node, distinct, ascending
  int num_accelerators = 1;
  int num_cpus = 1;
  Charging charging = Charging::host_staged;
  double memory = 0;                  // of each accelerator; of the largest when they differ
  std::vector<double> slowness = {};  // by accelerator: its times x this; empty: 1 each
  std::vector<double> memories = {};  // by accelerator; empty: `memory` each
  double cpu_memory = std::numeric_limits<double>::infinity();

  std::size_t num_devices() const {
    return static_cast<std::size_t>(num_accelerators) + (num_cpus > 0 ? 1 : 0);
  }
  // Devices 0 .. num_accelerators - 1 are accelerators, this one stands for the CPUs.
  SlotId cpu() const { return SlotId{num_accelerators}; }
  double memory_of(SlotId device) const;
  double time_on(const LoadNode& node, SlotId device) const;
  bool runs_on(const LoadNode& node, SlotId device) const {
    return device == cpu() ? node.on_cpu : node.on_accelerator;
  }
};

// Edges in range and acyclic, times and sizes finite and not negative, counts sane, colours on
// devices they can share, a device for every node. Throws Error(invalid_graph) naming the node; a
// cycle is printed.
void check_load_problem(const LoadProblem& problem);

// "Not on this device" is a fact (on_accelerator, on_cpu), not a large time. Other tools know no
// such fact and write large times for it: those above this many times what all colour classes take
// together, each where it is fastest, become the fact. Every class keeps its fastest device.
inline constexpr double kForbiddenTime = 1e9;
void forbid_large_times(LoadProblem& problem);

// All nodes, each after its predecessors.
std::vector<std::uint32_t> topological_order(const LoadProblem& problem);

// device[node]. Several CPUs share what is on the CPU: colour classes, the longest first, each to
// the CPU with least; the figure is that of the fullest.
Loads find_loads(const LoadProblem& problem, std::span<const SlotId> device);

// One sample alone, charged as host_staged. A CPU node ends its time after its inputs; CPUs never
// wait for each other. The nodes of an accelerator that can run at once (no path leaves them and
// comes back) form a piece: it starts when all its inputs are there, moves them in, computes, moves
// its outputs out. `serial`: the pieces of one accelerator run one after the other; else each when
// it can.
double find_latency(const LoadProblem& problem, std::span<const SlotId> device, bool serial);

// The problem with its CPUs as one that is as fast as all of them: no split has a smaller max load
// than the best of this one. The problem itself when it has at most one.
LoadProblem with_one_cpu(const LoadProblem& problem);

// What is wrong with a split beside its memory, in words: nodes on devices that cannot run them,
// colour classes on several devices. A sentence each; the first few.
std::vector<std::string> find_faults(const LoadProblem& problem, std::span<const SlotId> device);

// Each device's forward nodes: no path leaves them and comes back.
bool is_contiguous(const LoadProblem& problem, std::span<const SlotId> device);

}  // namespace kerf
