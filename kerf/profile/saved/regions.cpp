// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/saved/regions.h"

#include <string_view>
#include <unordered_map>

namespace kerf {
namespace {

// Numbers regions as they are first met.
class Numbers {
 public:
  RegionNumber of(std::string_view key) {
    return by_key_.try_emplace(key, static_cast<RegionNumber>(by_key_.size())).first->second;
  }

 private:
  std::unordered_map<std::string_view, RegionNumber> by_key_;
};

}  // namespace

std::vector<RegionNumber> traced_regions(const Graph& graph) {
  std::vector<RegionNumber> regions(graph.num_nodes(), kNoRegion);
  Numbers numbers;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const std::string_view region = graph.nodes()[n].region;
    if (!region.empty()) regions[n] = numbers.of(region.substr(0, region.find('/')));
  }
  return regions;
}

}  // namespace kerf
