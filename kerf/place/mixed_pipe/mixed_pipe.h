// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Mixed-Pipe (Eliad et al., USENIX ATC 2021): more blocks than devices, each on any device, so that
// time and memory are even together where no contiguous split can make both so.
#pragma once

#include "kerf/place/load_search.h"

namespace kerf::place {

// Lines of units in topological order are cut into L blocks; those are shared out, the longest
// first, within the memories, and improved by moves and swaps; then single units move along the
// borders. LoadOptions::stages is L; 0: several numbers are tried, and of splits that are within
// half a percent of the best the one with fewest blocks is taken. Any split can be made stages
// (raise/form_stages.h).
LoadAnswer mixed_pipe(const Instance& instance, const LoadOptions& options);

}  // namespace kerf::place
