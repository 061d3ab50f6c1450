// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr double kLargestSize = 1152921504606846976.0;  // 2^60: past any memory, below overflow

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

double unit_factor(std::string_view unit, std::string_view whole) {
  static constexpr std::array<std::pair<std::string_view, double>, 14> kUnits{{
      {"", 1.0},
      {"b", 1.0},
      {"kib", 1024.0},
      {"mib", 1048576.0},
      {"gib", 1073741824.0},
      {"tib", 1099511627776.0},
      {"kb", 1e3},
      {"mb", 1e6},
      {"gb", 1e9},
      {"tb", 1e12},
      {"k", 1024.0},
      {"m", 1048576.0},
      {"g", 1073741824.0},
      {"t", 1099511627776.0},
  }};
  for (const auto& [name, factor] : kUnits) {
    if (lower(unit) == name) return factor;
  }
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("[base.parse_bytes] unknown unit '{}' in '{}'; expected B, KiB, MiB, GiB, "
                  "TiB, KB, MB, GB or TB; write for example '2GiB'",
                  unit, whole));
}

// Three significant digits without an exponent.
std::string three_digits(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude >= 99.95) return fmt::format("{:.0f}", value);
  if (magnitude >= 9.995) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const std::string_view body = trim(text);
  double number = 0;
  const auto [end, status] = std::from_chars(body.data(), body.data() + body.size(), number);
  if (status != std::errc{} || !std::isfinite(number)) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[base.parse_bytes] '{}' is not a size; expected a number and a unit; "
                            "write for example '2GiB' or '512MiB'",
                            text));
  }
  const auto unit = trim(body.substr(static_cast<std::size_t>(end - body.data())));
  const double bytes = number * unit_factor(unit, text);
  if (bytes < 0 || bytes > kLargestSize) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[base.parse_bytes] '{}' is {}; expected a size between 0 and 2^60 "
                            "bytes; write for example '2GiB'",
                            text, bytes < 0 ? "negative" : "absurdly large"));
  }
  return {static_cast<std::int64_t>(std::llround(bytes))};
}

std::string to_string(Bytes bytes) {
  static constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes.count);
  std::size_t unit = 0;
  while (std::fabs(value) >= 1023.5 && unit + 1 < kNames.size()) value /= 1024, ++unit;
  if (unit == 0) return fmt::format("{} B", bytes.count);
  return fmt::format("{} {}", three_digits(value), kNames[unit]);
}

std::string to_string(Nanoseconds time) {
  static constexpr std::array<const char*, 4> kNames{"ns", "us", "ms", "s"};
  double value = time.count;
  std::size_t unit = 0;
  while (std::fabs(value) >= 999.5 && unit + 1 < kNames.size()) value /= 1000, ++unit;
  return fmt::format("{} {}", three_digits(value), kNames[unit]);
}

}  // namespace kerf
