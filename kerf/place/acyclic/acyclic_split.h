// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/place/load_search.h"

namespace kerf::place {

// acyclic_partition for an Instance: one stage a device, devices in the order given and, where
// they are not alike, the fastest first; the CPU, if there is one, first or last. Units that only
// the CPU can run are on it. An answer without devices: nothing was found that fits.
LoadAnswer acyclic_split(const Instance& units, const LoadOptions& options, bool multilevel);

}  // namespace kerf::place
