// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/passes/captured.h"

namespace kerf {

// Adds what operators ask of the batch and PyTorch checks before it calls them: batch norm with the
// statistics of its batch takes more than one value per channel.
void find_conditions(Captured& captured);

}  // namespace kerf
