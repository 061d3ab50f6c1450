// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Published problems, which come with their devices and costs: the verb `plan` for them.
#pragma once

#include <optional>
#include <string>

#include "kerf/base/outcome.h"
#include "kerf/place/load_plan.h"
#include "kerf/place/portfolio/load_request.h"

namespace kerf {

// Why there is no split: proved by a bound, or none was found.
struct NoSplit {
  std::string message;
  bool timed_out = false;  // the clock ended the search: another run may find one
};

// Verified as every plan is, for the objective latency too. Throws Error(invalid_argument) for
// requests that no method can answer, Error(internal) when the split is not sound.
Outcome<LoadPlan, NoSplit> plan(const LoadProblem& problem, const place::LoadRequest& request);

// With a search of one's own, which is believed no more than Kerf's.
using LoadSearch = std::optional<LoadPlan> (*)(const LoadProblem&, const place::LoadRequest&);
Outcome<LoadPlan, NoSplit> plan(const LoadProblem& problem, const place::LoadRequest& request,
                                LoadSearch search);

}  // namespace kerf
