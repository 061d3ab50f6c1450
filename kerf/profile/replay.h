// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "kerf/base/units.h"
#include "kerf/profile/profile.h"

namespace kerf {

// What each node adds to a run of them all on an accelerator, in the order given: the host issues
// one after the other and waits for none, the device begins a node's work when it was issued and
// the work before it is done.
//
//   host    |aaaa|bbbb|c|d|
//   device       |a|  |bbbbbb|cc|d|          adds:  a = aaaa + a,  b = from there to b's end, ...
//
// The sum is the end of the run. Linear time.
std::vector<Nanoseconds> replay(std::span<const IssueTimes> nodes);

}  // namespace kerf
