// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Questions about the arguments of a node.
#pragma once

#include <string_view>

#include "kerf/graph/node.h"

namespace kerf {

// The argument at a position of the operator's schema, however it was passed; nullptr when absent.
const Argument* find_argument(const Node& node, std::size_t position, std::string_view name);
// The tensor given there; nullptr when it is absent or something else.
const ValueId* find_tensor(const Node& node, std::size_t position, std::string_view name);

// Is there a B in it?
bool depends_on_batch(const Argument& argument);

}  // namespace kerf
