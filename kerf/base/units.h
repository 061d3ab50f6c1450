// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Units in types: a size is never a time. Arithmetic that makes sense works, the rest does not
// compile. Parsing and printing for people ("2GiB", "1.5 ms") live here too.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace kerf {

struct Bytes {
  std::int64_t count = 0;

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  friend constexpr Bytes operator*(Bytes a, std::int64_t n) { return {a.count * n}; }
  constexpr Bytes& operator+=(Bytes b) { return count += b.count, *this; }
  constexpr Bytes& operator-=(Bytes b) { return count -= b.count, *this; }
};

// Times are doubles: estimates of a fraction of a nanosecond must add up, and published problems
// give times as decimal fractions.
struct Nanoseconds {
  double count = 0;

  friend constexpr auto operator<=>(Nanoseconds, Nanoseconds) = default;
  friend constexpr Nanoseconds operator+(Nanoseconds a, Nanoseconds b) {
    return {a.count + b.count};
  }
  friend constexpr Nanoseconds operator-(Nanoseconds a, Nanoseconds b) {
    return {a.count - b.count};
  }
  friend constexpr Nanoseconds operator*(Nanoseconds a, double n) { return {a.count * n}; }
  friend constexpr Nanoseconds operator/(Nanoseconds a, double n) { return {a.count / n}; }
  friend constexpr double operator/(Nanoseconds a, Nanoseconds b) { return a.count / b.count; }
  constexpr Nanoseconds& operator+=(Nanoseconds b) { return count += b.count, *this; }
  constexpr Nanoseconds& operator-=(Nanoseconds b) { return count -= b.count, *this; }
};

// "2GiB", "512 MiB", "1.5GB", "4096" (bytes). Throws kerf::Error naming the text, what was expected
// and, for a negative or absurd size (over 2^60 bytes), why it is refused.
Bytes parse_bytes(std::string_view text);

// For people, three significant digits: "1.50 GiB", "17 B", "3.20 ms", "41.0 us".
std::string to_string(Bytes bytes);
std::string to_string(Nanoseconds time);

}  // namespace kerf
