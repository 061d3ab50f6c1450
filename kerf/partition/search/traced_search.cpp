// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/search/traced_search.h"

#include <algorithm>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/lower/coarse_units.h"
#include "kerf/partition/lower/shared_weights.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/place/mixed_pipe/boundary.h"
#include "kerf/place/portfolio/split_methods.h"

namespace kerf::partition {
namespace {

std::vector<std::size_t> units_for(const Problem& problem, const SearchScope& scope) {
  constexpr std::size_t kTarget = 1536;
  if (problem.graph.num_nodes() <= scope.most_nodes) {
    return join_weight_sharers(problem, indivisible_units(problem.graph));
  }
  return coarse_units(problem, std::max(kTarget, 48 * problem.cluster.num_devices()));
}

std::size_t count_units(const Graph& graph) {
  const std::vector<std::size_t> unit_of = indivisible_units(graph);
  return unit_of.empty() ? 0 : 1 + *std::max_element(unit_of.begin(), unit_of.end());
}

SplitModel model_for(const Problem& problem, const SearchScope& scope) {
  SplitModel model = make_split_model(problem, ModelUse::search, units_for(problem, scope));
  if (scope.reserved.empty()) return model;
  for (SlotId d{0}; d < model.devices.size(); ++d) {
    double& memory = model.instance.memory[d];
    memory = std::max(0.0, memory - scope.reserved[model.devices[d].index()]);
  }
  return model;
}

constexpr double kBorderShare = 0.4;  // of the time, where the model is coarse

// From the model alone, `reserve` being what plans were seen to need beside what it counts.
place::Verdict judge_by_model(const place::Instance& model, double reserve,
                              std::span<const SlotId> device) {
  const Loads loads = find_loads(model, device);
  place::Verdict verdict;
  verdict.value = loads.busiest;
  verdict.overhead = reserve;
  for (SlotId d{0}; d < loads.bytes.size(); ++d) {
    verdict.fits = verdict.fits && loads.bytes[d] + reserve <= model.memory[d];
  }
  return verdict;
}

}  // namespace

TracedSearch::TracedSearch(const Problem& problem, const Options& options, const SearchScope& scope)
    : problem_(problem),
      options_(options),
      mixed_(options.mixed && scope.mixed),
      model_(model_for(problem, scope)),
      coarse_(problem.graph.num_nodes() > scope.most_nodes),
      restricted_(coarse_ || model_.units.size() < count_units(problem.graph)),
      driver_problem_{model_.instance, {}, model_.exact},
      simple_(tightest(throughput_bounds(problem))),
      best_(mixed_) {
  if (coarse_ || !scope.prove) {
    driver_problem_.known = simple_;
  } else {
    driver_problem_.bound = make_split_model(problem, ModelUse::bound).instance;
    driver_problem_.provable = !restricted_;
  }
  load_options_.time_budget = scope.seconds;
  load_options_.seed = problem.seed;
  load_options_.threads = options.threads;
  load_options_.mixed = mixed_;
  load_options_.method = options.method;
  place::LoadOptions load_options = load_options_;
  if (coarse_) load_options.time_budget *= 1 - kBorderShare;
  driver_ = std::make_unique<place::SplitDriver>(
      driver_problem_, load_options,
      [this](std::span<const SlotId> device) { return judge(device); });
}

void TracedSearch::run(const place::SplitMethod& method) {
  constexpr int kRounds = 4;
  driver_->run(method, !mixed_);
  if (!coarse_) return;
  for (int round = 1; !settle() && round < kRounds && !deadline_passed(); ++round) {
    driver_->forget();
    driver_->run(method, !mixed_);
  }
  if (method.is_one_solver() || deadline_passed()) return;
  refine_borders();
}

bool TracedSearch::settle() {
  const place::Split& device = driver_->best().device;
  if (device.empty()) return true;
  Plan plan = place_units(problem_, model_, model_.to_devices(device), "split", mixed_);
  const bool fits = !find_overflow(plan);
  if (!fits) reserve_ = std::max(reserve_ * 1.25, overhead(plan, model_, device));
  best_.offer(std::move(plan));
  return fits;
}

void TracedSearch::refine_borders() {
  constexpr std::size_t kMostNodes = 20'000;
  constexpr std::int64_t kSteps = 100'000'000;
  const place::Split& found = driver_->best().device;
  if (found.empty() || !best_.plan()) return;
  const std::vector<DeviceId> coarse_device = model_.to_devices(found);
  const SplitModel model =
      make_split_model(problem_, ModelUse::search,
                       open_borders(problem_, model_.unit_of, coarse_device, kMostNodes));
  std::vector<DeviceId> device_of_node;
  for (const std::size_t unit : model_.unit_of) device_of_node.push_back(coarse_device[unit]);
  const place::Split start = model.from_devices(device_of_node);
  const double reserve = std::max(reserve_, overhead(*best_.plan(), model, start));
  // Whole runs of nodes may have to cross a border together: cut the line anew, then move nodes.
  const place::DriverProblem fine{model.instance, {}, model.exact, driver_problem_.known};
  place::LoadOptions load_options = load_options_;
  load_options.time_budget *= kBorderShare;
  place::SplitDriver driver(fine, load_options, [&](std::span<const SlotId> device) {
    return judge_by_model(fine.search, reserve, device);
  });
  driver.offer(start);
  driver.run(place::ideals_split(), true);
  if (driver.best().device.empty()) return;
  place::Instance tighter = fine.search;
  for (double& memory : tighter.memory) memory -= reserve;
  place::SplitState state(tighter, driver.best().device);
  if (mixed_) place::improve_borders(tighter, state, kSteps, StopClock(load_options.time_budget));
  if (std::equal(start.begin(), start.end(), state.devices().begin())) return;
  best_.offer(place_units(problem_, model, model.to_devices(state.devices()), "split", mixed_));
}

void TracedSearch::offer(const Outcome<Plan, Infeasible>& outcome) {
  best_.offer(outcome);
  if (!outcome) return;
  std::vector<DeviceId> device_of_node(problem_.graph.num_nodes());
  for (const Stage& stage : outcome->stages) {
    for (const NodeId node : stage.nodes) device_of_node[node.index()] = stage.device;
  }
  // Judged anew also where no unit has to move: the same split may be formed into other stages, and
  // those have a latency of their own.
  driver_->offer(model_.from_devices(device_of_node));
}

LowerBound TracedSearch::busiest_bound() const {
  const LowerBound& found = driver_->bound();
  // Where the simple argument is as good, it is the better one to read.
  constexpr double kAsGood = 1 + 2e-6;
  return found.value <= simple_.value * kAsGood ? simple_ : found;
}

place::Verdict TracedSearch::judge(std::span<const SlotId> device) {
  if (coarse_) return judge_by_model(driver_problem_.search, reserve_, device);
  Plan plan = place_units(problem_, model_, model_.to_devices(device), "split", mixed_);
  place::Verdict verdict;
  verdict.fits = best_.accepts(plan);
  verdict.value = plan.busiest.count;
  if (find_overflow(plan)) verdict.overhead = overhead(plan, model_, device);
  best_.offer(std::move(plan));
  return verdict;
}

double TracedSearch::overhead(const Plan& plan, const SplitModel& model,
                              std::span<const SlotId> device) const {
  std::vector<double> counted(problem_.cluster.num_devices());
  for (std::size_t u = 0; u < device.size(); ++u) {
    counted[model.devices[device[u]].index()] += model.instance.bytes[u];
  }
  double most = 0;
  for (std::size_t d = 0; d < counted.size(); ++d) {
    if (!plan.memory[d].limited) continue;
    most = std::max(most, static_cast<double>(plan.memory[d].predicted.count) - counted[d]);
  }
  return most;
}

}  // namespace kerf::partition
