// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// First answers from good topological orders; then "is there a plan below the best one?" until the
// answer is no. Each new plan is polished along its own order, so that few questions are needed.
#include "kerf/partition/ideals/ideals.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/partition/ideals/decide.h"
#include "kerf/partition/ideals/orders.h"

namespace kerf::partition {
namespace {

using ideals::Chain;
using ideals::Groups;
using ideals::Lattice;
using ideals::Order;

constexpr double kPrecision = 1e-9;
constexpr std::int64_t kPolishWork = 20'000'000;  // where there are too many ideals
constexpr std::int64_t kOrderWork = 2'000'000;    // steps spent on first answers, then no new order

class Search {
 public:
  Search(const Groups& groups, const LoadOptions& options, const IdealLimits& limits)
      : groups_(groups), options_(options), limits_(limits) {
    for (const ideals::Group& group : groups.groups) {
      above_all_ += group.cpu_time + group.accelerator_time;
    }
    for (const double cost : groups.cost) above_all_ += cost;
  }

  void run() {
    try_orders();
    polish(kOrderWork - effort_.work);
    optimal = is_good_enough();
    if (optimal) return;
    const auto lattice = Lattice::build(groups_, limits_.max_ideals, limits_.max_links);
    if (!lattice) {
      truncated = true;
      polish(kPolishWork);
      return;
    }
    num_ideals = lattice->size();
    improve(*lattice);
  }

  Chain best;
  bool optimal = false;
  bool truncated = false;
  std::size_t num_ideals = 0;
  int num_decisions = 0;
  std::int64_t work() const { return effort_.work; }

 private:
  double below_best() const { return std::min(best.load * (1 - kPrecision), above_all_); }
  bool is_good_enough() const { return best.load <= options_.good_enough * (1 + kPrecision); }
  bool is_late() const {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    return spent.count() > options_.time_budget;
  }
  void keep(Chain chain) {
    if (chain.load < best.load) best = std::move(chain);
  }
  void try_orders() {
    Rng rng(options_.seed);
    const auto orders = ideals::good_orders(groups_, {}, 12, rng);
    for (const Order& order : orders) {
      keep(ideals::fill_order(groups_, order, above_all_, effort_));
    }
    for (const Order& order : orders) {
      if (best.load < ideals::kInfinity && effort_.work > kOrderWork) return;
      if (is_good_enough() || is_late()) return;
      keep(ideals::cut_order(groups_, order, below_best(), effort_));
    }
  }
  // Cuts of orders in which the best plan's stages follow each other, while they help. Cheap beside
  // a decision, and saves many.
  void polish(std::int64_t max_work) {
    if (best.load == ideals::kInfinity) return;
    Rng rng(options_.seed);
    const std::int64_t end = effort_.work + max_work;
    double before = ideals::kInfinity;
    while (best.load < before) {
      before = best.load;
      const ideals::Stages stages = ideals::stages_of(best);
      for (const Order& order : ideals::good_orders(groups_, stages, 4, rng)) {
        if (effort_.work >= end || is_good_enough() || is_late()) return;
        keep(ideals::cut_order(groups_, order, below_best(), effort_));
      }
    }
  }
  void improve(const Lattice& lattice) {
    const ideals::IdealFigures figures(groups_, lattice);
    ideals::Decision decision(groups_, lattice, figures);
    while (!is_good_enough()) {
      Chain found = decision.find_below(below_best(), effort_.stop);
      ++num_decisions;
      const std::int64_t decision_work = std::exchange(decision.work, 0);
      effort_.work += decision_work;
      truncated = decision.stopped;
      const bool better = found.load < ideals::kInfinity;
      if (better) {
        keep(std::move(found));
        polish(decision_work / 4);
      }
      if (truncated) return;
      if (!better) {
        optimal = true;
        return;
      }
    }
    optimal = true;
  }

  const Groups& groups_;
  const LoadOptions& options_;
  const IdealLimits& limits_;
  ideals::Effort effort_{0, [this] { return is_late(); }};
  double above_all_ = 1;  // no load reaches it
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::vector<std::uint32_t> devices_of_units(const Groups& groups, const Chain& chain,
                                            std::uint32_t cpu) {
  std::vector<std::uint32_t> of_group(groups.size(), 0);
  std::uint32_t next = 0;
  std::uint32_t at = 0;
  for (std::size_t s = 0; s < chain.ends.size(); ++s) {
    const std::uint32_t device = chain.on_cpu[s] ? cpu : next++;
    for (; at < chain.ends[s]; ++at) of_group[chain.order[at]] = device;
  }
  std::vector<std::uint32_t> out;
  for (const std::uint32_t group : groups.group_of) out.push_back(of_group[group]);
  return out;
}

}  // namespace

IdealAnswer find_contiguous(const LoadProblem& problem, const LoadOptions& options,
                            const IdealLimits& limits) {
  const UnitProblem units = to_units(problem);
  const Groups groups = ideals::to_groups(problem, units);
  Search search(groups, options, limits);
  search.run();
  IdealAnswer out;
  out.optimal = search.optimal;
  out.truncated = search.truncated;
  out.work = search.work();
  out.num_ideals = search.num_ideals;
  out.num_decisions = search.num_decisions;
  out.objective = search.best.load;
  if (search.best.load < ideals::kInfinity) {
    out.device = devices_of_units(groups, search.best, units.cpu());
    out.objective = find_loads(units, out.device).busiest;
    KERF_DCHECK(std::abs(out.objective - search.best.load) <= 1e-8 * (1 + out.objective),
                "the sums of the search differ from the plan's loads");
  }
  return out;
}

}  // namespace kerf::partition
