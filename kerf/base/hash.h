// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kerf {

// 128 bits over a stream of text, printed as 32 hex digits. Stable across machines and versions of
// Kerf (files carry it); not meant against an adversary.
class Hasher {
 public:
  // Each piece is framed by its length, so ("ab","c") and ("a","bc") differ.
  Hasher& add(std::string_view piece);
  Hasher& add(std::int64_t number);
  std::string hex() const;

 private:
  void mix(std::uint64_t word);
  std::uint64_t a_ = 0x9e3779b97f4a7c15ULL;
  std::uint64_t b_ = 0xc2b2ae3d27d4eb4fULL;
};

// Of many bytes, about as fast as memory brings them. It changes if any eight of them do, and
// almost certainly if more do. Not for files: the numbers may change with versions of Kerf.
std::uint64_t quick_hash(const std::byte* bytes, std::size_t size);

}  // namespace kerf
