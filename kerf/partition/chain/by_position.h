// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Training splits that fit: what a stage keeps depends on its place in the pipeline. Private to
// partition/chain/.
#pragma once

#include <optional>

#include "kerf/partition/chain/chain_input.h"
#include "kerf/partition/chain/lineup.h"

namespace kerf::partition {

// The best split that was found to fit, for devices as in the lineup; of an order the first ones,
// none left out. Nothing where memory is not limited: then any split fits.
//
// For each number of stages a dynamic program over positions and devices in use, in which an
// interval's memory is that of its place (pipeline_moments.h): under 1f1b the stage s of p keeps
// min(m, p - s) micro-batches. Its best split is made a plan. Where that does not fit after all,
// the program learns what those intervals need at those places, and looks again. Not proved to be
// the best: whoever wants that searches on.
std::optional<Plan> fit_by_position(const ChainInput& input, const Lineup& lineup);

}  // namespace kerf::partition
