// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/plan_load.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "kerf/base/stop_clock.h"
#include "kerf/driver/refuse_unsound.h"
#include "kerf/driver/search_load.h"
#include "kerf/place/bound/published_bounds.h"

namespace kerf {
namespace {

NoSplit why_none(const LoadProblem& problem, const place::LoadRequest& request) {
  if (std::isinf(tightest(place::load_bounds(problem)).value)) {
    return {
        fmt::format("[partition.{}] no split fits a memory of {:.6g} on each of {} accelerators; "
                    "raise maxSizePerFPGA, or add accelerators or a CPU",
                    request.method, problem.memory, problem.num_accelerators)};
  }
  const bool contiguous =
      request.contiguous || request.method == "ideals" || request.method == "chain";
  return {fmt::format(
      "[partition.{}] no {}split was found in {:.3g} s that fits each accelerator's memory of "
      "{:.6g} and whose devices do not wait for each other in a cycle; that does not prove that "
      "there is none; raise --time-budget or maxSizePerFPGA, or try --method auto",
      request.method, contiguous ? "contiguous " : "", request.options.time_budget,
      problem.memory)};
}

}  // namespace

Outcome<LoadPlan, NoSplit> plan(const LoadProblem& problem, const place::LoadRequest& request,
                                LoadSearch search) {
  const DeadlineScope deadline(request.options.safety_stop());
  std::optional<LoadPlan> found = search(problem, request);
  if (!found) {
    NoSplit none = why_none(problem, request);
    none.timed_out = deadline.timed_out();
    return none;
  }
  refuse_unsound(problem, *found, request);
  return *std::move(found);
}

Outcome<LoadPlan, NoSplit> plan(const LoadProblem& problem, const place::LoadRequest& request) {
  return plan(problem, request, search_load);
}

}  // namespace kerf
