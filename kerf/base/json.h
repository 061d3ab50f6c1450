// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// JSON at the border: fields read with their path in the message, and the format header every file
// of Kerf carries. Reading goes through JsonDocument, made for files of a million entries; what is
// written is built as a Json; files that build one include <nlohmann/json.hpp>, which takes longer
// to compile than most of them.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/error.h"
#include "kerf/base/json_document.h"

namespace kerf {

// Keys keep the order they were written in: files are read by people and compared with diff.
using Json = nlohmann::ordered_json;

struct FormatVersion {
  int major = 1;
  int minor = 0;
};

// {"format": "kerf-plan", "version": "1.0"}: put first into every file.
Json format_header(std::string_view format, FormatVersion version);
// An older minor version is accepted; another format, another major or a newer minor version throws
// Error of the document's kind that names both versions.
void check_format_header(const JsonDocument& document, std::string_view format,
                         FormatVersion supported);

// For lists of a million entries, which would be too large as a Json: the text of a value is added
// to `out`, as Json would write it.
void append_json(std::string& out, std::string_view text);
void append_json(std::string& out, double number);
void append_json(std::string& out, std::int64_t number);

// Reads typed fields of one value and says where it stands when something is wrong:
//   const JsonDocument document = load_json("plan.json", ErrorKind::invalid_plan);
//   auto count = JsonReader(document).child("cluster").integer("n", 1, 1024);
// Two words that refer to the document, which must outlive it.
class JsonReader {
 public:
  explicit JsonReader(const JsonDocument& document) : document_(&document) {}
  explicit JsonReader(JsonDocument&&) = delete;

  JsonType type() const { return document_->type(value_); }
  std::string path() const { return document_->path(value_); }
  bool has(std::string_view key) const;

  JsonReader child(std::string_view key) const;
  std::vector<JsonReader> children(std::string_view key) const;  // elements of an array field
  std::vector<JsonReader> elements() const;                      // this value is the array
  // This value is the object: its fields in order, each name once.
  std::vector<std::pair<std::string, JsonReader>> fields() const;

  std::string text(std::string_view key) const;
  bool boolean(std::string_view key) const;
  double number(std::string_view key) const;  // finite
  std::int64_t integer(std::string_view key) const;
  // A count or index: low <= value <= high.
  std::int64_t integer(std::string_view key, std::int64_t low, std::int64_t high) const;

  std::string as_text() const;
  bool as_boolean() const;
  double as_number() const;
  std::int64_t as_integer() const;
  std::uint64_t as_unsigned() const;

  // The whole value, to be changed or printed.
  Json to_json() const;

  [[noreturn]] void fail(std::string_view found, std::string_view expected) const;

 private:
  using Index = JsonDocument::Index;
  JsonReader(const JsonDocument* document, Index value) : document_(document), value_(value) {}
  JsonReader at(Index value) const { return {document_, value}; }
  // The value of the last field of that name; 0: there is none.
  Index find(std::string_view key) const;
  bool is_whole_number() const;
  [[noreturn]] void refuse_type(std::string_view expected) const;

  const JsonDocument* document_;
  Index value_ = 0;
};

}  // namespace kerf
