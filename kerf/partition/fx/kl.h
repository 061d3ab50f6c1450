// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// kl: moves and swaps of single nodes, from the split by size and from intervals.
#pragma once

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

Outcome<Answer, Infeasible> kl(const Request& request);

}  // namespace kerf::partition::fx
