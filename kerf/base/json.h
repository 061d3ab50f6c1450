// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// JSON at the border: parsing with line and column, fields read with their path in the message,
// and the format header every file of Kerf carries.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/error.h"

namespace kerf {

// Keys keep the order they were written in: files are read by people and compared with diff.
using Json = nlohmann::ordered_json;

// Throws Error(kind) with line and column; `source` (a file name) goes into the message. Nesting is
// limited, so that a hostile file cannot exhaust the stack; NaN and infinities are not JSON.
Json parse_json(std::string_view text, std::string_view source, ErrorKind kind);

struct FormatVersion {
  int major = 1;
  int minor = 0;
};

// {"format": "kerf-plan", "version": "1.0"}: put first into every file.
Json format_header(std::string_view format, FormatVersion version);
// An older minor version is accepted; another format, another major or a newer minor version throws
// Error(kind) that names both versions.
void check_format_header(const Json& json, std::string_view format, FormatVersion supported,
                         std::string_view source, ErrorKind kind);

// Reads typed fields of one object and says where it stands when something is wrong:
//   JsonReader reader(json, "plan.json", ErrorKind::invalid_plan);
//   auto count = reader.child("cluster").integer("n", 1, 1024);
// Keeps a pointer to `json`, which must outlive it.
class JsonReader {
 public:
  JsonReader(const Json& json, std::string path, ErrorKind kind)
      : json_(&json), path_(std::move(path)), kind_(kind) {}
  JsonReader(Json&&, std::string, ErrorKind) = delete;

  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }
  bool has(std::string_view key) const;

  JsonReader child(std::string_view key) const;
  std::vector<JsonReader> children(std::string_view key) const;  // elements of an array field
  std::vector<JsonReader> elements() const;                      // this value is the array

  std::string text(std::string_view key) const;
  bool boolean(std::string_view key) const;
  double number(std::string_view key) const;  // finite
  std::int64_t integer(std::string_view key) const;
  // A count or index: low <= value <= high.
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;

  std::string as_text() const;
  double as_number() const;
  std::int64_t as_integer() const;

  [[noreturn]] void fail(std::string_view found, std::string_view expected) const;

 private:
  const Json* json_;
  std::string path_;
  ErrorKind kind_;
};

}  // namespace kerf
