// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/json.h"
#include "kerf/base/units.h"
#include "kerf/graph/graph.h"
#include "kerf/profile/block_cost.h"

namespace kerf {

// Where a figure comes from. `given`: another tool's file said so.
enum class Source : std::uint8_t { measured, estimated, given };
std::string_view to_string(Source source);

// One pass over a node as an accelerator sees it: the host issues work, the device does it behind.
// Both are 0 on a host, and where they were not measured apart.
struct IssueTimes {
  Nanoseconds issue;   // the host's
  Nanoseconds device;  // the device's own
  friend bool operator==(const IssueTimes&, const IssueTimes&) = default;
};

// What one node costs, at the profile's batch size, on the profile's kind of device.
struct NodeCost {
  Nanoseconds forward;           // what it adds to a run; median when measured
  Nanoseconds forward_spread;    // interquartile range when measured
  Nanoseconds backward;          // of its gradients; 0 where none is asked for, or `!training`
  Nanoseconds backward_spread;   // interquartile range when measured
  Nanoseconds backward_weights;  // the share of `backward` that makes gradients of weights
  // While the machine's other CPU devices work; 0: not measured. profile/load.h.
  Nanoseconds forward_under_load;
  Nanoseconds backward_under_load;
  IssueTimes forward_apart;
  IssueTimes backward_apart;
  int samples = 0;
  double flops = 0;           // a multiply-add counts as two
  double macs = 0;            // multiply-adds alone, of products and convolutions
  double backward_flops = 0;  // of `backward`; not known of a measured profile
  double backward_macs = 0;
  Bytes moved;    // read and written
  Bytes weights;  // distinct weight storages it uses
  Bytes inputs;   // elements of its tensor inputs, weights left out
  Bytes outputs;  // elements of its tensor outputs
  Bytes saved;    // storages it keeps for backward, counted for it alone; 0 when `!training`
  Bytes peak;     // live while it runs: inputs + weights + outputs + workspace
  Bytes backward_workspace;  // what its backward needs beside what it reads and makes
  Source source = Source::estimated;

  // What it needs beside its inputs and outputs.
  Bytes workspace() const;
  friend bool operator==(const NodeCost&, const NodeCost&) = default;
};

// An operator the estimator has no formula for; it was costed by the bytes it moves.
struct UnknownOp {
  std::string op;
  std::int64_t count = 0;
  double share = 0;  // of the estimated time, forward and backward, 0 .. 1
  friend bool operator==(const UnknownOp&, const UnknownOp&) = default;
};

// Costs of all nodes of one graph. Saved as profile.json: by node name, with the graph's hash.
struct Profile {
  std::string graph_hash;
  std::string device_kind;
  std::int64_t batch = 0;  // the (micro-)batch size the figures are for; 0: the graph is static
  bool training = false;   // backward times and saved bytes are there
  Source source = Source::estimated;   // of the times as a whole
  std::vector<NodeCost> nodes;         // index = NodeId::index()
  std::vector<UnknownOp> unknown_ops;  // largest share first
  std::vector<std::string> notes;

  // Measured a block at a time: what each took, in an order in which they can run; times of nodes
  // are shares of those of their block. Empty for other profiles.
  std::vector<MeasuredBlock> blocks;
  // `blocks` are of a model that computes each of them again in backward: forward without autograd,
  // backward with a forward in it. Times of nodes are not: whoever plans adds what runs again.
  bool recompute = false;
  CacheUse cache;
  // By depth of the model's tree, what its modules take; the last has them all opened. Follows from
  // `blocks`.
  std::vector<std::vector<BlockRow>> levels;

  const NodeCost& node(NodeId id) const { return nodes[id.index()]; }
  Nanoseconds total_forward() const;
  Nanoseconds total_backward() const;
  std::vector<Bytes> workspaces() const;  // by node
  friend bool operator==(const Profile&, const Profile&) = default;
};

// The bytes of a node that follow from shapes alone: weights, inputs, outputs, peak (no workspace).
// Measured and estimated profiles both start from it. `batch` is ignored for static graphs.
NodeCost node_sizes(const Graph& graph, NodeId node, std::int64_t batch);

// Throws Error(invalid_profile) that names both hashes when it was made from another graph.
void check_profile_matches(const Profile& profile, const Graph& graph);

// profile.json: "kerf-profile" 1.2. Loading checks the hash and that every node is there once.
std::string print_profile(const Profile& profile, const Graph& graph);
Profile parse_profile(std::string_view text, const Graph& graph,
                      std::string_view source = "profile");
void save_profile(const Profile& profile, const Graph& graph, const std::string& path);
Profile load_profile(const std::string& path, const Graph& graph);

}  // namespace kerf
