// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// An Instance as the contiguous search sees it: groups of tasks that every chain of ideals keeps
// together, ordered by the edges among them.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/ideals/device_classes.h"
#include "kerf/place/instance.h"

namespace kerf::place::ideals {

// The groups are its tasks, numbered in a topological order.
struct Groups : Instance {
  std::vector<std::uint32_t> group_of;  // by task of the instance it came from
  std::vector<DeviceClass> classes;     // accelerators, then the CPU

  // As far as plans can tell.
  bool has_one_kind() const { return classes.size() < (has_cpu() ? 3U : 2U); }
  double greatest_slowness() const;  // 1 without accelerators
};

// Tasks on a cycle form one group. A group that takes no time joins its only neighbour when no
// answer can be lost by it.
Groups to_groups(const Instance& instance);

}  // namespace kerf::place::ideals
