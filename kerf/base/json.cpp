// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace kerf {
namespace {

constexpr int kMaxDepth = 200;

struct Place {
  std::size_t line = 1;
  std::size_t column = 1;
};

Place place_of(std::string_view text, std::size_t offset) {
  offset = std::min(offset, text.size());
  const std::string_view before = text.substr(0, offset);
  Place place;
  place.line += static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t last = before.rfind('\n');
  place.column = last == std::string_view::npos ? offset + 1 : offset - last;
  return place;
}

// nlohmann's parser recurses on nothing, but its destructor and our readers do.
void check_depth(std::string_view text, std::string_view source, ErrorKind kind) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxDepth) {
      const Place place = place_of(text, i);
      throw Error(kind,
                  fmt::format("[base.json] {}:{}:{}: nested deeper than {} levels; expected a "
                              "file written by Kerf; write it again",
                              source, place.line, place.column, kMaxDepth));
    }
  }
}

// What nlohmann says after its own tag and position.
std::string reason_of(std::string_view what) {
  const std::size_t at = what.find("] ");
  if (at != std::string_view::npos) what.remove_prefix(at + 2);
  const std::size_t place = what.find(": ");
  return std::string(place == std::string_view::npos ? what : what.substr(place + 2));
}

// Reads the text again for the place of its first error: the exception for a number that is too
// large does not know it.
struct Locator : nlohmann::json_sax<Json> {
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    // Counts from 1; points at the offending character, or past the end.
    offset = position == 0 ? 0 : position - 1;
    return false;
  }
  std::size_t offset = 0;
};

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

Json parse_json(std::string_view text, std::string_view source, ErrorKind kind) {
  check_depth(text, source, kind);
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    Locator locator;
    Json::sax_parse(text.begin(), text.end(), &locator);
    const Place place = place_of(text, locator.offset);
    throw Error(kind,
                fmt::format("[base.json] {}:{}:{}: {}; expected complete JSON; the file may be "
                            "truncated: write it again",
                            source, place.line, place.column, reason_of(error.what())));
  }
}

Json format_header(std::string_view format, FormatVersion version) {
  Json json = Json::object();
  json["format"] = std::string(format);
  json["version"] = fmt::format("{}.{}", version.major, version.minor);
  return json;
}

void check_format_header(const Json& json, std::string_view format, FormatVersion supported,
                         std::string_view source, ErrorKind kind) {
  const JsonReader reader(json, std::string(source), kind);
  const std::string found = reader.text("format");
  if (found != format) {
    throw Error(kind, fmt::format("[base.json] {} holds a '{}'; expected a '{}'; give another file",
                                  source, found, format));
  }
  const std::string version = reader.text("version");
  const auto parsed = parse_version(version);
  if (parsed && parsed->major == supported.major && parsed->minor <= supported.minor) return;
  const bool newer = parsed && parsed->major >= supported.major;
  throw Error(
      kind, fmt::format("[base.json] {} has {} version {}; this Kerf reads {}.0 to {}.{}; {}",
                        source, format, version, supported.major, supported.major, supported.minor,
                        newer ? "install a newer Kerf" : "write the file again with this Kerf"));
}

bool JsonReader::has(std::string_view key) const {
  return json_->is_object() && json_->contains(std::string(key));
}

JsonReader JsonReader::child(std::string_view key) const {
  if (!json_->is_object()) fail(json_->type_name(), "an object");
  const auto found = json_->find(std::string(key));
  if (found == json_->end()) fail(fmt::format("no field '{}'", key), "that field");
  return JsonReader(*found, fmt::format("{}: {}", path_, key), kind_);
}

std::vector<JsonReader> JsonReader::elements() const {
  if (!json_->is_array()) fail(json_->type_name(), "an array");
  std::vector<JsonReader> out;
  out.reserve(json_->size());
  for (std::size_t i = 0; i < json_->size(); ++i) {
    out.emplace_back((*json_)[i], fmt::format("{}[{}]", path_, i), kind_);
  }
  return out;
}

std::vector<JsonReader> JsonReader::children(std::string_view key) const {
  return child(key).elements();
}

std::string JsonReader::text(std::string_view key) const { return child(key).as_text(); }
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

bool JsonReader::boolean(std::string_view key) const {
  const JsonReader field = child(key);
  if (!field.json_->is_boolean()) field.fail(field.json_->type_name(), "true or false");
  return field.json_->get<bool>();
}

std::string JsonReader::as_text() const {
  if (!json_->is_string()) fail(json_->type_name(), "a string");
  return json_->get<std::string>();
}

double JsonReader::as_number() const {
  if (!json_->is_number()) fail(json_->type_name(), "a number");
  const double value = json_->get<double>();
  if (!std::isfinite(value)) fail("a number out of range", "a finite number");
  return value;
}

std::int64_t JsonReader::as_integer() const {
  if (!json_->is_number_integer()) fail(json_->type_name(), "a whole number");
  if (json_->is_number_unsigned() && json_->get<std::uint64_t>() > INT64_MAX) {
    fail("a number past 2^63", "a 64-bit whole number");
  }
  return json_->get<std::int64_t>();
}

void JsonReader::fail(std::string_view found, std::string_view expected) const {
  throw Error(kind_, fmt::format("[base.json] {}: found {}; expected {}; mend the file or write it "
                                 "again",
                                 path_, found, expected));
}

}  // namespace kerf
