// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/probe_cost.h"

#include <algorithm>
#include <numeric>

namespace kerf {
namespace {

// The cost c for which the sum of max(0, t - c) is `total`: with the k longest times above it,
// c = (their sum - total) / k, right for the first k whose next time is not above c.
double cost_of_a_probe(std::vector<double> times, double total) {
  std::sort(times.rbegin(), times.rend());
  double sum = 0;
  for (std::size_t k = 0; k < times.size(); ++k) {
    sum += times[k];
    const double cost = (sum - total) / static_cast<double>(k + 1);
    if (k + 1 == times.size() || times[k + 1] <= cost) return cost;
  }
  return 0;
}

}  // namespace

std::vector<double> without_probe_cost(std::vector<double> times, double total) {
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  if (sum <= 0) return times;
  if (sum <= total) {
    for (double& time : times) time *= total / sum;
    return times;
  }
  const double cost = cost_of_a_probe(times, total);
  for (double& time : times) time = std::max(0.0, time - cost);
  return times;
}

}  // namespace kerf
