// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// An order's best split is found as any best chain is: its prefixes are the ideals, and "is there a
// plan below the best one?" is asked until the answer is no. One no is cheap, since the best plan
// of all orders is the one to beat.
#include "kerf/place/ideals/search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kerf/base/error.h"

namespace kerf::place::ideals {
namespace {

// The natural orders, then drawn ones.
OrderKind order_kind(int i) { return static_cast<OrderKind>(std::min(i, kNumNaturalOrders)); }

Stages stages_of(const Chain& chain) {
  Stages out(chain.order.size());
  std::uint32_t at = 0;
  for (std::uint32_t stage = 0; stage < chain.ends.size(); ++stage) {
    for (; at < chain.ends[stage]; ++at) out[chain.order[at]] = stage;
  }
  return out;
}

// Device by unit of the instance.
Split devices_of(const Groups& groups, const Chain& chain) {
  Split of_group(groups.num_units());
  std::vector<std::size_t> used(groups.classes.size(), 0);
  std::uint32_t at = 0;
  for (std::size_t s = 0; s < chain.ends.size(); ++s) {
    const SlotId device = groups.classes[chain.on[s]].devices[used[chain.on[s]]++];
    for (; at < chain.ends[s]; ++at) of_group[chain.order[at]] = device;
  }
  Split out;
  out.reserve(groups.group_of.size());
  for (const UnitId group : groups.group_of) out.push_back(of_group[group]);
  return out;
}

}  // namespace

Search::Search(const Groups& groups, const LoadOptions& options, std::size_t max_states,
               StepClock& clock)
    : groups_(groups),
      options_(options),
      max_states_(max_states),
      clock_(clock),
      above_all_(above_all_loads(groups)) {}

double Search::below_best() const { return std::min(best.load * (1 - kPrecision), above_all_); }

void Search::keep(Chain chain) {
  if (chain.load < best.load) best = std::move(chain);
}

void Search::fill_orders(int num_random) {
  Rng rng(options_.seed);
  for (int i = 0; i < kNumNaturalOrders + num_random; ++i) {
    if (best.load < kInfinity && clock_.is_late()) return;
    Order order = make_order(groups_, {}, order_kind(i), rng, clock_);
    if (std::ranges::find(orders_, order) != orders_.end()) continue;
    keep(fill_order(groups_, order, above_all_, rng, clock_, work));
    orders_.push_back(std::move(order));
  }
}

bool Search::cut_orders(std::int64_t max_work) {
  const std::int64_t end = work + max_work;
  for (const Order& order : orders_) {
    if (is_good_enough()) return true;
    if ((best.load < kInfinity && work >= end) || !cut(order)) return false;
  }
  return true;
}

bool Search::cut(const Order& order) {
  if (clock_.is_late()) return false;
  return ask_while_better(Lattice::along(order), [](std::int64_t) {});
}

// Polish is cheap beside a decision over many ideals, and saves some.
bool Search::improve(const Lattice& lattice) {
  return ask_while_better(lattice, [&](std::int64_t spent) { polish(spent / 4); });
}

template <class Polish>
bool Search::ask_while_better(const Lattice& lattice, Polish&& polish) {
  Decision decision(groups_, lattice, max_states_, clock_);
  while (!is_good_enough()) {
    const std::int64_t work_before = decision.work();
    Chain found = decision.find_below(below_best());
    ++num_decisions;
    const std::int64_t spent = decision.work() - work_before;
    work += spent;
    const bool better = found.load < kInfinity;
    if (better) keep(std::move(found));
    if (decision.gave_up()) return false;
    if (!better) return true;
    polish(spent);
  }
  return true;
}

void Search::polish(std::int64_t max_work) {
  if (best.load == kInfinity) return;
  Rng rng(options_.seed);
  const std::int64_t end = work + max_work;
  double before = kInfinity;
  while (best.load < before) {
    before = best.load;
    const Stages stages = stages_of(best);
    for (int i = 0; i < kNumNaturalOrders + 4; ++i) {
      if (work >= end || is_good_enough() || clock_.is_late()) return;
      cut(make_order(groups_, stages, order_kind(i), rng, clock_));
    }
  }
}

void write_answer(const Instance& instance, const Groups& groups, const Search& search,
                  LoadAnswer& out) {
  out.work = search.work;
  out.objective = search.best.load;
  if (search.best.load == kInfinity) return;
  out.device = devices_of(groups, search.best);
  out.objective = find_loads(instance, out.device).busiest;
  KERF_DCHECK(std::abs(out.objective - search.best.load) <= 1e-8 * (1 + out.objective),
              "the sums of the search differ from the plan's loads");
}

}  // namespace kerf::place::ideals
