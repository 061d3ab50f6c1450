// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Times, speeds and rates from outside: nothing that arithmetic would turn into zero or infinity.
#pragma once

#include <string_view>

#include "kerf/base/json.h"

namespace kerf {

inline constexpr double kLeastQuantity = 1e-300;
inline constexpr double kMostQuantity = 1e300;
inline constexpr const char* kQuantityText = "0, or a number from 1e-300 to 1e300";

// Zero, or a positive number that products and sums of a few others can be made with. False for
// negative numbers, nan and infinity.
constexpr bool is_quantity(double number) {
  return number == 0 || (number >= kLeastQuantity && number <= kMostQuantity);
}

// A field, or the value itself, that has to be one. Throws as the reader does.
double read_quantity(const JsonReader& reader, std::string_view key);
double as_quantity(const JsonReader& reader);

}  // namespace kerf
