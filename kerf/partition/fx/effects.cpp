// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/effects.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>

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
  std::vector<std::vector<OpIndex>> next(count);
  for (OpIndex n = 0; n < count; ++n) {
    for (const OpIndex user : graph.users(n)) {
      if (groups.find(n) != groups.find(user)) next[groups.find(n)].push_back(groups.find(user));
    }
  }
  // Strongly connected components (Tarjan), with an explicit stack.
  constexpr OpIndex kFresh = static_cast<OpIndex>(-1);
  std::vector<OpIndex> index(count, kFresh);
  std::vector<OpIndex> low(count, 0);
  std::vector<bool> open(count);
  std::vector<OpIndex> component;
  std::vector<std::pair<OpIndex, std::size_t>> stack;
  OpIndex counter = 0;
  for (OpIndex start = 0; start < count; ++start) {
    if (index[start] == kFresh) stack.emplace_back(start, 0);
    while (!stack.empty()) {
      auto& [n, at] = stack.back();
      if (at == 0) {
        index[n] = low[n] = counter++;
        open[n] = true;
        component.push_back(n);
      }
      if (at < next[n].size()) {
        const OpIndex to = next[n][at++];
        if (index[to] == kFresh) {
          stack.emplace_back(to, 0);
        } else if (open[to]) {
          low[n] = std::min(low[n], index[to]);
        }
        continue;
      }
      const OpIndex done = n;
      stack.pop_back();
      if (!stack.empty()) low[stack.back().first] = std::min(low[stack.back().first], low[done]);
      if (low[done] != index[done]) continue;
      for (OpIndex member = kFresh; member != done;) {
        member = component.back();
        component.pop_back();
        open[member] = false;
        groups.join(member, done);
      }
    }
  }
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
      : request_(request), graph_(request.graph), unit_of_(graph_.num_nodes(), kNone) {
    std::vector<std::size_t> group_of(graph_.num_nodes(), kNone);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (const OpIndex n : groups[g]) group_of[n] = g;
    }
    for (OpIndex n = 0; n < graph_.num_nodes(); ++n) {
      if (unit_of_[n] != kNone) continue;
      units_.push_back(group_of[n] == kNone ? std::vector<OpIndex>{n} : groups[group_of[n]]);
      for (const OpIndex member : units_.back()) unit_of_[member] = units_.size() - 1;
    }
    before_.resize(units_.size());
    for (OpIndex n = 0; n < graph_.num_nodes(); ++n) {
      for (const OpIndex input : graph_.inputs(n)) {
        if (unit_of_[input] != unit_of_[n]) before_[unit_of_[n]].push_back(unit_of_[input]);
      }
    }
    for (std::vector<std::size_t>& list : before_) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  Contracted run() const {
    Contracted out;
    std::vector<OpNode> nodes;
    std::vector<OpIndex> number(units_.size());
    for (const std::size_t u : order()) {
      number[u] = static_cast<OpIndex>(nodes.size());
      OpNode node = units_[u].size() > 1 ? joined(u) : graph_.node(units_[u].front());
      node.inputs.clear();
      for (const std::size_t b : before_[u]) node.inputs.push_back(number[b]);
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
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // A group stands where all it reads is there.
  std::vector<std::size_t> order() const {
    std::vector<std::size_t> waiting(units_.size());
    std::vector<std::vector<std::size_t>> after(units_.size());
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      waiting[u] = before_[u].size();
      if (waiting[u] == 0) ready.push(u);
      for (const std::size_t b : before_[u]) after[b].push_back(u);
    }
    std::vector<std::size_t> out;
    while (!ready.empty()) {
      out.push_back(ready.top());
      ready.pop();
      for (const std::size_t next : after[out.back()]) {
        if (--waiting[next] == 0) ready.push(next);
      }
    }
    return out;
  }

  OpNode joined(std::size_t unit) const {
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
  std::vector<std::size_t> unit_of_;              // by node
  std::vector<std::vector<std::size_t>> before_;  // units that a unit reads
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
    std::sort(memories.begin(), memories.end());
    memories.erase(std::unique(memories.begin(), memories.end()), memories.end());
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
