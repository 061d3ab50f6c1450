// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The two tables inside plan_table: a row a stage, a row a device.
#pragma once

#include <string>

#include "kerf/plan/plan.h"

namespace kerf {

// `graph` may be nullptr: then no modules are named.
std::string stage_rows(const Plan& plan, const Graph* graph);
std::string device_rows(const Plan& plan);

}  // namespace kerf
