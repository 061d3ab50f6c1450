// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

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

// Its high bits reach the low ones: signs that change are seen, however many.
std::uint64_t quick_mix(std::uint64_t hash, std::uint64_t word) {
  const std::uint64_t x = (hash ^ word) * 0xd6e8feb86659fd93ULL;
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

std::uint64_t quick_hash(const std::byte* bytes, std::size_t size) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::array<std::uint64_t, 4> lanes{1, 2, 3, 4};  // a processor multiplies for all at once
  std::size_t at = 0;
  for (; at + lanes.size() * kWord <= size; at += lanes.size() * kWord) {
    std::array<std::uint64_t, 4> words{};
    std::memcpy(words.data(), bytes + at, sizeof words);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      lanes[lane] = quick_mix(lanes[lane], words[lane]);
    }
  }
  std::uint64_t hash = quick_mix(0, size);
  for (; at < size; at += kWord) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(kWord, size - at));
    hash = quick_mix(hash, word);
  }
  for (const std::uint64_t lane : lanes) hash = quick_mix(hash, lane);
  return hash;
}

}  // namespace kerf
