// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/lower/repeats.h"

#include <algorithm>
#include <unordered_map>

namespace kerf::partition {
namespace {

// Distances at which windows of a few elements come again, the most frequent first.
std::vector<std::size_t> frequent_distances(std::span<const std::uint64_t> elements,
                                            const std::vector<bool>& taken) {
  constexpr std::size_t kWindow = 6;
  constexpr std::size_t kMost = 12;
  std::unordered_map<std::uint64_t, std::size_t> latest;
  std::unordered_map<std::size_t, std::size_t> count;
  for (std::size_t i = 0; i + kWindow <= elements.size(); ++i) {
    if (taken[i]) continue;
    std::uint64_t window = 0;
    for (std::size_t k = 0; k < kWindow; ++k) {
      window = (window ^ elements[i + k]) * 0x9e3779b97f4a7c15ULL + (window >> 29);
    }
    const auto [found, fresh] = latest.try_emplace(window, i);
    if (!fresh) {
      ++count[i - found->second];
      found->second = i;
    }
  }
  std::vector<std::pair<std::size_t, std::size_t>> ranked;  // count, distance
  for (const auto& [distance, times] : count) ranked.emplace_back(times, distance);
  std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<std::size_t> distances;
  for (std::size_t i = 0; i < std::min(ranked.size(), kMost); ++i) {
    distances.push_back(ranked[i].second);
  }
  return distances;
}

// Where the sequence equals itself `period` before for at least a whole block.
std::vector<Repeat> repeats_of(std::span<const std::uint64_t> elements,
                               const std::vector<bool>& taken, std::size_t period) {
  std::vector<Repeat> out;
  std::size_t run = 0;  // elements up to here that equal those a period before
  const auto close = [&](std::size_t end) {
    if (run >= period) out.push_back({end - run - period, period, (run + period) / period});
    run = 0;
  };
  for (std::size_t i = period; i < elements.size(); ++i) {
    const bool equal = !taken[i] && !taken[i - period] && elements[i] == elements[i - period];
    if (equal) {
      ++run;
    } else {
      close(i);
    }
  }
  close(elements.size());
  // What one repeat has another must not: they overlap by up to a block where runs follow closely.
  std::vector<Repeat> disjoint;
  for (const Repeat& repeat : out) {
    if (disjoint.empty() || repeat.start >= disjoint.back().end()) disjoint.push_back(repeat);
  }
  return disjoint;
}

std::size_t covered(const std::vector<Repeat>& repeats) {
  std::size_t sum = 0;
  for (const Repeat& repeat : repeats) sum += repeat.period * repeat.count;
  return sum;
}

}  // namespace

std::vector<Repeat> find_repeats(std::span<const std::uint64_t> elements, std::size_t least) {
  constexpr int kMostKinds = 6;  // encoder, decoder, levels of a U-net
  std::vector<Repeat> out;
  std::vector<bool> taken(elements.size());
  for (int kind = 0; kind < kMostKinds; ++kind) {
    std::vector<Repeat> best;
    for (const std::size_t period : frequent_distances(elements, taken)) {
      std::vector<Repeat> repeats = repeats_of(elements, taken, period);
      std::erase_if(repeats, [&](const Repeat& r) { return r.period * r.count < least; });
      // The short period of two that cover about as much: twice a block is a block too.
      const auto better = static_cast<double>(covered(best)) * 1.02;
      if (static_cast<double>(covered(repeats)) > better) best = std::move(repeats);
    }
    if (best.empty()) break;
    for (const Repeat& repeat : best) {
      std::fill(taken.begin() + static_cast<std::ptrdiff_t>(repeat.start),
                taken.begin() + static_cast<std::ptrdiff_t>(repeat.end()), true);
    }
    out.insert(out.end(), best.begin(), best.end());
  }
  std::sort(out.begin(), out.end(),
            [](const Repeat& a, const Repeat& b) { return a.start < b.start; });
  return out;
}

}  // namespace kerf::partition
