// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/passes/captured.h"

namespace kerf {

// Leaves out calls that give back their first argument, and hands that argument to their readers:
// dropout in evaluation, `to` the dtype it has, a view of the same form, `contiguous` where nobody
// would see a copy (graph/sharing.h).
void remove_identities(Captured& captured);

}  // namespace kerf
