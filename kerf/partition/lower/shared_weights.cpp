// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/lower/shared_weights.h"

#include <algorithm>

#include "kerf/partition/lower/contiguous.h"

namespace kerf::partition {
namespace {

struct Span {
  std::size_t first = static_cast<std::size_t>(-1);
  std::size_t last = 0;
};

// First and last user of every storage that weights are in.
std::vector<Span> weight_users(const Graph& graph) {
  std::vector<Span> users(graph.storages().size());
  for (const Weight& weight : graph.weights()) {
    const Value& value = graph.value(weight.value);
    if (value.scalar) continue;
    Span& span = users[value.storage.index()];
    for (const NodeId user : graph.consumers(weight.value)) {
      span.first = std::min(span.first, user.index());
      span.last = std::max(span.last, user.index());
    }
  }
  return users;
}

double bytes_of(const Problem& problem, std::size_t storage) {
  return static_cast<double>(problem.graph.storages()[storage].bytes.eval(problem.micro_batch()));
}

// The weights take most of all memory.
bool is_short(const Problem& problem, const std::vector<Span>& users) {
  constexpr double kMost = 0.7;
  double room = 0;
  for (int g = 0; g < problem.cluster.num_memory_groups(); ++g) {
    if (!problem.cluster.group_limited(g)) return false;
    room += static_cast<double>(problem.cluster.group_limit(g).count);
  }
  double weights = 0;
  for (std::size_t s = 0; s < users.size(); ++s) {
    if (users[s].first <= users[s].last) weights += bytes_of(problem, s);
  }
  return weights > kMost * room;
}

}  // namespace

std::vector<std::size_t> join_weight_sharers(const Problem& problem,
                                             std::vector<std::size_t> unit_of) {
  const Graph& graph = problem.graph;
  const std::vector<Span> users = weight_users(graph);
  if (!is_short(problem, users)) return unit_of;
  std::vector<double> time_before{0};
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    time_before.push_back(time_before.back() + problem.node_time(NodeId{n}).count);
  }
  // A device should still have a choice of some.
  const auto pieces = static_cast<double>(2 * problem.cluster.num_devices());
  const double longest = time_before.back() / pieces;
  const double fewest_nodes = static_cast<double>(graph.num_nodes()) / pieces;
  const std::vector<bool> cuttable = cut_positions(graph);
  std::vector<bool> joined(graph.num_nodes());  // with the node before
  for (const Span& span : users) {
    if (span.first >= span.last) continue;
    std::size_t begin = span.first;
    std::size_t end = span.last + 1;
    // What it overlaps comes along: spans that overlap one after the other could be everything.
    while (!cuttable[begin] || joined[begin]) --begin;
    while (!cuttable[end] || (end < joined.size() && joined[end])) ++end;
    const bool close = time_before[end] - time_before[begin] <= longest &&
                       static_cast<double>(end - begin) <= std::max(fewest_nodes, 2.0);
    if (!close) continue;
    for (std::size_t n = begin + 1; n < end; ++n) joined[n] = true;
  }
  if (std::none_of(joined.begin(), joined.end(), [](bool each) { return each; })) return unit_of;
  // Numbered by first node again; a run swallows whole units, for it ends where one may be cut.
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> number(graph.num_nodes(), kNone);  // by old unit
  std::size_t next = 0;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const std::size_t old = unit_of[n];
    if (joined[n]) {
      number[old] = unit_of[n - 1];
    } else if (number[old] == kNone) {
      number[old] = next++;
    }
    unit_of[n] = number[old];
  }
  return unit_of;
}

}  // namespace kerf::partition
