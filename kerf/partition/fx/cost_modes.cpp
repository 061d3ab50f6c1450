// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/modes.h"
#include "kerf/partition/fx/search.h"
#include "kerf/partition/fx/size.h"

namespace kerf::partition::fx {
namespace {

struct Effort {
  std::int64_t work;  // for each pair of ops
  int kicks;
  bool all_starts;
  // Up to so many ops the original's own search is run too: its answer is a candidate, so that ours
  // is never worse. Its time grows with the fourth power.
  std::size_t original_too;
  void (*add_original)(const Request& request, Search& search);
};

Outcome<Answer, Infeasible> search_with(const Effort& effort, const Request& request) {
  Search search(request, effort.work);
  if (search.table().size() <= effort.original_too) {
    try {
      effort.add_original(request, search);
    } catch (const OriginalError&) {
      // It gives up where we need not.
    }
  }
  if (auto one = all_on_one(request)) search.add_partitions(std::move(one->partitions));
  add_usual_starts(request, search);
  if (effort.all_starts || search.empty()) add_last_starts(request, search);
  search.improve_best(effort.kicks);
  if (auto best = search.best()) return std::move(*best);
  return no_room(request, search.table());
}

void add_original_merges(const Request& request, Search& search) {
  search.add_partitions(compat::cost_aware(request).partitions);
}

// The original's plan can be read in two ways (K2): its partitions, and the module it emits.
void add_original_swaps(const Request& request, Search& search) {
  Answer original = compat::kl(request);
  std::vector<Partition> emitted = original.partitions;
  for (Partition& partition : emitted) partition.nodes.clear();
  for (const OpIndex n : request.graph.ops()) {
    Partition& home = emitted[static_cast<std::size_t>(original.node_to_partition[n])];
    home.nodes.push_back(n);
  }
  for (Partition& partition : emitted) {
    partition.nodes = with_leaves(request.graph, partition.nodes);
    partition.used_bytes = used_bytes(request.graph, partition.nodes);
  }
  for (std::vector<Partition>* plan : {&original.partitions, &emitted}) {
    std::erase_if(*plan, [](const Partition& partition) { return partition.nodes.empty(); });
    reorganize(request.graph, *plan);
    search.add_partitions(std::move(*plan));
  }
}

}  // namespace

Outcome<Answer, Infeasible> cost_aware(const Request& request) {
  return search_with({100, 400, true, 48, add_original_merges}, request);
}

Outcome<Answer, Infeasible> kl(const Request& request) {
  return search_with({40, 50, false, 40, add_original_swaps}, request);
}

}  // namespace kerf::partition::fx
