// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/kl.h"

#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/search.h"
#include "kerf/partition/fx/size.h"

namespace kerf::partition::fx {
namespace {

constexpr std::int64_t kEffort = 40;
constexpr int kKicks = 50;
constexpr std::size_t kOriginalToo = 40;
constexpr std::size_t kOriginalAtAnyPrice = 96;

// The original's plan can be read in two ways (K2): its partitions, and the module it emits.
void add_original(const Request& request, Search& search) {
  try {
    Answer original = compat::kl(request);
    std::vector<Partition> emitted = original.partitions;
    for (Partition& partition : emitted) partition.nodes.clear();
    for (const OpIndex n : request.graph.ops()) {
      Partition& home = emitted[static_cast<std::size_t>(original.node_to_partition[n])];
      home.nodes.push_back(n);
    }
    std::erase_if(emitted, [](const Partition& partition) { return partition.nodes.empty(); });
    for (Partition& partition : emitted) {
      partition.nodes = with_leaves(request.graph, partition.nodes);
      partition.used_bytes = used_bytes(request.graph, partition.nodes);
    }
    reorganize(request.graph, emitted);
    std::erase_if(original.partitions,
                  [](const Partition& partition) { return partition.nodes.empty(); });
    reorganize(request.graph, original.partitions);
    search.add_partitions(std::move(original.partitions));
    search.add_partitions(std::move(emitted));
  } catch (const OriginalError&) {
    // It gives up where we need not.
  }
}

}  // namespace

Outcome<Answer, Infeasible> kl(const Request& request) {
  Search search(request, kEffort);
  const OpTable& table = search.table();
  if (table.size() <= kOriginalToo) add_original(request, search);
  if (auto one = all_on_one(request)) search.add_partitions(std::move(one->partitions));
  add_usual_starts(request, search);
  if (search.empty()) add_last_starts(request, search);
  search.improve_best(kKicks);
  if (search.empty() && table.size() <= kOriginalAtAnyPrice) add_original(request, search);
  if (auto best = search.best()) return std::move(*best);
  return no_room(request, table);
}

}  // namespace kerf::partition::fx
