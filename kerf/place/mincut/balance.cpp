// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// maximise compute(S) subject to load(S) < limit, relaxed by one multiplier. The least cost is a
// concave, piecewise linear function of the reward; the best reward is where its sets turn from too
// light to too heavy, found by intersecting the lines of one of each (discrete Newton).
#include "kerf/place/mincut/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kerf::place {
namespace {

constexpr double kLeastReward = 0.001;

// A set as a line over the reward: load - reward * compute.
struct Line {
  double load = 0;
  double compute = 0;
  double at(double reward) const { return load - reward * compute; }
};

DeviceCut settled(const CutNetwork& network, const DeviceKind& kind, std::span<const Hold> hold,
                  double reward, FlowScratch& scratch) {
  DeviceCut cut(network, kind, reward);
  for (UnitId t{0}; t < hold.size(); ++t) {
    if (hold[t] == Hold::here) cut.hold(t);
    if (hold[t] == Hold::elsewhere) cut.forbid(t);
  }
  cut.settle(scratch, kEndless / 8);
  return cut;
}

Line line_of(const CutNetwork& network, const DeviceCut& cut) {
  Line line;
  for (UnitId t{0}; t < network.num_units(); ++t) {
    if (cut.in_least(t)) line.compute += static_cast<double>(network.compute[t]);
  }
  line.load = static_cast<double>(cut.least()) + cut.reward() * line.compute;
  return line;
}

Line fullest(const CutNetwork& network, const DeviceKind& kind, std::span<const Hold> hold) {
  Line line;
  const auto in = [&](UnitId t) { return hold[t] != Hold::elsewhere; };
  for (UnitId t{0}; t < hold.size(); ++t) {
    if (!in(t)) continue;
    line.compute += static_cast<double>(network.compute[t]);
    line.load += static_cast<double>(kind.time[t]);
  }
  for (NetId net{0}; net < network.cost.size(); ++net) {
    if (network.is_charged(net, in)) line.load += static_cast<double>(network.cost[net]);
  }
  return line;
}

// Past this a set is taken for its compute whatever it costs; a slow device needs more.
double largest_reward(const CutNetwork& network, const DeviceKind& kind) {
  const auto time = std::accumulate(kind.time.begin(), kind.time.end(), 0.0);
  const auto compute = static_cast<double>(network.total_compute);
  return 17 * (compute > 0 ? std::clamp(time / compute, 1.0, 32.0) : 1);
}

}  // namespace

Flow most_compute(const DeviceCut& cut, Flow limit) {
  const double room = static_cast<double>(limit - cut.least());
  return static_cast<Flow>(std::floor(room / cut.reward() * (1 + 1e-12))) + 1;
}

DeviceCut tune_reward(const CutNetwork& network, const DeviceKind& kind, std::span<const Hold> hold,
                      Flow limit, FlowScratch& scratch) {
  Line heavy = fullest(network, kind, hold);
  const double most = largest_reward(network, kind);
  // A reward just above 0: the lightest load there is.
  DeviceCut best = settled(network, kind, hold, kLeastReward, scratch);
  Line light = line_of(network, best);
  for (int round = 0; round < 12 && heavy.compute > light.compute + 1; ++round) {
    const double crossing = (heavy.load - light.load) / (heavy.compute - light.compute);
    if (crossing <= kLeastReward || scratch.stopped) break;
    DeviceCut cut = settled(network, kind, hold, std::min(crossing, most), scratch);
    const Line line = line_of(network, cut);
    if (most_compute(cut, limit) < most_compute(best, limit)) best = std::move(cut);
    // No set below both lines: the reward is the best one.
    const double both = light.at(crossing);
    if (line.at(crossing) > both - 1e-9 * static_cast<double>(limit)) break;
    (line.load >= static_cast<double>(limit) ? heavy : light) = line;
  }
  return best;
}

}  // namespace kerf::place
