// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A LoadProblem as the contiguous search sees it: groups of units that every chain of ideals keeps
// together, ordered by the forward edges among them, and the nets they pay for when separated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/plan/load/load_problem.h"

namespace kerf::partition::ideals {

// Rows of numbers, one after the other.
class Rows {
 public:
  Rows() = default;
  explicit Rows(const std::vector<std::vector<std::uint32_t>>& rows);
  std::span<const std::uint32_t> operator[](std::uint32_t row) const {
    return {values_.data() + starts_[row], values_.data() + starts_[row + 1]};
  }

 private:
  std::vector<std::uint32_t> starts_{0};
  std::vector<std::uint32_t> values_;
};

struct Group {
  double accelerator_time = 0;
  double cpu_time = 0;
  double bytes = 0;
  bool on_accelerator = true;
};

// Groups are numbered in a topological order.
struct Groups {
  std::vector<Group> groups;
  Rows successors;                      // by group, distinct
  Rows predecessors;                    // by group, distinct
  Rows nets;                            // by group
  Rows pins;                            // by net, groups, at least two
  std::vector<double> cost;             // by net
  std::vector<std::uint32_t> group_of;  // by unit
  int num_accelerators = 1;
  bool has_cpu = true;
  double memory = 0;

  std::uint32_t size() const { return static_cast<std::uint32_t>(groups.size()); }
  std::uint32_t num_nets() const { return static_cast<std::uint32_t>(cost.size()); }
  double total_accelerator_time() const;
};

// Forward edges order the units. A unit of backward nodes alone stands where its edges to other
// backward nodes, turned round, put it. Units on a cycle of these edges form one group. A group
// that takes no time joins its only neighbour when no answer can be lost by it.
Groups to_groups(const LoadProblem& problem, const UnitProblem& units);

}  // namespace kerf::partition::ideals
