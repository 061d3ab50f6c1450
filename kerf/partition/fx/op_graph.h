// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the FX family plans on: nodes in graph order with their sizes and latencies. Made from an FX
// module by the Python face, and from a Problem by methods.cpp. Bytes and seconds are plain numbers
// here, as in the tool this family comes from: its answers are compared bit for bit.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kerf/base/rows.h"

namespace kerf::partition::fx {

using OpIndex = std::uint32_t;  // position of a node in the graph's order

inline constexpr std::int64_t kNoSize = -1;
inline constexpr double kNoLatency = std::numeric_limits<double>::quiet_NaN();

struct OpNode {
  std::string name;
  std::string target;       // what it calls, when that is a text (a module, a method)
  std::string target_type;  // the type's name when it is none
  // A placeholder or a constant: it runs nowhere, and every partition that reads it has a copy.
  bool leaf = false;
  bool embedding = false;          // looks rows up in a table, by its type
  bool embedding_by_text = false;  // the original's test: "Embedding" in what its module prints
  // What it yields, in bytes, and that together with its parameters as the original counts them
  // (each call anew, in elements of the output's type). kNoSize: not known.
  std::int64_t output_size = kNoSize;
  std::int64_t total_size = kNoSize;
  double mem_latency = kNoLatency;  // seconds
  double computer_latency = kNoLatency;
  std::vector<OpIndex> inputs;  // distinct, in the order of the arguments
  // Storages of the parameters and buffers it uses, for the true accounting: number, bytes.
  std::vector<std::pair<std::uint32_t, std::int64_t>> weights;
  bool result = false;           // the graph's caller gets it
  std::vector<OpIndex> aliases;  // inputs whose memory its result may share
  std::vector<OpIndex> mutates;  // inputs that it changes in place
  std::int64_t inner_size = 0;   // tensors that it makes and nobody else sees: exact accounting

  double latency() const { return computer_latency < mem_latency ? mem_latency : computer_latency; }
};

// Frozen: nodes with the reverse of `inputs`.
class OpGraph {
 public:
  OpGraph() = default;
  // Inputs must come before their users. Throws Error(invalid_graph).
  explicit OpGraph(std::vector<OpNode> nodes);

  std::size_t num_nodes() const { return nodes_.size(); }
  const std::vector<OpNode>& nodes() const { return nodes_; }
  const OpNode& node(OpIndex n) const { return nodes_[n]; }
  std::span<const OpIndex> inputs(OpIndex n) const { return nodes_[n].inputs; }
  std::span<const OpIndex> users(OpIndex n) const { return users_[n]; }  // ascending
  // The nodes that run, ascending.
  const std::vector<OpIndex>& ops() const { return ops_; }

 private:
  std::vector<OpNode> nodes_;
  Rows users_;
  std::vector<OpIndex> ops_;
};

}  // namespace kerf::partition::fx
