// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// maximise compute(S) subject to cut(S) + compute(S) < limit, relaxed by one multiplier. The least
// cost is a concave, piecewise linear function of the price; the best price is where its sets turn
// from too light to too heavy, found by intersecting the lines of one of each (discrete Newton).
#include "kerf/partition/mincut/balance.h"

#include <cmath>

namespace kerf::partition {
namespace {

// A set as a line over the price: cut + price * compute.
struct Line {
  double cut = 0;
  double compute = 0;
};

DeviceCut settled(const CutProblem& problem, std::span<const Hold> hold, double price,
                  FlowScratch& scratch) {
  DeviceCut cut(problem, price);
  for (std::uint32_t c = 0; c < hold.size(); ++c) {
    if (hold[c] == Hold::here) cut.hold(c);
    if (hold[c] == Hold::elsewhere) cut.forbid(c);
  }
  cut.settle(scratch, kEndless / 8);
  return cut;
}

Line line_of(const CutProblem& problem, const DeviceCut& cut) {
  Line line;
  for (std::uint32_t c = 0; c < problem.num_classes(); ++c) {
    if (cut.in_least(c)) line.compute += static_cast<double>(problem.compute[c]);
  }
  line.cut = static_cast<double>(cut.least()) - cut.price() * line.compute;
  return line;
}

Line fullest(const CutProblem& problem, std::span<const Hold> hold) {
  Line line;
  for (std::uint32_t c = 0; c < hold.size(); ++c) {
    if (hold[c] != Hold::elsewhere) line.compute += static_cast<double>(problem.compute[c]);
  }
  for (const CutProblem::Net& net : problem.nets) {
    std::size_t in = 0;
    for (const std::uint32_t c : net.classes) in += hold[c] != Hold::elsewhere ? 1 : 0;
    if (in > 0 && in < net.classes.size()) line.cut += static_cast<double>(net.cost);
  }
  return line;
}

}  // namespace

Flow most_compute(const DeviceCut& cut, Flow limit) {
  const double room = static_cast<double>(limit - cut.least());
  return static_cast<Flow>(std::floor(room / (1 - cut.price()) * (1 + 1e-12))) + 1;
}

DeviceCut tune_price(const CutProblem& problem, std::span<const Hold> hold, Flow limit,
                     FlowScratch& scratch) {
  Line heavy = fullest(problem, hold);
  // A price just below 1: the lightest load there is.
  DeviceCut best = settled(problem, hold, 0.999, scratch);
  Line light = line_of(problem, best);
  for (int round = 0; round < 12 && heavy.compute > light.compute + 1; ++round) {
    const double price = (light.cut - heavy.cut) / (heavy.compute - light.compute);
    if (price >= 0.999) break;
    DeviceCut cut = settled(problem, hold, std::max(price, -16.0), scratch);
    const Line line = line_of(problem, cut);
    if (most_compute(cut, limit) < most_compute(best, limit)) best = std::move(cut);
    const bool is_heavy = line.cut + line.compute >= static_cast<double>(limit);
    // No set below both lines: the price is the best one.
    const double both = light.cut + price * light.compute;
    if (line.cut + price * line.compute > both - 1e-9 * static_cast<double>(limit)) break;
    (is_heavy ? heavy : light) = line;
  }
  return best;
}

}  // namespace kerf::partition
