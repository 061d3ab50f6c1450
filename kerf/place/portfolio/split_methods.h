// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The ways to split an Instance that people know by name.
#pragma once

#include "kerf/place/portfolio/split_method.h"

namespace kerf::place {

// What a step's solver makes of an instance; one stage per device where `options` ask for that. No
// devices: it found nothing that fits.
LoadAnswer solve(const SplitStep& step, const Instance& instance, const LoadOptions& options);

const SplitMethod& chain_split();   // one good order, cut best possible
const SplitMethod& ideals_split();  // the best contiguous split over all orders
const SplitMethod& refine_split();  // local search over any split
const SplitMethod& exact_split();   // proof by minimum cuts, from what the others find
const SplitMethod& auto_split();    // all of them, until a bound is met
const SplitMethod&
one_stage_split();  // what `auto` and `exact` do where splits have to be contiguous

const SplitMethod& mixed_pipe_split();
const SplitMethod& multilevel_split();
const SplitMethod& acyclic_split_method();
const SplitMethod& metis_split_method();  // throws Error(missing_backend) when used without METIS
const SplitMethod& pipedream_split();
const SplitMethod& binpack2d_split();

}  // namespace kerf::place
