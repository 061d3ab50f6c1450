// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/assignment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "kerf/base/json.h"

namespace kerf::cli {
namespace {

constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;

// The fields of an object that has at least one.
JsonReader object_at(const JsonReader& reader, std::string_view key, std::string_view expected) {
  const JsonReader field = reader.child(key);
  if (field.type() != JsonType::object) field.fail(to_string(field.type()), expected);
  if (field.fields().empty()) field.fail("nothing", expected);
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

std::int64_t partition_number(const JsonReader& value) {
  const std::int64_t number = value.as_integer();
  if (number < 0 || number > kMost) {
    value.fail(std::to_string(number), fmt::format("a number from 0 to {}", kMost));
  }
  return number;
}

}  // namespace

void load_assignment(const std::string& path, partition::Options& options) {
  const JsonDocument document = load_json(path, ErrorKind::invalid_argument);
  const JsonReader reader(document);
  const JsonReader nodes = object_at(reader, "nodes", "an object of node names and partitions");
  const JsonReader devices = object_at(reader, "devices", "an object of partitions and devices");
  for (const auto& [key, value] : reader.fields()) {
    if (key != "nodes" && key != "devices") {
      reader.fail(fmt::format("the key '{}'", key), "only \"nodes\" and \"devices\"");
    }
  }
  for (const auto& [name, value] : nodes.fields()) {
    options.node_to_partition[name] = partition_number(value);
  }
  for (const auto& [key, value] : devices.fields()) {
    options.partition_to_device[partition_of(devices, key)] = value.as_text();
  }
}

}  // namespace kerf::cli
