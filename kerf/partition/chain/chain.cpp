// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/chain.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/partition/chain/chain_search.h"
#include "kerf/partition/chain/chain_table.h"
#include "kerf/partition/contiguous.h"
#include "kerf/partition/finish.h"

namespace kerf::partition {
namespace {

constexpr std::int64_t kDefaultWork = 2'000'000;

Outcome<Plan, Infeasible> place(const Problem& problem, const std::vector<std::size_t>& cuts) {
  std::vector<DeviceId> devices;
  for (std::size_t d = 0; d + 1 < cuts.size(); ++d) devices.emplace_back(d);
  return finish_plan(problem, intervals(cuts), devices, "chain");
}

// About `count` of the cuttable positions: the graph's work in equal shares, of each the position
// that the fewest bytes cross. A split at these is found fast and is rarely far from the best.
std::vector<bool> coarse_positions(const Intervals& intervals, const std::vector<bool>& cuttable,
                                   std::size_t count) {
  const std::size_t end = intervals.num_nodes();
  std::vector<bool> chosen(end + 1);
  const double share = intervals.work_before(end) / static_cast<double>(count);
  std::size_t start = 1;
  for (std::size_t bucket = 1; start < end; ++bucket) {
    std::size_t best = end;
    std::size_t p = start;
    const double until = share * static_cast<double>(bucket);
    for (; p < end && (p == start || intervals.work_before(p) <= until); ++p) {
      if (cuttable[p] &&
          (best == end || intervals.crossing(p).bytes < intervals.crossing(best).bytes))
        best = p;
    }
    chosen[best] = true;
    start = p;
  }
  chosen[0] = chosen[end] = true;
  return chosen;
}

// Solves the table for coarse splits, then for finer ones if none is possible. False: none of them.
bool solve_coarse(ChainTable& table, const Intervals& intervals, const std::vector<bool>& cuttable,
                  Measure measure) {
  for (const std::size_t count : {128, 1024}) {
    if (count * 2 > intervals.num_nodes()) break;
    table.solve(coarse_positions(intervals, cuttable, count), measure, kNever);
    if (table.best(0, 0) != kNever) return true;
  }
  return false;
}

// A value that some split reaches: the best need not look above it.
double find_cap(const Problem& problem, const ChainModel& model, ChainTable& table,
                const Intervals& intervals, const std::vector<bool>& cuttable) {
  if (!solve_coarse(table, intervals, cuttable, Measure::busiest)) return kNever;
  if (model.exact) return table.best(0, 0);
  const auto outcome = place(problem, table.cuts());
  return outcome ? outcome->busiest.count * (1 + 1e-9) : kNever;
}

// The contiguous split whose excess over the limits is least. When the model is exact, raising
// every limit by `short_by` lets it fit, and nothing less lets any contiguous split.
Outcome<Plan, Infeasible> least_overflow(const Problem& problem, ChainTable& table,
                                         const Intervals& intervals,
                                         const std::vector<bool>& cuttable) {
  const bool coarse = solve_coarse(table, intervals, cuttable, Measure::overflow);
  table.solve(cuttable, Measure::overflow, coarse ? table.best(0, 0) : kNever);
  const auto outcome = place(problem, table.cuts());
  if (outcome) return outcome;
  Infeasible reason = outcome.reason();
  reason.what_would_help = fmt::format(
      "in the best contiguous split every device needs at most {} more than its limit: raise the "
      "limits by that much, add a device, or use smaller micro-batches",
      to_string(reason.short_by));
  return reason;
}

Outcome<Plan, Infeasible> search(const Problem& problem, const ChainModel& model, ChainTable& table,
                                 const Intervals& intervals, const std::vector<bool>& cuttable,
                                 const Options& options) {
  const std::int64_t work = options.work_limit > 0 ? options.work_limit : kDefaultWork;
  ChainSearchResult found = search_chain(problem, intervals, model, table, cuttable, work);
  if (!found.cuts && found.closest && !found.truncated) return *found.closest;
  Outcome<Plan, Infeasible> outcome = found.cuts
                                          ? place(problem, *found.cuts)
                                          : least_overflow(problem, table, intervals, cuttable);
  if (outcome) {
    outcome->truncated = found.truncated;
  } else if (found.truncated) {
    Infeasible reason = outcome.reason();
    reason.what_would_help += " (the search was stopped: not proved impossible)";
    return reason;
  }
  return outcome;
}

}  // namespace

Outcome<Plan, Infeasible> chain(const Problem& problem, const Options& options) {
  const Intervals intervals(problem);
  const ChainModel model = make_chain_model(problem);
  const std::vector<bool> cuttable = cut_positions(problem.graph);
  ChainTable table(intervals, model);
  const double cap = find_cap(problem, model, table, intervals, cuttable);
  table.solve(cuttable, Measure::busiest, cap);
  const double best = table.best(0, 0);
  if (best == kNever) return least_overflow(problem, table, intervals, cuttable);
  if (!model.exact) return search(problem, model, table, intervals, cuttable, options);
  table.solve(cuttable, Measure::sum, best);
  return place(problem, table.cuts());
}

}  // namespace kerf::partition
