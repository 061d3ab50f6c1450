// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/host_share.h"

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/place/residence/stream_time.h"

namespace kerf {
namespace {

constexpr std::size_t kShares = 96;        // that are tried
constexpr std::size_t kManyUnits = 2'000;  // of which fewer are
constexpr std::size_t kSharesOfMany = 16;
constexpr double kWorthwhile = 0.99;    // of the time without: less is noise
constexpr std::size_t kFewUnits = 400;  // of which single ones change sides
constexpr int kPasses = 4;              // over them, at most
constexpr double kLookUp = 8;           // times longer: the copy of what is only looked up

// Units among `candidates` with `share` of `shares` of their bytes, evenly over all of them.
std::vector<Residence> with_share(const ResidenceProblem& problem, std::vector<Residence> of,
                                  const std::vector<std::size_t>& candidates, double share) {
  double passed = 0;
  double taken = 0;
  for (const std::size_t u : candidates) {
    const auto bytes = static_cast<double>(problem.units[u].bytes.count);
    passed += bytes;
    // Whichever is closer to the share: with this one, or without.
    if (taken + bytes / 2 > share * passed) continue;
    taken += bytes;
    of[u] = Residence::host;
  }
  return of;
}

ResidenceProblem with_times(ResidenceProblem problem, const RowTimes& times) {
  for (std::size_t u = 0; u < problem.units.size(); ++u) {
    problem.units[u].device_time = times.device_time[u];
    problem.units[u].host_time = times.host_time[u];
  }
  return problem;
}

// Streamed units that the host may compute. What it only looks up is not worth a copy.
struct Candidates {
  std::vector<std::size_t> looked_up;
  std::vector<std::size_t> computed;
};

Candidates candidates_of(const ResidenceProblem& problem, const std::vector<Residence>& of,
                         const std::vector<bool>& may_be_host) {
  Candidates out;
  for (std::size_t u = 0; u < of.size(); ++u) {
    const StreamUnit& unit = problem.units[u];
    if (of[u] != Residence::streamed || unit.host_time >= kNotOnTheHost) continue;
    if (!may_be_host[u]) continue;
    const bool looked_up = unit.host_time * kLookUp < problem.copy_time(unit.bytes);
    (looked_up ? out.looked_up : out.computed).push_back(u);
  }
  return out;
}

struct Split {
  std::vector<Residence> of;
  Nanoseconds time;
};

Split best_split(const ResidenceProblem& problem, Residences shared, const Candidates& candidates) {
  Split best{shared.of, stream_time(problem, shared)};
  std::vector<Residence> base = shared.of;
  for (const std::size_t u : candidates.looked_up) base[u] = Residence::host;
  Nanoseconds limit = best.time * kWorthwhile;
  const std::size_t shares = problem.units.size() > kManyUnits ? kSharesOfMany : kShares;
  for (std::size_t s = 0; s <= shares; ++s) {
    const double share = static_cast<double>(s) / static_cast<double>(shares);
    shared.of = with_share(problem, base, candidates.computed, share);
    const Nanoseconds time = stream_time(problem, shared);
    if (time >= limit) continue;
    best = {shared.of, time};
    limit = time;
  }
  return best;
}

// Units change sides one by one while that helps.
void improve(const ResidenceProblem& problem, Residences shared, const Candidates& candidates,
             Split& split) {
  std::vector<std::size_t> units = candidates.computed;
  units.insert(units.end(), candidates.looked_up.begin(), candidates.looked_up.end());
  bool improved = problem.units.size() <= kFewUnits;
  for (int pass = 0; improved && pass < kPasses; ++pass) {
    improved = false;
    for (const std::size_t u : units) {
      shared.of = split.of;
      const bool was_host = shared.of[u] == Residence::host;
      shared.of[u] = was_host ? Residence::streamed : Residence::host;
      const Nanoseconds time = stream_time(problem, shared);
      if (time >= split.time * kWorthwhile) continue;
      split = {shared.of, time};
      improved = true;
    }
  }
}

}  // namespace

HostShare share_with_host(const ResidenceProblem& problem, const Residences& residences,
                          std::span<const RowTimes> times) {
  KERF_CHECK(!times.empty(), "there is a number of rows");
  HostShare out{std::vector<std::int64_t>(problem.units.size()), {}};
  std::vector<bool> may_be_host(problem.units.size(), true);
  for (const RowTimes& row : times) {
    const ResidenceProblem now = with_times(problem, row);
    const Candidates candidates = candidates_of(now, residences.of, may_be_host);
    Split split = best_split(now, residences, candidates);
    improve(now, residences, candidates, split);
    if (&row == &times.front()) out.time = split.time;
    for (std::size_t u = 0; u < split.of.size(); ++u) {
      may_be_host[u] = split.of[u] == Residence::host;
      if (may_be_host[u]) out.most_rows[u] = row.rows;
    }
  }
  return out;
}

}  // namespace kerf
