// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Where plans are verified: once and always, before a verb of this room returns them. A method that
// makes an unsound one is a bug of Kerf's and not the user's, so that what is thrown is
// Error(internal) with the rules that are broken.
#pragma once

#include "kerf/place/load_plan.h"
#include "kerf/place/portfolio/load_request.h"
#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf {

void refuse_unsound(const Problem& problem, const Plan& plan);
void refuse_unsound(const LoadProblem& problem, const LoadPlan& plan,
                    const place::LoadRequest& request);

}  // namespace kerf
