// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/multilevel.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kerf/place/acyclic/moves.h"
#include "kerf/place/acyclic/order_cut.h"
#include "kerf/place/acyclic/part_state.h"
#include "kerf/place/order/two_way_orders.h"

namespace kerf::place::acyclic {

std::uint32_t Rounds::target() const { return std::clamp(60 * goal_.parts(), 400U, 3000U); }

Found Rounds::judged(const Instance& level, Split part) const {
  Found out;
  out.score = PartState(level, goal_, part).score();
  out.part = std::move(part);
  return out;
}

void Rounds::refine(const Instance& level, Split& part) {
  MoveOptions options;
  // The last level of all may go a little further: what is found there is kept.
  options.most_work = budget_.most * (&level == &base_ ? 1.1 : 1.0);
  improve(level, goal_, options, part, rng_, budget_.clock, budget_.work);
}

Found Rounds::improved(Split part) {
  refine(base_, part);
  return judged(base_, std::move(part));
}

Found Rounds::with_moved_borders(Found from) {
  constexpr std::array kKinds = {
      std::pair{TwoWayOrder::natural, false}, std::pair{TwoWayOrder::levels, true},
      std::pair{TwoWayOrder::depth_first, false}, std::pair{TwoWayOrder::levels, false}};
  const auto [kind, backwards] = kKinds.at(borders_++ % kKinds.size());
  const Order order = find_order(base_, kind, backwards, rng_);
  bool gained = false;
  for (const double zone : {0.2, 0.02}) {
    if (borders_ > 1 && budget_.is_over()) break;
    Found next = judged(cut_again(base_, goal_, from.part, order, zone, budget_.work));
    if (!is_better(next.score, from.score)) continue;
    from = std::move(next);
    gained = true;
  }
  return gained ? improved(std::move(from.part)) : from;
}

Found Rounds::runs_of_order(const Instance& level) {
  static constexpr std::array kKinds = {
      std::pair{TwoWayOrder::levels, true},       std::pair{TwoWayOrder::natural, false},
      std::pair{TwoWayOrder::least_cut, false},   std::pair{TwoWayOrder::levels, false},
      std::pair{TwoWayOrder::depth_first, false}, std::pair{TwoWayOrder::least_cut, true},
      std::pair{TwoWayOrder::depth_first, true},  std::pair{TwoWayOrder::random, false}};
  const auto [kind, backwards] = kKinds.at(orders_++ % kKinds.size());
  const Order order = find_order(level, kind, backwards, rng_);
  budget_.work += 4.0 * (static_cast<double>(level.num_units()) + level.num_nets());
  return judged(level, cut_order(level, goal_, order, budget_.work));
}

Found Rounds::from_order(const Instance& level) {
  Split part = runs_of_order(level).part;
  refine(level, part);
  return judged(level, std::move(part));
}

Found Rounds::from_coarse() {
  const std::vector<Contraction> steps =
      coarsen(base_, goal_, {target(), nullptr}, rng_, budget_.work);
  const Instance& top = steps.empty() ? base_ : steps.back().instance;
  constexpr int kTries = 8;
  const double until = budget_.work + 0.2 * budget_.most;
  Found best = from_order(top);
  for (int i = 1; i < kTries && budget_.work < until && !budget_.is_over(); ++i) {
    Found next = from_order(top);
    if (is_better(next.score, best.score)) best = std::move(next);
  }
  return walk_back(steps, std::move(best.part));
}

Found Rounds::again(const Found& from) {
  const std::vector<Contraction> steps =
      coarsen(base_, goal_, {target(), &from.part}, rng_, budget_.work);
  Split part = from.part;
  for (const Contraction& step : steps) part = step.to_coarse(part);
  refine(steps.empty() ? base_ : steps.back().instance, part);
  return walk_back(steps, std::move(part));
}

// From a partition of the coarsest level to one of the base.
Found Rounds::walk_back(const std::vector<Contraction>& steps, Split part) {
  for (std::size_t i = steps.size(); i-- > 0;) {
    part = steps[i].to_fine(part);
    refine(i == 0 ? base_ : steps[i - 1].instance, part);
  }
  return judged(base_, std::move(part));
}

}  // namespace kerf::place::acyclic
