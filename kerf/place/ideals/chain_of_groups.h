// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The best split of one topological order into intervals, a device each (Tarnawski et al., NeurIPS
// 2020, section 5.1.2: "DPL"): as find_contiguous does, where there are too many ideals for it.
#pragma once

#include "kerf/place/load_search.h"

namespace kerf::place {

// Of several natural orders the one with the best split. `optimal`: no split of any of these orders
// is better, within 1e-9 of the value (for a graph that is a chain, no contiguous plan is), or
// options.good_enough is met. Without devices: none of them can be split so that it fits the
// memory, when `optimal`; else no such split was found. `truncated`: out of time, or too many
// choices of unequal devices.
LoadAnswer find_chain(const Instance& instance, const LoadOptions& options);

}  // namespace kerf::place
