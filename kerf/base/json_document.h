// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/error.h"

namespace kerf {

enum class JsonType : std::uint8_t { null, boolean, number, string, array, object };
std::string_view to_string(JsonType type);

// A JSON text that has been checked, with a note of where each value starts: four bytes a value
// beside the text itself, made in one pass. Read it with JsonReader (json.h).
class JsonDocument {
 public:
  std::string_view text() const { return text_; }
  const std::string& source() const { return source_; }
  ErrorKind error_kind() const { return kind_; }

  // A value's number. 0 is the whole document; the values inside of a container follow it.
  using Index = std::uint32_t;
  JsonType type(Index value) const;
  bool is_true(Index value) const { return text_[starts_[value]] == 't'; }
  bool is_container(Index value) const {
    return text_[starts_[value]] == '{' || text_[starts_[value]] == '[';
  }
  // Of a container: its first key or element, and the number past its last. An object's keys and
  // values take turns.
  Index first(Index container) const { return container + 2; }
  Index last(Index container) const { return starts_[container + 1]; }
  // The value that stands beside this one.
  Index next(Index value) const { return is_container(value) ? last(value) : value + 1; }

  // Does this key or string say `expected`?
  bool equals(Index value, std::string_view expected) const;
  std::string string(Index value) const;
  std::string_view token(Index value) const;  // the characters of a number
  double number(Index value) const;
  // "plan.json: stages[3]: time_ns". Looked for when a message needs it.
  std::string path(Index value) const;

 private:
  friend class JsonParser;
  friend JsonDocument load_json(const std::string& path, ErrorKind kind);
  std::unique_ptr<const std::string> owned_;  // when the text is its own
  std::string_view text_;
  std::string source_;
  ErrorKind kind_ = ErrorKind::invalid_argument;
  // Where each value starts in the text; after that of a container, the number past its last value.
  std::vector<std::uint32_t> starts_;
};

// Throws Error(kind) with line and column; `source` (a file name) goes into the message. Nesting is
// limited, so that a hostile file cannot exhaust the stack; NaN and infinities are not JSON. Of
// fields with one name the last counts. The document refers to `text`, which must outlive it.
JsonDocument parse_json(std::string_view text, std::string_view source, ErrorKind kind);
template <std::same_as<std::string> Text>
JsonDocument parse_json(Text&& text, std::string_view source, ErrorKind kind) = delete;

// Reads the file and keeps its text.
JsonDocument load_json(const std::string& path, ErrorKind kind);

}  // namespace kerf
