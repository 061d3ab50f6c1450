// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Parts of a sequence that repeat: the layers of a model, seen in the order it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kerf::partition {

// count blocks of `period` elements, each equal to the one before, from `start` on.
struct Repeat {
  std::size_t start = 0;
  std::size_t period = 1;
  std::size_t count = 2;

  std::size_t end() const { return start + period * count; }
  friend bool operator==(const Repeat&, const Repeat&) = default;
};

// Disjoint repeats, ascending; those that cover most first served. A block that itself repeats
// something (the experts of a layer) is one block. Shorter ones than `least` elements in all are
// left out. O(n) for each of the few periods that occur most.
std::vector<Repeat> find_repeats(std::span<const std::uint64_t> elements, std::size_t least = 64);

}  // namespace kerf::partition
