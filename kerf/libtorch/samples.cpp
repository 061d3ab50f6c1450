// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/samples.h"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace kerf {
namespace {

double at_share(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

double between_quartiles(const std::vector<double>& sorted) {
  return at_share(sorted, 0.75) - at_share(sorted, 0.25);
}

bool settled(std::vector<double> totals, double spread) {
  std::sort(totals.begin(), totals.end());
  return between_quartiles(totals) <= spread * at_share(totals, 0.5);
}

}  // namespace

Samples Samples::take(const std::function<std::vector<double>()>& pass,
                      const SampleLimits& limits) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < limits.warmup; ++i) pass();
  Samples samples;
  std::vector<double> totals;
  while (samples.num_passes() < limits.max_passes) {
    samples.passes_.push_back(pass());
    const std::vector<double>& last = samples.passes_.back();
    totals.push_back(std::accumulate(last.begin(), last.end(), 0.0));
    if (samples.num_passes() < limits.min_passes) continue;
    if (settled(totals, limits.spread)) break;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (spent.count() > limits.budget_seconds) break;
  }
  return samples;
}

std::vector<double> Samples::of(std::size_t step) const {
  std::vector<double> out;
  out.reserve(passes_.size());
  for (const std::vector<double>& pass : passes_) out.push_back(pass[step]);
  std::sort(out.begin(), out.end());
  return out;
}

double Samples::spread(std::size_t step) const { return between_quartiles(of(step)); }

std::vector<double> Samples::medians(std::size_t first, std::size_t count) const {
  std::vector<double> out;
  out.reserve(count);
  for (std::size_t i = first; i < first + count; ++i) out.push_back(at_share(of(i), 0.5));
  std::vector<double> totals;
  for (const std::vector<double>& pass : passes_) {
    const auto begin = pass.begin() + static_cast<std::ptrdiff_t>(first);
    totals.push_back(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(count), 0.0));
  }
  std::sort(totals.begin(), totals.end());
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  if (sum <= 0) return out;
  for (double& median : out) median *= at_share(totals, 0.5) / sum;
  return out;
}

}  // namespace kerf
