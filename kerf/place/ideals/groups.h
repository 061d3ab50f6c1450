// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A LoadProblem as the contiguous search sees it: groups of units that every chain of ideals keeps
// together, ordered by the forward edges among them, and the nets they pay for when separated.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/ideals/device_classes.h"
#include "kerf/place/ideals/rows.h"

namespace kerf::place::ideals {

// Groups are numbered in a topological order.
struct Groups {
  std::vector<Group> groups;
  Rows successors;                      // by group, distinct
  Rows predecessors;                    // by group, distinct
  Rows nets;                            // by group
  Rows pins;                            // by net, groups, at least two
  std::vector<std::uint32_t> source;    // by net, the group that makes the tensor
  std::vector<double> cost;             // by net
  std::vector<std::uint32_t> unit_of;   // by node, as to_units numbers them
  std::vector<std::uint32_t> group_of;  // by unit
  std::vector<DeviceClass> classes;     // accelerators, then the CPU
  Charging charging = Charging::host_staged;

  std::uint32_t size() const { return static_cast<std::uint32_t>(groups.size()); }
  std::uint32_t num_nets() const { return static_cast<std::uint32_t>(cost.size()); }
  bool has_cpu() const { return !classes.empty() && classes.back().is_cpu; }
  bool has_equal_accelerators() const { return classes.size() < (has_cpu() ? 3U : 2U); }
  double total_accelerator_time() const;  // slowness 1
  double greatest_slowness() const;       // 1 without accelerators
};

// Forward edges order the units. A unit of backward nodes alone stands where its edges to other
// backward nodes, turned round, put it. Units on a cycle of these edges form one group. A group
// that takes no time joins its only neighbour when no answer can be lost by it.
Groups to_groups(const LoadProblem& problem);

}  // namespace kerf::place::ideals
