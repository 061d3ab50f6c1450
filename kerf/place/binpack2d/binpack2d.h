// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Two-dimensional bin packing, Mixed-Pipe's forerunner: units of like cost are shared out together.
#pragma once

#include "kerf/place/load_search.h"

namespace kerf::place {

// Units are put into classes of like time (k-means); each class, in topological order, is cut into
// as many runs of equal counts as there are accelerators; the class that ends last goes to the
// devices in order, of the others the heaviest run first to the least loaded device with room. One
// to four classes are tried, and what is left over goes to the last run or to the lightest: the
// best by max load is the answer. Unlike the original it minds memory. An answer without devices:
// nothing was found that fits.
LoadAnswer binpack2d(const Instance& instance, const LoadOptions& options);

}  // namespace kerf::place
