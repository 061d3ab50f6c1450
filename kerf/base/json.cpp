// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>
#include <unordered_map>

namespace kerf {
namespace {

// "1.12" and nothing else.
std::optional<FormatVersion> parse_version(std::string_view text) {
  const char* const end = text.data() + text.size();
  FormatVersion out;
  const auto [dot, major_status] = std::from_chars(text.data(), end, out.major);
  if (major_status != std::errc{} || dot == end || *dot != '.') return std::nullopt;
  const auto [rest, minor_status] = std::from_chars(dot + 1, end, out.minor);
  if (minor_status != std::errc{} || rest != end || out.major < 0 || out.minor < 0) {
    return std::nullopt;
  }
  return out;
}

}  // namespace

Json format_header(std::string_view format, FormatVersion version) {
  Json json = Json::object();
  json["format"] = std::string(format);
  json["version"] = fmt::format("{}.{}", version.major, version.minor);
  return json;
}

void append_json(std::string& out, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (!plain) {
    out += Json(text).dump();
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

void append_json(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  const std::size_t start = out.size();
  fmt::format_to(std::back_inserter(out), "{}", number);
  if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
}

void append_json(std::string& out, std::int64_t number) {
  fmt::format_to(std::back_inserter(out), "{}", number);
}

void check_format_header(const JsonDocument& document, std::string_view format,
                         FormatVersion supported) {
  const JsonReader reader(document);
  const std::string found = reader.text("format");
  if (found != format) {
    throw Error(document.error_kind(),
                fmt::format("[base.json] {} holds a '{}'; expected a '{}'; give another file",
                            document.source(), found, format));
  }
  const std::string version = reader.text("version");
  const auto parsed = parse_version(version);
  if (parsed && parsed->major == supported.major && parsed->minor <= supported.minor) return;
  const bool newer = parsed && parsed->major >= supported.major;
  throw Error(document.error_kind(),
              fmt::format("[base.json] {} has {} version {}; this Kerf reads {}.0 to {}.{}; {}",
                          document.source(), format, version, supported.major, supported.major,
                          supported.minor,
                          newer ? "install a newer Kerf" : "write the file again with this Kerf"));
}

JsonReader::Index JsonReader::find(std::string_view key) const {
  Index found = 0;
  const Index end = document_->last(value_);
  for (Index field = document_->first(value_); field != end; field = document_->next(field + 1)) {
    if (document_->equals(field, key)) found = field + 1;
  }
  return found;
}

bool JsonReader::has(std::string_view key) const {
  return type() == JsonType::object && find(key) != 0;
}

JsonReader JsonReader::child(std::string_view key) const {
  if (type() != JsonType::object) refuse_type("an object");
  const Index found = find(key);
  if (found == 0) fail(fmt::format("no field '{}'", key), "that field");
  return at(found);
}

std::vector<JsonReader> JsonReader::elements() const {
  if (type() != JsonType::array) refuse_type("an array");
  std::vector<JsonReader> out;
  const Index end = document_->last(value_);
  for (Index i = document_->first(value_); i != end; i = document_->next(i)) out.push_back(at(i));
  return out;
}

std::vector<JsonReader> JsonReader::children(std::string_view key) const {
  return child(key).elements();
}

std::vector<std::pair<std::string, JsonReader>> JsonReader::fields() const {
  if (type() != JsonType::object) refuse_type("an object");
  std::vector<std::pair<std::string, JsonReader>> out;
  std::unordered_map<std::string, std::size_t> position;
  const Index end = document_->last(value_);
  for (Index field = document_->first(value_); field != end; field = document_->next(field + 1)) {
    std::string name = document_->string(field);
    const auto [entry, first] = position.try_emplace(name, out.size());
    if (first) {
      out.emplace_back(std::move(name), at(field + 1));
    } else {
      out[entry->second].second = at(field + 1);
    }
  }
  return out;
}

std::string JsonReader::text(std::string_view key) const { return child(key).as_text(); }
bool JsonReader::boolean(std::string_view key) const { return child(key).as_boolean(); }
double JsonReader::number(std::string_view key) const { return child(key).as_number(); }
std::int64_t JsonReader::integer(std::string_view key) const { return child(key).as_integer(); }

std::int64_t JsonReader::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  const JsonReader field = child(key);
  const std::int64_t value = field.as_integer();
  if (value < low || value > high) {
    field.fail(std::to_string(value), fmt::format("a number from {} to {}", low, high));
  }
  return value;
}

std::string JsonReader::as_text() const {
  if (type() != JsonType::string) refuse_type("a string");
  return document_->string(value_);
}

bool JsonReader::as_boolean() const {
  if (type() != JsonType::boolean) refuse_type("true or false");
  return document_->is_true(value_);
}

double JsonReader::as_number() const {
  if (type() != JsonType::number) refuse_type("a number");
  return document_->number(value_);
}

bool JsonReader::is_whole_number() const {
  return type() == JsonType::number &&
         document_->token(value_).find_first_of(".eE") == std::string_view::npos;
}

std::int64_t JsonReader::as_integer() const {
  if (!is_whole_number()) refuse_type("a whole number");
  const std::string_view token = document_->token(value_);
  std::int64_t out = 0;
  const auto [end, status] = std::from_chars(token.data(), token.data() + token.size(), out);
  if (status != std::errc{}) fail("a number past 2^63", "a 64-bit whole number");
  return out;
}

std::uint64_t JsonReader::as_unsigned() const {
  if (!is_whole_number()) refuse_type("a whole number");
  const std::string_view token = document_->token(value_);
  std::uint64_t out = 0;
  const auto [end, status] = std::from_chars(token.data(), token.data() + token.size(), out);
  if (status != std::errc{}) fail(token.substr(0, 24), "a whole number from 0 to 2^64 - 1");
  return out;
}

// As deep as a document nests, which is limited.
Json JsonReader::to_json() const {
  switch (type()) {
    case JsonType::null: return nullptr;
    case JsonType::boolean: return as_boolean();
    case JsonType::string: return as_text();
    case JsonType::number: return Json::parse(document_->token(value_));
    case JsonType::array: {
      Json out = Json::array();
      for (const JsonReader& element : elements()) out.push_back(element.to_json());
      return out;
    }
    case JsonType::object: break;
  }
  // Names differ: fields are appended, where looking each up first would take quadratic time.
  Json::object_t out;
  for (const auto& [name, value] : fields()) {
    out.Json::object_t::Container::emplace_back(name, value.to_json());
  }
  return out;
}

void JsonReader::refuse_type(std::string_view expected) const {
  const std::string_view name = to_string(type());
  const bool vowel = type() == JsonType::array || type() == JsonType::object;
  fail(
      type() == JsonType::null ? std::string(name) : fmt::format("{} {}", vowel ? "an" : "a", name),
      expected);
}

void JsonReader::fail(std::string_view found, std::string_view expected) const {
  throw Error(document_->error_kind(),
              fmt::format("[base.json] {}: found {}; expected {}; fix the file or write it again",
                          path(), found, expected));
}

}  // namespace kerf
