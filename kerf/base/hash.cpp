// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/hash.h"

#include <fmt/format.h>

namespace kerf {
namespace {

// The finaliser of a 64-bit avalanche: every input bit reaches every output bit.
std::uint64_t avalanche(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  return x ^ (x >> 32);
}

}  // namespace

void Hasher::mix(std::uint64_t word) {
  a_ = avalanche(a_ ^ word) + 0x9e3779b97f4a7c15ULL;
  b_ = avalanche(b_ + word * 0xc2b2ae3d27d4eb4fULL) ^ (a_ >> 7);
}

Hasher& Hasher::add(std::string_view piece) {
  mix(piece.size());
  std::uint64_t word = 0;
  std::size_t filled = 0;
  for (const char c : piece) {
    // Little-endian by construction, whatever the machine.
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << (8 * filled);
    if (++filled == 8) mix(word), word = 0, filled = 0;
  }
  if (filled != 0) mix(word);
  return *this;
}

Hasher& Hasher::add(std::int64_t number) {
  mix(static_cast<std::uint64_t>(number));
  return *this;
}

std::string Hasher::hex() const {
  return fmt::format("{:016x}{:016x}", avalanche(a_ + b_), avalanche(b_ ^ (a_ << 1)));
}

}  // namespace kerf
