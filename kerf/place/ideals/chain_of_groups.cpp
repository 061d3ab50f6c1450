// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/chain_of_groups.h"

#include "kerf/place/ideals/ideals.h"
#include "kerf/place/ideals/search.h"

namespace kerf::place {

LoadAnswer find_chain(const Instance& instance, const LoadOptions& options) {
  constexpr int kRandomOrders = 4;
  constexpr std::int64_t kAllWork = std::int64_t{1} << 62;
  ideals::Clock clock(options.safety_stop());
  const ideals::Groups groups = ideals::to_groups(instance);
  ideals::Search search(groups, options, IdealLimits{}.max_states, clock);
  search.fill_orders(kRandomOrders);
  LoadAnswer out;
  out.optimal = search.cut_orders(kAllWork);
  out.truncated = !out.optimal;
  write_answer(instance, groups, search, out);
  return out;
}

}  // namespace kerf::place
