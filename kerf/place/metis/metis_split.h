// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/place/load_search.h"

namespace kerf::place {

// METIS' k-way partition of the units, direction ignored: several seeds and imbalances, the best by
// max load. METIS knows no memory: units leave a device that is too full, those first that cost
// least to move. An answer without devices: nothing was made to fit. Throws
// Error(missing_backend) where Kerf was built without METIS.
LoadAnswer metis_split(const Instance& problem, const LoadOptions& options);

}  // namespace kerf::place
