// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/graph/argument.h"

namespace kerf {

// What the model's code read from one of its modules while it was traced: plain data, no value of
// the graph and nothing in B. The graph is right only while the attribute is what it was.
struct Attribute {
  std::string path;  // of the module; empty: the model itself
  std::string name;
  Argument value;
  friend bool operator==(const Attribute&, const Attribute&) = default;
};

}  // namespace kerf
