// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// First answers from good topological orders; then "is there a plan below the best one?" until the
// answer is no.
#include "kerf/place/ideals/ideals.h"

#include "kerf/place/ideals/search.h"

namespace kerf::place {
namespace {

using ideals::Lattice;
using ideals::Search;

constexpr std::int64_t kPolishWork = 20'000'000;  // where there are too many ideals
constexpr std::int64_t kOrderWork = 2'000'000;    // steps spent on first answers, then no new order
constexpr std::int64_t kAllWork = std::int64_t{1} << 62;
constexpr int kRandomOrders = 12;

// Without a proof: all that orders can give.
void search_orders(Search& search) {
  search.cut_orders(kAllWork);
  search.polish(kPolishWork);
}

}  // namespace

IdealAnswer find_contiguous(const Instance& instance, const LoadOptions& options,
                            const IdealLimits& limits) {
  StepClock clock(options.safety_stop());
  const ideals::Groups groups(instance);
  Search search(groups, options, limits.max_states, clock);
  search.fill_orders(kRandomOrders);
  search.cut_orders(kOrderWork - search.work);
  search.polish(kOrderWork - search.work);
  IdealAnswer out;
  out.optimal = search.is_good_enough();
  if (!out.optimal) {
    const auto lattice = Lattice::build(groups, limits.max_ideals, limits.max_links, clock);
    if (lattice) out.num_ideals = lattice->size();
    out.optimal = lattice && search.improve(*lattice);
    if (!out.optimal) search_orders(search);
  }
  out.optimal = out.optimal || search.is_good_enough();
  out.truncated = !out.optimal;
  out.num_decisions = search.num_decisions;
  write_answer(instance, groups, search, out);
  return out;
}

LoadAnswer find_chain(const Instance& instance, const LoadOptions& options) {
  constexpr int kFewRandomOrders = 4;
  StepClock clock(options.safety_stop());
  const ideals::Groups groups(instance);
  Search search(groups, options, IdealLimits{}.max_states, clock);
  search.fill_orders(kFewRandomOrders);
  LoadAnswer out;
  out.optimal = search.cut_orders(kAllWork);
  out.truncated = !out.optimal;
  write_answer(instance, groups, search, out);
  return out;
}

}  // namespace kerf::place
