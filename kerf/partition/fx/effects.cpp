// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/effects.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace kerf::partition::fx {
namespace {

class UnionFind {
 public:
  explicit UnionFind(std::size_t size) : root_(size) { std::iota(root_.begin(), root_.end(), 0U); }
  OpIndex find(OpIndex n) {
    while (root_[n] != n) n = root_[n] = root_[root_[n]];
    return n;
  }
  void join(OpIndex a, OpIndex b) {
    a = find(a);
    b = find(b);
    root_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<OpIndex> root_;
};

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
  const OpGraph& graph = request.graph;
  constexpr std::size_t kAlone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> group_of(graph.num_nodes(), kAlone);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const OpIndex n : groups[g]) group_of[n] = g;
  }
  // A group stands where all it reads is there: units in topological order, by first node.
  std::vector<std::vector<OpIndex>> units;
  std::vector<std::size_t> unit_of(graph.num_nodes());
  for (OpIndex n = 0; n < graph.num_nodes(); ++n) {
    const std::size_t g = group_of[n];
    if (g != kAlone && groups[g].front() != n) continue;
    for (const OpIndex member : g == kAlone ? std::vector<OpIndex>{n} : groups[g]) {
      unit_of[member] = units.size();
    }
    units.push_back(g == kAlone ? std::vector<OpIndex>{n} : groups[g]);
  }
  std::vector<std::vector<std::size_t>> before(units.size());
  std::vector<std::size_t> waiting(units.size(), 0);
  std::vector<std::vector<std::size_t>> after(units.size());
  for (OpIndex n = 0; n < graph.num_nodes(); ++n) {
    for (const OpIndex input : graph.inputs(n)) {
      if (unit_of[input] != unit_of[n]) before[unit_of[n]].push_back(unit_of[input]);
    }
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    std::sort(before[u].begin(), before[u].end());
    before[u].erase(std::unique(before[u].begin(), before[u].end()), before[u].end());
    waiting[u] = before[u].size();
    for (const std::size_t b : before[u]) after[b].push_back(u);
  }
  std::vector<std::size_t> ready;
  for (std::size_t u = units.size(); u-- > 0;) {
    if (waiting[u] == 0) ready.push_back(u);
  }
  Contracted out;
  std::vector<OpNode> nodes;
  std::vector<OpIndex> number(units.size());
  while (!ready.empty()) {
    const std::size_t u = ready.back();
    ready.pop_back();
    number[u] = static_cast<OpIndex>(nodes.size());
    const std::vector<OpIndex>& members = units[u];
    OpNode node = graph.node(members.front());
    if (members.size() > 1) {
      const Latency latency = partition_latency(graph, members);
      node.mem_latency = node.computer_latency = latency.overall;
      node.output_size = node.total_size = node.inner_size = 0;
      node.weights.clear();
      node.result = false;
      std::map<OpIndex, int> readers;
      for (const OpIndex n : members) {
        const OpNode& member = graph.node(n);
        const auto users = graph.users(n);
        const bool leaves = member.result || users.empty() ||
                            std::any_of(users.begin(), users.end(),
                                        [&](OpIndex user) { return unit_of[user] != u; });
        (leaves ? node.output_size : node.inner_size) += member.output_size;
        node.total_size += member.total_size;
        node.embedding = node.embedding || member.embedding;
        node.embedding_by_text = node.embedding_by_text || member.embedding_by_text;
        node.result = node.result || member.result;
        node.weights.insert(node.weights.end(), member.weights.begin(), member.weights.end());
        for (const OpIndex input : member.inputs) {
          if (unit_of[input] != u && !graph.node(input).leaf) ++readers[input];
        }
      }
      // The original charges a tensor from elsewhere for every reader.
      for (const auto& [input, times] : readers) {
        node.total_size += (times - 1) * graph.node(input).output_size;
      }
    }
    node.inputs.clear();
    for (const std::size_t b : before[u]) node.inputs.push_back(number[b]);
    node.aliases.clear();
    node.mutates.clear();
    nodes.push_back(std::move(node));
    out.members.push_back(members);
    for (const std::size_t next : after[u]) {
      if (--waiting[next] == 0) ready.push_back(next);
    }
  }
  out.request = request;
  out.request.graph = OpGraph(std::move(nodes));
  return out;
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
