// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A sound plan's numbers against those derived anew. Private to verify/.
#pragma once

#include "kerf/plan/plan.h"
#include "kerf/profile/profile.h"
#include "kerf/verify/flow.h"
#include "kerf/verify/violation.h"

namespace kerf::derive {

// The plan's stages cover the graph and are numbered topologically, its devices exist, its sizes
// add up to numbers. Without a profile the stages' times are taken as given.
void check_figures(const Graph& graph, const Profile* profile, const Plan& plan, const Flow& flow,
                   Violations& violations);

}  // namespace kerf::derive
