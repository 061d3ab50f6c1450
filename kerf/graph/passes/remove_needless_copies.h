// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/passes/captured.h"

namespace kerf {

// Leaves out copies of constants that no call changes and that do not leave the model: the constant
// is as good. Runs after find_effects().
void remove_needless_copies(Captured& captured);

}  // namespace kerf
