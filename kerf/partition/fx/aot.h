// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// aot: partitions and devices as the caller gives them, checked before anything is built.
#pragma once

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

// Throws Error(invalid_argument): nodes that are missing, partitions without devices, devices that
// do not exist, partitions that wait for each other (with the cycle). Infeasible: a device's
// memory.
Outcome<Answer, Infeasible> aot(const Request& request);

}  // namespace kerf::partition::fx
