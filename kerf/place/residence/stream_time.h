// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/place/residence/residence_problem.h"

namespace kerf {

// How long a call takes once calls follow each other: the link copies streamed units in the order
// of their use, each into the slot whose unit was used longest ago, as soon as that is over; units
// are computed one after the other, on the device or on the host.
Nanoseconds stream_time(const ResidenceProblem& problem, const Residences& residences);

}  // namespace kerf
