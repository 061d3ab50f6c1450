// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "kerf/plan/recompute.h"

namespace kerf::bindings {

// A mode, or the modules that are to be recomputed.
using Recompute = std::variant<std::string, std::vector<std::string>>;

inline RecomputeChoice to_choice(const Recompute& recompute) {
  if (const auto* mode = std::get_if<std::string>(&recompute)) return {*mode};
  return {{}, std::get<std::vector<std::string>>(recompute)};
}

}  // namespace kerf::bindings
