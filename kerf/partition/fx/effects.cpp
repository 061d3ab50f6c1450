// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/effects.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kerf/base/infinity.h"
#include "kerf/base/sort_unique.h"
#include "kerf/base/strong_components.h"
#include "kerf/base/topological_order.h"
#include "kerf/base/union_find.h"

namespace kerf::partition::fx {
namespace {

bool reads(const OpGraph& graph, OpIndex reader, OpIndex input) {
  const auto inputs = graph.inputs(reader);
  return std::find(inputs.begin(), inputs.end(), input) != inputs.end();
}

// Everything that data from `start` reaches, or that reaches it.
std::vector<bool> connected(const OpGraph& graph, OpIndex start) {
  std::vector<bool> seen(graph.num_nodes());
  seen[start] = true;
  for (OpIndex n = start + 1; n < graph.num_nodes(); ++n) {
    for (const OpIndex input : graph.inputs(n))
      seen[n] = seen[n] || (seen[input] && input >= start);
  }
  std::vector<OpIndex> stack{start};
  while (!stack.empty()) {
    const OpIndex n = stack.back();
    stack.pop_back();
    for (const OpIndex input : graph.inputs(n)) {
      if (seen[input]) continue;
      seen[input] = true;
      stack.push_back(input);
    }
  }
  return seen;
}

// Contracting groups may close cycles; what lies on one belongs together.
void close(const OpGraph& graph, UnionFind& groups) {
  const auto count = static_cast<OpIndex>(graph.num_nodes());
  Pairs edges;
  for (OpIndex n = 0; n < count; ++n) {
    for (const OpIndex user : graph.users(n)) {
      edges.emplace_back(groups.find(n), groups.find(user));
    }
  }
  const std::vector<OpIndex> component = strong_components(to_rows(count, edges));
  for (OpIndex n = 0; n < count; ++n) groups.join(groups.find(n), component[groups.find(n)]);
}

// Members of the groups that have two or more ops.
std::vector<std::vector<OpIndex>> listed(const OpGraph& graph, UnionFind& groups) {
  std::map<OpIndex, std::vector<OpIndex>> by_root;
  for (const OpIndex n : graph.ops()) by_root[groups.find(n)].push_back(n);
  std::vector<std::vector<OpIndex>> out;
  for (auto& [root, members] : by_root) {
    if (members.size() > 1) out.push_back(std::move(members));
  }
  return out;
}

class Contraction {
 public:
  Contraction(const Request& request, const std::vector<std::vector<OpIndex>>& groups)
      : request_(request), graph_(request.graph), unit_of_(graph_.num_nodes(), kNoIndex) {
    std::vector<std::uint32_t> group_of(graph_.num_nodes(), kNoIndex);
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
      for (const OpIndex n : groups[g]) group_of[n] = g;
    }
    for (OpIndex n = 0; n < graph_.num_nodes(); ++n) {
      if (unit_of_[n] != kNoIndex) continue;
      units_.push_back(group_of[n] == kNoIndex ? std::vector<OpIndex>{n} : groups[group_of[n]]);
      for (const OpIndex member : units_.back()) unit_of_[member] = num_units() - 1;
    }
    Pairs edges;
    for (OpIndex n = 0; n < graph_.num_nodes(); ++n) {
      for (const OpIndex input : graph_.inputs(n)) {
        if (unit_of_[input] != unit_of_[n]) edges.emplace_back(unit_of_[input], unit_of_[n]);
      }
    }
    after_ = to_rows(num_units(), edges);
    before_ = transpose(after_, num_units());
  }

  Contracted run() const {
    Contracted out;
    std::vector<OpNode> nodes;
    std::vector<OpIndex> number(units_.size());
    // A group stands where all it reads is there.
    for (const std::uint32_t u :
         least_first_order(num_units(), each_next_of(after_), by_own_number())) {
      number[u] = static_cast<OpIndex>(nodes.size());
      OpNode node = units_[u].size() > 1 ? joined(u) : graph_.node(units_[u].front());
      node.inputs.clear();
      for (const std::uint32_t b : before_[u]) node.inputs.push_back(number[b]);
      node.aliases.clear();
      node.mutates.clear();
      nodes.push_back(std::move(node));
      out.members.push_back(units_[u]);
    }
    out.request = request_;
    out.request.graph = OpGraph(std::move(nodes));
    return out;
  }

 private:
  std::uint32_t num_units() const { return static_cast<std::uint32_t>(units_.size()); }

  OpNode joined(std::uint32_t unit) const {
    const std::vector<OpIndex>& members = units_[unit];
    OpNode node = graph_.node(members.front());
    node.mem_latency = node.computer_latency = latency(members);
    node.output_size = node.total_size = node.inner_size = 0;
    node.weights.clear();
    node.result = false;
    std::map<OpIndex, int> readers;
    for (const OpIndex n : members) {
      const OpNode& member = graph_.node(n);
      (is_seen(n) ? node.output_size : node.inner_size) += member.output_size;
      node.total_size += member.total_size;
      node.embedding = node.embedding || member.embedding;
      node.embedding_by_text = node.embedding_by_text || member.embedding_by_text;
      node.result = node.result || member.result;
      node.weights.insert(node.weights.end(), member.weights.begin(), member.weights.end());
      for (const OpIndex input : member.inputs) {
        if (unit_of_[input] != unit && !graph_.node(input).leaf) ++readers[input];
      }
    }
    // The original charges a tensor from elsewhere for every reader.
    for (const auto& [input, times] : readers) {
      node.total_size += (times - 1) * graph_.node(input).output_size;
    }
    return node;
  }
  double latency(std::span<const OpIndex> members) const {
    const bool known = std::none_of(members.begin(), members.end(), [&](OpIndex n) {
      return std::isnan(graph_.node(n).mem_latency) || std::isnan(graph_.node(n).computer_latency);
    });
    return known ? partition_latency(graph_, members).overall : kNoLatency;
  }
  // By somebody outside its group.
  bool is_seen(OpIndex n) const {
    const auto users = graph_.users(n);
    return graph_.node(n).result || users.empty() ||
           std::any_of(users.begin(), users.end(),
                       [&](OpIndex user) { return unit_of_[user] != unit_of_[n]; });
  }

  const Request& request_;
  const OpGraph& graph_;
  std::vector<std::vector<OpIndex>> units_;
  std::vector<std::uint32_t> unit_of_;  // by node
  Rows before_;                         // units that a unit reads
  Rows after_;
};

}  // namespace

std::vector<std::vector<OpIndex>> inseparable_ops(const OpGraph& graph) {
  const auto count = static_cast<OpIndex>(graph.num_nodes());
  UnionFind memory(count);
  std::vector<OpIndex> mutations;
  for (OpIndex n = 0; n < count; ++n) {
    for (const OpIndex input : graph.node(n).aliases) memory.join(n, input);
    if (!graph.node(n).mutates.empty()) mutations.push_back(n);
  }
  if (mutations.empty()) return {};
  std::map<OpIndex, std::vector<OpIndex>> touching;  // by memory that is changed
  for (const OpIndex n : mutations) {
    for (const OpIndex input : graph.node(n).mutates) touching[memory.find(input)];
  }
  for (const OpIndex n : graph.ops()) {
    std::vector<OpIndex> memories{memory.find(n)};
    for (const OpIndex input : graph.inputs(n)) memories.push_back(memory.find(input));
    sort_unique(memories);
    for (const OpIndex each : memories) {
      const auto found = touching.find(each);
      if (found != touching.end()) found->second.push_back(n);
    }
  }
  UnionFind groups(count);
  for (const OpIndex n : mutations) {
    std::vector<OpIndex> others;
    for (const OpIndex input : graph.node(n).mutates) {
      for (const OpIndex other : touching[memory.find(input)]) {
        if (other != n && !reads(graph, other, n) && !reads(graph, n, other)) {
          others.push_back(other);
        }
      }
    }
    if (others.empty()) continue;  // as with most activations in place
    const std::vector<bool> ordered = connected(graph, n);
    for (const OpIndex other : others) {
      if (!ordered[other]) groups.join(n, other);
    }
  }
  close(graph, groups);
  return listed(graph, groups);
}

Contracted contract(const Request& request, const std::vector<std::vector<OpIndex>>& groups) {
  return Contraction(request, groups).run();
}

std::vector<Partition> expand(const Request& request, const Contracted& contracted,
                              std::span<const Partition> partitions) {
  std::vector<Partition> out(partitions.begin(), partitions.end());
  for (Partition& partition : out) {
    std::vector<OpIndex> ops;
    for (const OpIndex n : partition.nodes) {
      const std::vector<OpIndex>& members = contracted.members[n];
      for (const OpIndex member : members) {
        if (!request.graph.node(member).leaf) ops.push_back(member);
      }
    }
    partition.nodes = with_leaves(request.graph, ops);
    partition.used_bytes = used_bytes(request.graph, partition.nodes);
  }
  reorganize(request.graph, out);
  return out;
}

}  // namespace kerf::partition::fx
