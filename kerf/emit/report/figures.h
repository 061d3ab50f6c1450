// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Figures as the tables show them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "kerf/base/units.h"

namespace kerf {

inline std::string time_or_dash(Nanoseconds time) { return time.count > 0 ? to_string(time) : "-"; }

inline std::string bytes_or_dash(Bytes bytes) { return bytes.count > 0 ? to_string(bytes) : "-"; }

inline std::string percent(double share) { return fmt::format("{:.1f} %", share * 100); }

// "1 stage", "2 stages".
inline std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace kerf
