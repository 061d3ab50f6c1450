// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/split/traced_search.h"

#include <algorithm>

#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/finish.h"

namespace kerf::partition {

TracedSearch::TracedSearch(const Problem& problem, const Options& options, double seconds)
    : problem_(problem),
      model_(make_split_model(problem, ModelUse::search)),
      driver_problem_{model_.load, to_units(make_split_model(problem, ModelUse::bound).load),
                      model_.exact} {
  LoadOptions load_options;
  load_options.time_budget = seconds;
  load_options.seed = problem.seed;
  load_options.threads = options.threads;
  driver_ = std::make_unique<SplitDriver>(
      driver_problem_, load_options,
      [this](std::span<const std::uint32_t> device) { return judge(device); });
}

void TracedSearch::run(std::string_view method) { driver_->run(method, false); }

void TracedSearch::offer(const Outcome<Plan, Infeasible>& outcome) {
  best_.offer(outcome);
  if (!outcome) return;
  std::vector<DeviceId> device_of_node(problem_.graph.num_nodes());
  for (const Stage& stage : outcome->stages) {
    for (const NodeId node : stage.nodes) device_of_node[node.index()] = stage.device;
  }
  driver_->offer(model_.from_devices(device_of_node));
}

LowerBound TracedSearch::busiest_bound() const {
  const LoadBound& found = driver_->bound();
  const std::vector<LowerBound> simple = throughput_bounds(problem_);
  LowerBound best{found.name, found.value, found.argument};
  for (const LowerBound& bound : simple) {
    // Where the simple argument is as good, it is the better one to read.
    if (bound.value >= best.value * (1 - 1e-9)) best = bound;
  }
  return best;
}

Verdict TracedSearch::judge(std::span<const std::uint32_t> device) {
  Plan plan = place_units(problem_, model_, model_.to_devices(device), "split");
  Verdict verdict;
  verdict.fits = !find_overflow(plan);
  verdict.value = plan.busiest.count;
  if (!verdict.fits) verdict.overhead = overhead(plan, device);
  best_.offer(std::move(plan));
  return verdict;
}

double TracedSearch::overhead(const Plan& plan, std::span<const std::uint32_t> device) const {
  std::vector<double> counted(problem_.cluster.num_devices());
  for (std::size_t u = 0; u < device.size(); ++u) {
    counted[model_.devices[device[u]].index()] += model_.load.nodes[u].bytes;
  }
  double most = 0;
  for (std::size_t d = 0; d < counted.size(); ++d) {
    if (!plan.memory[d].limited) continue;
    most = std::max(most, static_cast<double>(plan.memory[d].predicted.count) - counted[d]);
  }
  return most;
}

}  // namespace kerf::partition
