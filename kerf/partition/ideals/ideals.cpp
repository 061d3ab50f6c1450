// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// First answers from good topological orders; then "is there a plan below the best one?" until the
// answer is no. Each new plan is polished along its own order, so that few questions are needed.
#include "kerf/partition/ideals/ideals.h"

#include <algorithm>
#include <chrono>

#include "kerf/partition/ideals/decide.h"
#include "kerf/partition/ideals/orders.h"

namespace kerf::partition {
namespace {

using ideals::Chain;
using ideals::Groups;
using ideals::Lattice;
using ideals::Order;

constexpr double kPrecision = 1e-9;
constexpr std::int64_t kOrderWork = 2'000'000;  // steps spent on first answers, then no new order

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
    optimal = is_good_enough();
    if (optimal) return;
    const auto lattice = Lattice::build(groups_, limits_.max_ideals, limits_.max_links);
    if (!lattice) {
      truncated = true;
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
  std::int64_t work = 0;

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
    const auto orders = ideals::good_orders(groups_, 12, rng);
    start_from(orders.front());
    for (const Order& order : orders) {
      if (best.load < ideals::kInfinity && work > kOrderWork) return;
      if (is_good_enough() || is_late()) return;
      keep(ideals::cut_order(groups_, order, below_best(), work));
    }
  }
  // Low limits keep stages short: raise one until there is a plan below it, and the cost stays near
  // that of the last. The loop over all orders does the rest.
  void start_from(const Order& order) {
    const double share = groups_.total_accelerator_time() / (groups_.num_accelerators + 1);
    double limit = std::max(1.05 * share, 1e-6 * above_all_);
    for (; limit < above_all_ && best.load == ideals::kInfinity; limit *= 1.5) {
      keep(ideals::cut_order(groups_, order, limit, work));
    }
  }
  void improve(const Lattice& lattice) {
    const ideals::IdealFigures figures(groups_, lattice);
    ideals::Decision decision(groups_, lattice, figures);
    while (!is_good_enough()) {
      Chain found = decision.find_below(below_best(), [&] { return is_late(); });
      ++num_decisions;
      work += decision.work;
      decision.work = 0;
      truncated = decision.stopped;
      const bool better = found.load < ideals::kInfinity;
      if (better) {
        keep(ideals::cut_order(groups_, found.order, found.load, work));
        keep(std::move(found));
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
  out.work = search.work;
  out.num_ideals = search.num_ideals;
  out.num_decisions = search.num_decisions;
  out.objective = search.best.load;
  if (search.best.load < ideals::kInfinity) {
    out.device = devices_of_units(groups, search.best, units.cpu());
    out.objective = find_loads(units, out.device).busiest;
  }
  return out;
}

}  // namespace kerf::partition
