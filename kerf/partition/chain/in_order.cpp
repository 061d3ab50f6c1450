// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/in_order.h"

#include <fmt/format.h>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/chain/chain_search.h"
#include "kerf/partition/chain/chain_table.h"
#include "kerf/partition/chain/coarse.h"
#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/raise/finish.h"

namespace kerf::partition {
namespace {

class InOrder {
 public:
  InOrder(const ChainInput& input, std::span<const DeviceId> order)
      : input_(input),
        model_(make_chain_model(input.problem, order)),
        table_(input.intervals, model_) {}

  Outcome<Plan, Infeasible> solve(const Options& options) {
    constexpr std::size_t kFewNodes = 256;  // no coarse split was looked for, and none is needed
    const double cap = find_cap();
    if (input_.intervals.num_nodes() <= kFewNodes) {
      table_.solve(input_.cuttable, Measure::busiest, cap);
    } else if (!table_.solve_in_time(input_.cuttable, Measure::busiest, cap)) {
      return place_coarse();
    }
    const double best = table_.best(0, 0);
    if (best == kInfinity) return least_overflow();
    if (!model_.exact) return search(options);
    const std::vector<std::size_t> cuts = table_.cuts();
    const bool in_time = table_.solve_in_time(input_.cuttable, Measure::sum, best);
    return place_cuts(in_time ? table_.cuts() : cuts);
  }

  OrderScore score(const std::vector<bool>& positions) {
    table_.solve(positions, Measure::busiest, kInfinity);
    const double best = table_.best(0, 0);
    if (best == kInfinity) {
      table_.solve(positions, Measure::overflow, kInfinity);
      return {table_.best(0, 0), kInfinity};
    }
    if (model_.exact) return {0, best};
    const auto outcome = place_cuts(table_.cuts());
    if (!outcome) return {static_cast<double>(outcome.reason().short_by.count), kInfinity};
    return {0, outcome->busiest.count};
  }

 private:
  Outcome<Plan, Infeasible> place_cuts(const std::vector<std::size_t>& cuts) const {
    std::vector<DeviceId> devices = model_.ids;
    devices.resize(cuts.size() - 1);  // a search may end before the last device
    return place(input_.problem, {std::move(devices), cuts});
  }

  // Solves the table for coarse splits, then for finer ones if none is possible. False: none.
  bool solve_coarse(Measure measure) {
    for (const std::size_t count : {128U, 1024U}) {
      if (count * 2 > input_.intervals.num_nodes()) break;
      if (count > 128 && deadline_passed()) break;
      table_.solve(coarse_positions(input_.intervals, input_.cuttable, count), measure, kInfinity);
      if (table_.best(0, 0) != kInfinity) return true;
    }
    return false;
  }

  // A value that some split reaches: the best need not look above it.
  double find_cap() {
    if (!solve_coarse(Measure::busiest)) return kInfinity;
    coarse_cuts_ = table_.cuts();
    if (model_.exact) return table_.best(0, 0);
    const auto outcome = place_cuts(table_.cuts());
    return outcome ? outcome->busiest.count * kSlack : kInfinity;
  }

  // Time was up before all positions had been looked at.
  Outcome<Plan, Infeasible> place_coarse() {
    if (coarse_cuts_.empty()) return least_overflow();
    auto outcome = place_cuts(coarse_cuts_);
    if (!outcome) return unproved(outcome.reason());
    outcome->truncated = true;
    return outcome;
  }

  // The contiguous split whose excess over the limits is least. When the model is exact, raising
  // every limit by `short_by` lets it fit, and nothing less lets any contiguous split.
  Outcome<Plan, Infeasible> least_overflow() {
    const bool coarse = solve_coarse(Measure::overflow);
    const double cap = coarse ? table_.best(0, 0) : kInfinity;
    const std::vector<std::size_t> cuts = coarse ? table_.cuts() : std::vector<std::size_t>{};
    bool in_time = true;
    if (coarse) {
      in_time = table_.solve_in_time(input_.cuttable, Measure::overflow, cap);
    } else {
      table_.solve(input_.cuttable, Measure::overflow, cap);
    }
    auto outcome = place_cuts(in_time ? table_.cuts() : cuts);
    if (outcome) {
      outcome->truncated = !in_time;
      return outcome;
    }
    return in_time ? explain_shortage(outcome.reason()) : unproved(outcome.reason());
  }

  Outcome<Plan, Infeasible> search(const Options& options) {
    ChainSearchResult found = search_chain(input_.problem, input_.intervals, model_, table_,
                                           input_.cuttable, search_work(options));
    if (!found.cuts && found.closest && !found.truncated) return *found.closest;
    Outcome<Plan, Infeasible> outcome = found.cuts ? place_cuts(*found.cuts) : least_overflow();
    if (!outcome) return found.truncated ? unproved(outcome.reason()) : outcome.reason();
    outcome->truncated = found.truncated;
    return outcome;
  }

  const ChainInput& input_;
  ChainModel model_;
  ChainTable table_;
  std::vector<std::size_t> coarse_cuts_;  // a split that fits, as far as the model knows
};

}  // namespace

ChainInput::ChainInput(const Problem& given)
    : problem(given), intervals(given), cuttable(cut_positions(given.graph)) {}

Outcome<Plan, Infeasible> place(const Problem& problem, const Arrangement& arrangement) {
  return finish_plan(problem, intervals(arrangement.cuts), arrangement.devices, "chain");
}

Infeasible explain_shortage(Infeasible reason) {
  reason.what_would_help = fmt::format(
      "in the best contiguous split every device needs at most {} more than its limit: raise the "
      "limits by that much, add a device, or use smaller micro-batches",
      to_string(reason.short_by));
  return reason;
}

Infeasible unproved(Infeasible reason) {
  constexpr std::string_view kStopped = " (the search was stopped: not proved impossible)";
  if (!reason.what_would_help.ends_with(kStopped)) reason.what_would_help += kStopped;
  return reason;
}

Outcome<Plan, Infeasible> solve_in_order(const ChainInput& input, std::span<const DeviceId> order,
                                         const Options& options) {
  return InOrder(input, order).solve(options);
}

OrderScore score_order(const ChainInput& input, std::span<const DeviceId> order,
                       const std::vector<bool>& positions) {
  return InOrder(input, order).score(positions);
}

std::int64_t search_work(const Options& options) {
  constexpr std::int64_t kDefaultWork = 2'000'000;
  return options.work_limit > 0 ? options.work_limit : kDefaultWork;
}

}  // namespace kerf::partition
