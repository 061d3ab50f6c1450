// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/in_order.h"

#include <optional>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/chain/by_position.h"
#include "kerf/partition/chain/chain_search.h"
#include "kerf/partition/chain/coarse.h"

namespace kerf::partition {
namespace {

class InOrder {
 public:
  InOrder(const ChainInput& input, std::span<const DeviceId> order)
      : input_(input),
        lineup_(Lineup::in_order(make_chain_model(input.problem, order))),
        table_(input.intervals, lineup_) {}

  Outcome<Plan, Infeasible> solve(const Options& options) {
    if (!table_.solve(input_.cuttable, Measure::busiest, find_cap())) return place_coarse();
    const double best = table_.best();
    if (best == kInfinity) return least_overflow();
    if (!is_exact()) return search(options);
    const Arrangement found = table_.arrangement();
    const bool in_time = table_.solve(input_.cuttable, Measure::sum, best);
    return placed(in_time ? table_.arrangement() : found);
  }

  OrderScore score(const std::vector<bool>& positions) {
    table_.solve_anyhow(positions, Measure::busiest, kInfinity);
    const double best = table_.best();
    if (best == kInfinity) {
      table_.solve_anyhow(positions, Measure::overflow, kInfinity);
      return {table_.best(), kInfinity};
    }
    if (is_exact()) return {0, best};
    const auto outcome = placed(table_.arrangement());
    if (!outcome) return {static_cast<double>(outcome.reason().short_by.count), kInfinity};
    return {0, outcome->busiest.count};
  }

 private:
  bool is_exact() const { return lineup_.model().exact; }
  Outcome<Plan, Infeasible> placed(const Arrangement& arrangement) const {
    return place(input_, arrangement);
  }

  // The best of the coarse splits, of finer ones where none is possible; the table is theirs.
  std::optional<Arrangement> solve_coarse(Measure measure) {
    for (const std::size_t count : {128U, 1024U}) {
      if (count * 2 > input_.intervals.num_nodes()) break;
      if (count > 128 && deadline_passed()) break;
      table_.solve_anyhow(coarse_positions(input_.intervals, input_.cuttable, count), measure,
                          kInfinity);
      if (table_.best() != kInfinity) return table_.arrangement();
    }
    return std::nullopt;
  }

  // A value that some split reaches: the best need not look above it.
  double find_cap() {
    coarse_plan_ = fit_by_position(input_, lineup_);
    coarse_ = solve_coarse(Measure::busiest);
    if (coarse_ && is_exact()) return table_.best();
    if (coarse_) {
      auto outcome = placed(*coarse_);
      if (outcome && (!coarse_plan_ || outcome->busiest < coarse_plan_->busiest)) {
        coarse_plan_ = std::move(*outcome);
      }
    }
    return coarse_plan_ ? coarse_plan_->busiest.count * kSlack : kInfinity;
  }

  // Time was up before all positions had been looked at.
  Outcome<Plan, Infeasible> place_coarse() {
    if (coarse_plan_) {
      coarse_plan_->truncated = true;
      return *std::move(coarse_plan_);
    }
    if (!coarse_) return least_overflow();
    auto outcome = placed(*coarse_);
    if (!outcome) return unproved(outcome.reason());
    outcome->truncated = true;
    return outcome;
  }

  // The contiguous split whose excess over the limits is least. When the model is exact, raising
  // every limit by `short_by` lets it fit, and nothing less lets any contiguous split.
  Outcome<Plan, Infeasible> least_overflow() {
    const std::optional<Arrangement> coarse = solve_coarse(Measure::overflow);
    bool in_time = true;
    if (coarse) {
      in_time = table_.solve(input_.cuttable, Measure::overflow, table_.best());
    } else {
      table_.solve_anyhow(input_.cuttable, Measure::overflow, kInfinity);
    }
    auto outcome = placed(in_time ? table_.arrangement() : *coarse);
    if (outcome) {
      outcome->truncated = !in_time;
      return outcome;
    }
    return in_time ? explain_shortage(outcome.reason()) : unproved(outcome.reason());
  }

  // A search that runs out of work may not have come as far as the coarse split.
  Outcome<Plan, Infeasible> search(const Options& options) {
    const double known = coarse_plan_ ? coarse_plan_->busiest.count : kInfinity;
    const ChainSearchResult found =
        search_chain(input_, lineup_, table_, known, search_work(options));
    if (!found.arrangement && coarse_plan_) {
      coarse_plan_->truncated = found.truncated;
      return *std::move(coarse_plan_);
    }
    if (!found.arrangement && found.closest && !found.truncated) return *found.closest;
    auto outcome = found.arrangement ? placed(*found.arrangement) : least_overflow();
    if (!outcome) return found.truncated ? unproved(outcome.reason()) : outcome.reason();
    outcome->truncated = found.truncated;
    return outcome;
  }

  const ChainInput& input_;
  Lineup lineup_;
  ChainTable table_;
  std::optional<Arrangement> coarse_;  // a split that fits, as far as the model knows
  std::optional<Plan> coarse_plan_;    // a plan that does fit: made of it, or found by position
};

}  // namespace

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
