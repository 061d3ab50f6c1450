// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/load/load_methods.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>

#include "kerf/base/error.h"
#include "kerf/partition/ideals/ideals.h"
#include "kerf/partition/mincut/load_bounds.h"
#include "kerf/partition/mincut/prove.h"
#include "kerf/partition/refine/latency_search.h"
#include "kerf/partition/refine/refine.h"

namespace kerf::partition {
namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan_load] {}; expected {}", found, expected));
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

class Planner {
 public:
  Planner(const LoadProblem& problem, const LoadRequest& request)
      : problem_(problem), request_(request), units_(to_units(problem)), start_(cpu_seconds()) {
    bounds_ = find_load_bounds(units_);
    bound_ = tightest(bounds_);
  }

  std::optional<LoadPlan> run() {
    const std::string& method = request_.method;
    if (method == "ideals" || request_.contiguous) {
      contiguous(1);
    } else if (method == "refine") {
      any_split(1);
    } else {
      contiguous(0.25);
      if (!met()) prove_it(0.1);
      if (!met() && method == "auto") any_split(1);  // uses some six tenths of what it is given
      if (!met()) prove_it(1);
    }
    if (best_.device.empty()) return std::nullopt;
    return plan();
  }

 private:
  double left() const { return request_.options.time_budget - (cpu_seconds() - start_); }
  LoadOptions options(double share) const {
    LoadOptions out = request_.options;
    out.time_budget = std::max(0.01, left() * share);
    out.good_enough = bound_.value;
    return out;
  }
  bool met() const {
    constexpr double kGap = 1e-6;
    return !best_.device.empty() && best_.objective <= bound_.value * (1 + kGap);
  }
  void offer(LoadAnswer answer) {
    truncated_ = truncated_ || answer.truncated;
    if (answer.device.empty()) return;
    if (best_.device.empty() || answer.objective < best_.objective) best_ = std::move(answer);
  }

  void contiguous(double share) { offer(find_contiguous(problem_, options(share))); }
  void any_split(double share) {
    std::vector<std::vector<std::uint32_t>> starts;
    if (!best_.device.empty()) starts.push_back(best_.device);
    offer(refine(units_, options(share), starts));
  }
  void prove_it(double share) {
    ProofOptions proof_options;
    proof_options.time_budget = std::max(0.01, left() * share);
    // Counted work decides: some 1e8 arcs a second.
    proof_options.work_budget =
        static_cast<std::int64_t>(request_.options.time_budget * std::min(share, 0.3) * 0.8e8);
    Proof proof = prove(units_, best_, proof_options);
    if (proof.bound.value > bound_.value) bound_ = proof.bound;
    offer(std::move(proof.answer));
  }

  LoadPlan plan() const {
    LoadPlan out;
    out.method = request_.method;
    out.device = to_nodes(units_, best_.device);
    const Loads loads = find_loads(problem_, out.device);
    KERF_CHECK(loads.fits, "the split exceeds an accelerator's memory");
    out.value = loads.busiest;
    out.lower_bound = std::min(bound_.value, out.value);
    out.bound_name = bound_.name;
    out.bound_argument = bound_.argument;
    out.contiguous = is_contiguous(problem_, out.device);
    out.truncated = truncated_ && !met();
    out.cpu_seconds = cpu_seconds() - start_;
    out.seed = request_.options.seed;
    return out;
  }

  const LoadProblem& problem_;
  const LoadRequest& request_;
  UnitProblem units_;
  double start_;
  std::vector<LoadBound> bounds_;
  LoadBound bound_;
  LoadAnswer best_;
  bool truncated_ = false;
};

std::optional<LoadPlan> plan_latency(const LoadProblem& problem, const LoadRequest& request) {
  if (request.method != "auto" && request.method != "refine") {
    refuse(fmt::format("method '{}' for the objective latency", request.method), "auto or refine");
  }
  const double start = cpu_seconds();
  const LoadBound bound = latency_bound(problem);
  LoadOptions options = request.options;
  options.good_enough = bound.value;
  const LoadAnswer answer = latency_search(problem, options, request.serial);
  if (answer.device.empty()) return std::nullopt;
  const UnitProblem units = to_units(problem);
  LoadPlan out;
  out.method = request.method;
  out.objective = Objective::latency;
  out.device = to_nodes(units, answer.device);
  out.value = find_latency(problem, out.device, request.serial);
  out.lower_bound = std::min(bound.value, out.value);
  out.bound_name = bound.name;
  out.bound_argument = bound.argument;
  out.contiguous = is_contiguous(problem, out.device);
  out.truncated = answer.truncated;
  out.cpu_seconds = cpu_seconds() - start;
  out.seed = request.options.seed;
  return out;
}

}  // namespace

std::vector<std::string> load_method_names() { return {"auto", "ideals", "refine", "exact"}; }

std::optional<LoadPlan> plan_load(const LoadProblem& problem, const LoadRequest& request) {
  const std::vector<std::string> names = load_method_names();
  if (std::find(names.begin(), names.end(), request.method) == names.end()) {
    refuse(fmt::format("method '{}'", request.method),
           fmt::format("one of {}", fmt::join(names, ", ")));
  }
  if (!(request.options.time_budget > 0)) {
    refuse(fmt::format("a time budget of {} s", request.options.time_budget), "more than 0");
  }
  switch (request.objective) {
    case Objective::throughput: return Planner(problem, request).run();
    case Objective::latency: return plan_latency(problem, request);
    default:
      refuse(fmt::format("the objective {} for a published problem", to_string(request.objective)),
             "throughput or latency");
  }
}

std::vector<LoadBound> load_bounds(const LoadProblem& problem) {
  return find_load_bounds(to_units(problem));
}

LoadBound latency_bound(const LoadProblem& problem) {
  std::vector<std::size_t> waiting(problem.nodes.size(), 0);
  for (const auto& next : problem.successors) {
    for (const std::uint32_t n : next) ++waiting[n];
  }
  std::vector<std::uint32_t> ready;
  for (std::uint32_t n = 0; n < waiting.size(); ++n) {
    if (waiting[n] == 0) ready.push_back(n);
  }
  std::vector<double> start(problem.nodes.size(), 0);
  double longest = 0;
  while (!ready.empty()) {
    const std::uint32_t n = ready.back();
    ready.pop_back();
    const LoadNode& node = problem.nodes[n];
    double time = node.cpu_time;
    if (problem.num_accelerators > 0 && node.on_accelerator) {
      time = problem.num_cpus > 0 ? std::min(time, node.accelerator_time) : node.accelerator_time;
    }
    const double end = start[n] + time;
    longest = std::max(longest, end);
    for (const std::uint32_t next : problem.successors[n]) {
      start[next] = std::max(start[next], end);
      if (--waiting[next] == 0) ready.push_back(next);
    }
  }
  return {"path", longest,
          "the nodes of the longest path run one after the other, each where it is fastest"};
}

}  // namespace kerf::partition
