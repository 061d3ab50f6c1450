// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/quantity.h"

#include <fmt/format.h>

namespace kerf {

double read_quantity(const JsonReader& reader, std::string_view key) {
  return as_quantity(reader.child(key));
}

double as_quantity(const JsonReader& reader) {
  const double number = reader.as_number();
  if (!is_quantity(number)) reader.fail(fmt::format("{}", number), kQuantityText);
  return number;
}

}  // namespace kerf
