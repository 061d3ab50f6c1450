// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/transfer_times.h"

#include "kerf/base/json.h"
#include "kerf/base/quantity.h"

namespace kerf::cli {

std::map<std::string, Nanoseconds> load_transfer_times(const std::string& path) {
  const JsonDocument document = load_json(path, ErrorKind::invalid_argument);
  const JsonReader reader(document);
  if (reader.type() != JsonType::object) {
    reader.fail(to_string(reader.type()), "an object of names of values and seconds");
  }
  std::map<std::string, Nanoseconds> times;
  for (const auto& [name, value] : reader.fields()) {
    times[name] = Nanoseconds{as_quantity(value) * 1e9};
  }
  return times;
}

}  // namespace kerf::cli
