// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/partition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kerf/partition/baseline/baseline.h"
#include "kerf/partition/chain/chain.h"
#include "kerf/partition/exact/exact.h"
#include "kerf/partition/fx/methods.h"
#include "kerf/partition/replicate.h"

namespace kerf {
namespace partition {

std::vector<Entry> methods() {
  return {
      {"chain", "best contiguous split of the graph's order, devices in the order given (default)",
       chain},
      {"even", "pieces of equal node counts, blind to cost", even},
      {"single", "everything on the fastest device that holds it", single},
      {"size", "as few devices as hold it, nodes in order, blind to time (fx)", size},
      {"sparse_nn", "embeddings one device each, beside all the rest (fx)", sparse_nn},
      {"cost_aware", "shortest run of one micro-batch, many starts (fx)", cost_aware},
      {"kl", "shortest run of one micro-batch, moves and swaps (fx)", kl},
      {"aot", "partitions and devices as given, checked (fx)", aot},
      {"exact", "branch and bound over all acyclic splits; for small graphs", exact},
  };
}

const Entry* find_method(std::string_view name) {
  static const std::vector<Entry> all = methods();
  for (const Entry& entry : all) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace partition

namespace {

// An assignment and the one method that takes it come together.
void check_assignment(std::string_view method, const partition::Options& options) {
  const bool given = !options.node_to_partition.empty() || !options.partition_to_device.empty();
  const bool whole = !options.node_to_partition.empty() && !options.partition_to_device.empty();
  if (method == "aot" && !whole) {
    throw Error(ErrorKind::invalid_argument,
                "[partition.plan] method 'aot' without an assignment; expected the partition of "
                "every node and the device of every partition; give node_to_partition and "
                "partition_to_device (--assignment)");
  }
  if (method != "aot" && given) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] an assignment beside method '{}', which makes its "
                            "own; leave out node_to_partition and partition_to_device "
                            "(--assignment), or use method aot",
                            method));
  }
}

}  // namespace

Outcome<Plan, Infeasible> plan(const Problem& problem, std::string_view method,
                               const partition::Options& options) {
  check_assignment(method, options);
  const partition::Entry* entry = partition::find_method(method);
  if (entry == nullptr) {
    std::vector<std::string_view> names;
    for (const partition::Entry& known : partition::methods()) names.push_back(known.name);
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] unknown method '{}'; expected one of {}", method,
                            fmt::join(names, ", ")));
  }
  check_problem(problem);
  if (problem.objective != Objective::throughput) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] method '{}' cannot minimise '{}' yet; use throughput",
                            method, to_string(problem.objective)));
  }
  if (problem.graph.num_nodes() == 0) {
    throw Error(ErrorKind::invalid_graph,
                fmt::format("[partition.plan] graph '{}' has no nodes; there is nothing to plan",
                            problem.graph.name()));
  }
  Outcome<Plan, Infeasible> outcome = entry->method(problem, options);
  if (!outcome || !options.saturate_host) return outcome;
  return saturate_host(problem, std::move(*outcome));
}

}  // namespace kerf
