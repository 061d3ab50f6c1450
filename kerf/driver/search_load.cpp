// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/search_load.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kerf/base/error.h"
#include "kerf/place/portfolio/load_methods.h"

namespace kerf {
namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan_load] {}; expected {}", found, expected));
}

}  // namespace

std::optional<LoadPlan> search_load(const LoadProblem& problem, const place::LoadRequest& request) {
  const partition::Entry* method = partition::find_method(request.method);
  if (method == nullptr || method->split == nullptr) {
    refuse(fmt::format("method '{}'", request.method),
           fmt::format("one of {}", fmt::join(partition::published_methods(), ", ")));
  }
  return search_load(problem, request, *method);
}

std::optional<LoadPlan> search_load(const LoadProblem& problem, const place::LoadRequest& request,
                                    const partition::Entry& method) {
  place::check_options(request.options.method, method.name, method.takes);
  if (request.objective == Objective::latency && !method.published_latency) {
    refuse(fmt::format("method '{}' for the objective latency", request.method), "auto or refine");
  }
  return place::plan_load(problem, request, method.split());
}

}  // namespace kerf
