// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Baselines: what a plan has to beat.
#pragma once

#include "kerf/partition/method.h"

namespace kerf::partition {

// Everything on the fastest device that holds it.
Outcome<Plan, Infeasible> single(const Problem& problem, const Options& options);

// The graph's order cut into as many pieces of equal node counts as there are devices; a cut that
// would separate glued nodes moves to the nearest place where it may be. Blind to time and memory:
// infeasible when a piece does not fit.
Outcome<Plan, Infeasible> even(const Problem& problem, const Options& options);

}  // namespace kerf::partition
