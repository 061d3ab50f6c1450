// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/metis/metis_starts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "kerf/base/stop_clock.h"
#include "kerf/place/metis/kway.h"

namespace kerf::place {
namespace {

// METIS counts in whole numbers, and sums of them must fit 31 bits.
constexpr double kWholeSum = 5e8;

std::int32_t to_whole(double value, double scale) {
  return static_cast<std::int32_t>(std::lround(value * scale));
}

// No unit counts for more than a part's share: a part cannot hold less than it, and METIS, which
// halves and halves again, would be left with empty halves (and say so on standard output).
double most_time(const Instance& problem) {
  std::vector<double> times = problem.accelerator_time;
  std::sort(times.begin(), times.end(), std::greater<>());
  double rest = std::accumulate(times.begin(), times.end(), 0.0);
  // The largest ones each take a part; what is left is shared by the others.
  for (std::uint32_t parts = problem.cpu; parts > 1; --parts) {
    const double largest = times[problem.cpu - parts];
    if (largest <= rest / parts) return rest / parts;
    rest -= largest;
  }
  return rest;
}

KwayGraph unit_graph(const Instance& problem) {
  std::vector<std::map<std::uint32_t, double>> edges(problem.num_units());
  double cost = 0;
  for (NetId net{0}; net < problem.num_nets(); ++net) {
    const UnitId source = problem.source[net];
    for (const UnitId unit : problem.pins[net]) {
      if (unit == source) continue;
      edges[source][unit] += problem.cost[net];
      edges[unit][source] += problem.cost[net];
      cost += problem.cost[net];
    }
  }
  const double edge_scale = cost > 0 ? kWholeSum / cost : 1;
  const double most = most_time(problem);
  double time = 0;
  for (const double each : problem.accelerator_time) time += std::min(each, most);
  const double time_scale = time > 0 ? kWholeSum / time : 1;
  KwayGraph graph;
  graph.first.push_back(0);
  for (std::size_t u = 0; u < edges.size(); ++u) {
    // From 1: units without time are to be shared out, too.
    const double share = std::min(problem.accelerator_time[u], most);
    graph.vertex_weights.push_back(1 + to_whole(share, time_scale));
    for (const auto& [other, weight] : edges[u]) {
      graph.neighbours.push_back(static_cast<std::int32_t>(other));
      graph.edge_weights.push_back(std::max(1, to_whole(weight, edge_scale)));
    }
    graph.first.push_back(static_cast<std::int32_t>(graph.neighbours.size()));
  }
  return graph;
}

// In proportion to speed; none where they are equal.
std::vector<double> shares_of(const Instance& problem) {
  std::vector<double> shares;
  if (problem.has_equal_speeds()) return shares;
  double sum = 0;
  for (const double slowness : problem.slowness) sum += 1 / slowness;
  for (const double slowness : problem.slowness) shares.push_back(1 / slowness / sum);
  return shares;
}

}  // namespace

std::vector<Split> metis_starts(const Instance& problem, std::uint64_t seed) {
  const std::size_t units = problem.num_units();
  const bool useful = problem.cpu > 1 && units > problem.cpu;
  if (!has_metis() || !useful) return {};
  const KwayGraph graph = unit_graph(problem);
  std::vector<Split> starts;
  for (const double imbalance : {0.03, 0.1, 0.3}) {
    constexpr std::size_t kStepsEach = 100;
    count_steps(static_cast<std::int64_t>(kStepsEach * (units + graph.neighbours.size())));
    std::vector<SlotId> part =
        metis_kway(graph, {static_cast<int>(problem.cpu), imbalance, shares_of(problem), seed});
    if (part.empty()) continue;
    for (std::size_t u = 0; u < units; ++u) {
      if (problem.on_accelerator[u] == 0) part[u] = problem.cpu;
    }
    starts.push_back(std::move(part));
  }
  return starts;
}

}  // namespace kerf::place
