// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/passes/captured.h"

namespace kerf {

// Notes on every call of a known operator what it writes, hidden writes included, whose memory its
// results may lie in, and whether it draws random numbers (graph/operator_effects.h).
void find_effects(Captured& captured);

}  // namespace kerf
