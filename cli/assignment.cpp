// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/assignment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "kerf/base/file.h"
#include "kerf/base/json.h"

namespace kerf::cli {
namespace {

constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;

// The fields of an object that has at least one.
JsonReader object_at(const JsonReader& reader, std::string_view key, std::string_view expected) {
  const JsonReader field = reader.child(key);
  if (!field.json().is_object()) field.fail(field.json().type_name(), expected);
  if (field.json().empty()) field.fail("nothing", expected);
  return field;
}

std::int64_t partition_of(const JsonReader& reader, const std::string& key) {
  std::int64_t number = -1;
  const char* const end = key.data() + key.size();
  const auto [rest, status] = std::from_chars(key.data(), end, number);
  const bool plain = key == "0" || (!key.empty() && key.front() != '0');
  if (status != std::errc{} || rest != end || !plain || number < 0 || number > kMost) {
    reader.fail(fmt::format("the key '{}'", key), "a partition's number, such as \"0\"");
  }
  return number;
}

}  // namespace

void load_assignment(const std::string& path, partition::Options& options) {
  constexpr auto kKind = ErrorKind::invalid_argument;
  const Json json = parse_json(read_file(path), path, kKind);
  const JsonReader reader(json, path, kKind);
  const JsonReader nodes = object_at(reader, "nodes", "an object of node names and partitions");
  const JsonReader devices = object_at(reader, "devices", "an object of partitions and devices");
  for (const auto& [key, value] : json.items()) {
    if (key != "nodes" && key != "devices") {
      reader.fail(fmt::format("the key '{}'", key), "\"nodes\" and \"devices\" alone");
    }
  }
  for (const auto& [name, value] : nodes.json().items()) {
    options.node_to_partition[name] = nodes.integer(name, 0, kMost);
  }
  for (const auto& [key, value] : devices.json().items()) {
    options.partition_to_device[partition_of(devices, key)] = devices.text(key);
  }
}

}  // namespace kerf::cli
