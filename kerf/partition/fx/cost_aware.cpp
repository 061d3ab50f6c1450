// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/cost_aware.h"

#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/search.h"
#include "kerf/partition/fx/size.h"

namespace kerf::partition::fx {
namespace {

constexpr std::int64_t kEffort = 100;
constexpr int kKicks = 400;
// Up to here the original's own search is run too: its answer is a candidate, so that ours is never
// worse. Its time grows with the fourth power.
constexpr std::size_t kOriginalToo = 48;
constexpr std::size_t kOriginalAtAnyPrice = 96;  // when nothing else was found

void add_original(const Request& request, Search& search) {
  try {
    search.add_partitions(compat::cost_aware(request).partitions);
  } catch (const OriginalError&) {
    // It gives up where we need not.
  }
}

}  // namespace

Outcome<Answer, Infeasible> cost_aware(const Request& request) {
  Search search(request, kEffort);
  const OpTable& table = search.table();
  if (table.size() <= kOriginalToo) add_original(request, search);
  if (auto one = all_on_one(request)) search.add_partitions(std::move(one->partitions));
  add_usual_starts(request, search);
  add_last_starts(request, search);
  search.improve_best(kKicks);
  if (search.empty() && table.size() <= kOriginalAtAnyPrice) add_original(request, search);
  if (auto best = search.best()) return std::move(*best);
  return no_room(request, table);
}

}  // namespace kerf::partition::fx
