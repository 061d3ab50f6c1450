// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/bound/published_bounds.h"

#include <algorithm>

#include "kerf/place/bound/load_bounds.h"
#include "kerf/place/lower_load.h"

namespace kerf::place {

std::vector<LowerBound> load_bounds(const LoadProblem& problem) {
  return find_load_bounds(to_instance(with_one_cpu(problem)));
}

LowerBound latency_bound(const LoadProblem& problem) {
  std::vector<double> start(problem.nodes.size(), 0);
  double longest = 0;
  for (const std::uint32_t n : topological_order(problem)) {
    const LoadNode& node = problem.nodes[n];
    const bool there = problem.num_accelerators > 0 && node.on_accelerator;
    const bool on_cpu = problem.num_cpus > 0 && node.on_cpu;
    const double time = !on_cpu  ? node.accelerator_time
                        : !there ? node.cpu_time
                                 : std::min(node.cpu_time, node.accelerator_time);
    const double end = start[n] + time;
    longest = std::max(longest, end);
    for (const std::uint32_t next : problem.successors[n]) {
      start[next] = std::max(start[next], end);
    }
  }
  return {"path", shaved(longest, problem.nodes.size()),
          "the nodes of the longest path run one after the other, each where it is fastest"};
}

}  // namespace kerf::place
