// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kerf/device/cluster.h"
#include "kerf/graph/graph.h"
#include "kerf/place/objective.h"
#include "kerf/plan/comm_model.h"
#include "kerf/profile/profile.h"

namespace kerf {

// The batch in force when `batch` was asked for (0: nobody said): 0 when the graph is static, else
// the example's, or n_microbatches when that is larger.
std::int64_t batch_size(const Graph& graph, std::int64_t batch, int n_microbatches);
// ceil(batch_size / n_microbatches): the size everything is evaluated at; 0 when static. Throws
// Error(invalid_argument) when n_microbatches is out of range.
std::int64_t micro_batch_size(const Graph& graph, std::int64_t batch, int n_microbatches);

// What a partitioner is given. Check it once with check_problem, then trust it.
struct Problem {
  Graph graph;
  Profile profile;
  Cluster cluster;
  Objective objective = Objective::throughput;
  CommModel comm_model = CommModel::link;
  std::string schedule = "fill_drain";
  int n_microbatches = 1;
  // Samples a step; 0: the graph's example batch, or n_microbatches when that is larger.
  std::int64_t batch = 0;
  std::uint64_t seed = 0;

  std::int64_t batch_size() const { return kerf::batch_size(graph, batch, n_microbatches); }
  std::int64_t micro_batch() const { return micro_batch_size(graph, batch, n_microbatches); }
  // Forward time of a node on the profiled kind at micro_batch(): the profile's, scaled in
  // proportion when it was made for another batch.
  Nanoseconds node_time(NodeId node) const;
};

// The profile is of this graph, the cluster is sound, names are known, 1 <= n_microbatches <= batch
// (1 for a static graph). Throws Error saying what to change.
void check_problem(const Problem& problem);

}  // namespace kerf
