// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// cost_aware and kl, mended: the placement with the shortest run that fits. Both improve the same
// starts and keep the best; cost_aware takes more starts and more work. Neither is optimal, and
// neither is worse than the original where that is small enough to be run too.
#pragma once

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

Outcome<Answer, Infeasible> cost_aware(const Request& request);
Outcome<Answer, Infeasible> kl(const Request& request);

}  // namespace kerf::partition::fx
