// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From a device for every op to partitions: as few as the cost allows.
#pragma once

#include "kerf/partition/fx/placement.h"

namespace kerf::partition::fx {

// Ops of one device whose paths cross between devices equally often can form one partition without
// a cycle; they do when that does not raise the critical path, else halves of them do.
std::vector<Partition> form_partitions(const Request& request, const OpTable& table,
                                       const Placement& placement);

}  // namespace kerf::partition::fx
