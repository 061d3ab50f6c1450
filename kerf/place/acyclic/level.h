// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A graph of groups, or of clusters of them: what the acyclic search works on at each level. Less
// than an Instance: it is contracted often, in linear time, and nets stay in the order in which
// they are met, on which its splits depend.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/instance.h"

namespace kerf::place::acyclic {

using Numbers = std::vector<std::uint32_t>;

// Vertices are numbered in a topological order.
struct Level {
  std::vector<double> time;   // by vertex, slowness 1
  std::vector<double> bytes;  // by vertex
  Rows successors;            // by vertex, distinct
  Rows predecessors;          // by vertex, distinct
  Rows nets;                  // by vertex
  Rows pins;                  // by net, distinct, at least two
  Numbers source;             // by net
  std::vector<double> cost;   // by net

  std::uint32_t size() const { return static_cast<std::uint32_t>(time.size()); }
  std::uint32_t num_nets() const { return static_cast<std::uint32_t>(cost.size()); }
};

Level to_level(const Instance& groups);

struct Contraction {
  Level level;
  Numbers coarse_of;  // by vertex of the finer level
};

// One vertex a cluster; cluster[vertex] < size(). The clusters must form no cycle. Nets with the
// same pins are one, where `by_source` those of one source.
Contraction contract(const Level& level, std::span<const std::uint32_t> cluster, bool by_source);
// The same for clusters that are runs of a topological order, numbered along it: they keep their
// numbers.
Contraction contract_runs(const Level& level, std::span<const std::uint32_t> run, bool by_source);

}  // namespace kerf::place::acyclic
