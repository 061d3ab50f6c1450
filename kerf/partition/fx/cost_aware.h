// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// cost_aware: the placement with the shortest run that fits, from many starts.
#pragma once

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

Outcome<Answer, Infeasible> cost_aware(const Request& request);

}  // namespace kerf::partition::fx
