// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/any_order.h"

#include <algorithm>

#include "kerf/partition/chain/by_position.h"
#include "kerf/partition/chain/chain_search.h"
#include "kerf/partition/chain/coarse.h"
#include "kerf/partition/chain/good_order.h"

namespace kerf::partition {
namespace {

double sum_of_loads(const Plan& plan) {
  double sum = 0;
  for (const DeviceLoad& load : plan.loads) sum += load.busy().count;
  return sum;
}

// Really better, not by the last digits.
bool better(const Outcome<Plan, Infeasible>& a, const Outcome<Plan, Infeasible>& b) {
  if (static_cast<bool>(a) != static_cast<bool>(b)) return static_cast<bool>(a);
  if (!a) return a.reason().short_by < b.reason().short_by;
  if (a->busiest.count * kSlack < b->busiest.count) return true;
  if (b->busiest.count * kSlack < a->busiest.count) return false;
  return sum_of_loads(*a) * kSlack < sum_of_loads(*b);
}

class AnyOrder {
 public:
  AnyOrder(const ChainInput& input, Outcome<Plan, Infeasible> given, const Options& options)
      : input_(input),
        options_(options),
        lineup_(Lineup::in_any_order(make_free_model(input.problem))),
        table_(input.intervals, lineup_),
        best_(std::move(given)),
        orders_{given_order(input.problem.cluster)} {}

  Outcome<Plan, Infeasible> solve() {
    if (is_exact() && lineup_.kinds().size() == 1) return best_;
    if (std::optional<Plan> fitting = fit_by_position(input_, lineup_)) keep(*std::move(fitting));
    solve_coarse();
    if (!table_.solve(input_.cuttable, Measure::busiest, cap())) {
      try_orders();
    } else if (table_.best() == kInfinity) {
      find_least_overflow();
    } else if (is_exact()) {
      find_exact();
    } else {
      search();
    }
    return std::move(best_);
  }

 private:
  bool is_exact() const { return lineup_.model().exact; }
  void keep(Outcome<Plan, Infeasible> candidate) {
    if (better(candidate, best_)) best_ = std::move(candidate);
  }

  // Nothing above it is of interest.
  double cap() const { return best_ ? best_->busiest.count * kSlack : kInfinity; }

  void keep_arrangement() {
    const Arrangement arrangement = table_.arrangement();
    orders_.push_back(whole_order(arrangement.devices));
    keep(place(input_, arrangement));
  }

  // A better cap, found fast; where the table is too large, all that is known of the best order.
  void solve_coarse() {
    for (const std::size_t count : {128U, 1024U}) {
      if (count * 2 > input_.intervals.num_nodes()) return;
      const auto positions = coarse_positions(input_.intervals, input_.cuttable, count);
      if (!table_.solve(positions, Measure::busiest, cap())) return;
      if (table_.best() != kInfinity) keep_arrangement();
    }
  }

  // Those left out come last.
  std::vector<DeviceId> whole_order(std::vector<DeviceId> order) const {
    for (const DeviceId device : lineup_.model().ids) {
      if (std::find(order.begin(), order.end(), device) == order.end()) order.push_back(device);
    }
    return order;
  }

  void find_exact() {
    Arrangement arrangement = table_.arrangement();
    if (table_.solve(input_.cuttable, Measure::sum, table_.best())) {
      arrangement = table_.arrangement();
    }
    keep(place(input_, arrangement));
  }

  // Not even the bounds fit, in any order.
  void find_least_overflow() {
    const auto short_by = static_cast<double>(best_.reason().short_by.count);
    if (!table_.solve(input_.cuttable, Measure::overflow, short_by)) return try_orders();
    const auto outcome = place(input_, table_.arrangement());
    if (!outcome) keep(explain_shortage(outcome.reason()));
  }

  void search() {
    const bool proved = best_ && best_->busiest.count <= table_.best() * kSlack;
    if (!proved) {
      keep_arrangement();
      const ChainSearchResult found = search_chain(
          input_, lineup_, table_, best_ ? best_->busiest.count : kInfinity, search_work(options_));
      if (found.arrangement) keep(place(input_, *found.arrangement));
      if (found.closest) keep(*found.closest);
      if (found.truncated) return try_orders();
    }
    if (best_) best_->truncated = false;
  }

  void try_orders() {
    keep(solve_in_order(input_, find_good_order(input_, std::move(orders_)), options_));
    if (best_) {
      best_->truncated = true;
    } else {
      best_ = unproved(best_.reason());
    }
  }

  const ChainInput& input_;
  const Options& options_;
  Lineup lineup_;
  ChainTable table_;
  Outcome<Plan, Infeasible> best_;
  std::vector<std::vector<DeviceId>> orders_;
};

}  // namespace

Outcome<Plan, Infeasible> solve_in_any_order(const ChainInput& input,
                                             Outcome<Plan, Infeasible> given,
                                             const Options& options) {
  return AnyOrder(input, std::move(given), options).solve();
}

}  // namespace kerf::partition
