// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/base/json.h"
#include "kerf/plan/plan.h"

namespace kerf {

// The figures of plan_table for tools ("kerf-report" 1.3): names in place of ids, times in seconds,
// sizes in bytes. A summary: only plan.json can be loaded again.
Json report_json(const Plan& plan);

}  // namespace kerf
