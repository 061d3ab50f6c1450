// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The two numbers that stand for "none": no finite cost, and no index.
#pragma once

#include <cstdint>
#include <limits>

namespace kerf {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr std::uint32_t kNoIndex = std::numeric_limits<std::uint32_t>::max();

}  // namespace kerf
