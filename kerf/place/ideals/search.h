// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The best plan so far, and what makes it better: topological orders filled, then cut as well as
// they can be.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/ideals/decide.h"
#include "kerf/place/ideals/fill.h"
#include "kerf/place/load_search.h"
#include "kerf/place/order/orders.h"

namespace kerf::place::ideals {

class Search {
 public:
  Search(const Groups& groups, const LoadOptions& options, std::size_t max_states,
         StepClock& clock);

  // Makes the natural orders and `num_random` others, and fills them. There is a plan after it
  // where any order could be filled.
  void fill_orders(int num_random);
  // The orders' best splits into intervals, until `max_work` is done. Whether that was enough.
  bool cut_orders(std::int64_t max_work);
  // Cuts orders in which the best plan's stages follow each other, while they help.
  void polish(std::int64_t max_work);
  // The best chain of the lattice's ideals. Whether it is proved to be.
  bool improve(const Lattice& lattice);

  bool is_good_enough() const { return best.load <= options_.good_enough * (1 + kPrecision); }

  Chain best;
  std::int64_t work = 0;
  int num_decisions = 0;

 private:
  static constexpr double kPrecision = 1e-9;
  double below_best() const;
  void keep(Chain chain);
  bool cut(const Order& order);
  template <class Polish>
  bool ask_while_better(const Lattice& lattice, Polish&& polish);

  const Groups& groups_;
  const LoadOptions& options_;
  std::size_t max_states_;
  StepClock& clock_;
  double above_all_;
  std::vector<Order> orders_;
};

// What every search of this room answers.
void write_answer(const Instance& instance, const Groups& groups, const Search& search,
                  LoadAnswer& out);

}  // namespace kerf::place::ideals
