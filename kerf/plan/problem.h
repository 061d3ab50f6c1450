// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
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
  // Stages that each device is to have, looped (stage s on device s mod p); 1: as the method likes.
  int stages_per_device = 1;

  bool training = false;
  std::string optimizer = "adamw";      // training: a name of profile/optimizer.h
  std::string recompute = "auto";       // training: none, all, as_traced, auto or list
  std::vector<std::string> recomputed;  // what runs forward again: plan/recompute.h
  // By node: 0, or the number of its entry in `recomputed` from 1 on. Set by set_recomputed.
  std::vector<std::uint32_t> recompute_block;

  // By value: what it takes between any two devices in one micro-batch, and its gradient as much
  // again, where that is given; otherwise links say it. Empty: none is given.
  std::vector<std::optional<Nanoseconds>> transfer_times;
  // Training: blocks that lie in the last stage are kept, as where a pipeline is asynchronous, and
  // the last stage runs backward right after forward.
  bool keep_last_stage = false;

  std::int64_t batch_size() const { return kerf::batch_size(graph, batch, n_microbatches); }
  std::int64_t micro_batch() const { return micro_batch_size(graph, batch, n_microbatches); }
  // What a node costs a device in one micro-batch at least, on the profiled kind at micro_batch():
  // forward, and for training backward and, where it has one, forward again if that is recomputed.
  // (Other nodes of such a block run again where the stage has a backward of it.) The profile's
  // times, scaled in proportion when it was made for another batch.
  Nanoseconds node_time(NodeId node) const;
  Nanoseconds forward_time(NodeId node) const;
  Nanoseconds backward_time(NodeId node) const;  // without what is computed again
  // The part of backward_time that a schedule may put off: none where it is computed again.
  Nanoseconds weight_gradient_time(NodeId node) const;
  std::optional<Nanoseconds> given_transfer(ValueId value) const {
    return transfer_times.empty() ? std::nullopt : transfer_times[value.index()];
  }
  // What a value takes from one device to another, once.
  Nanoseconds transfer_time(ValueId value, DeviceId from, DeviceId to) const;
  bool is_recomputed(NodeId node) const {
    return !recompute_block.empty() && recompute_block[node.index()] != 0;
  }
  // By storage: bytes in memory for each byte of a weight: itself, and for training its gradient
  // and the optimizer's state.
  std::vector<std::int64_t> weight_copies() const;

 private:
  Nanoseconds scaled(Nanoseconds time) const;
};

// The problem with these entries recomputed. Throws Error(invalid_argument) for a scope or region
// that the graph does not have.
void set_recomputed(Problem& problem, std::vector<std::string> recomputed);

// The profile is of this graph, the cluster is sound, names are known, 1 <= n_microbatches <= batch
// (1 for a static graph). Throws Error saying what to change.
void check_problem(const Problem& problem);

}  // namespace kerf
