// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/name_index.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_map>

#include "kerf/base/rng.h"

namespace kerf {
namespace {

TEST(ANameIndex, IsEmptyAtFirst) {
  const std::vector<std::string> names;
  EXPECT_EQ(NameIndex().find("a", [&](std::uint32_t i) { return names[i]; }), NameIndex::kNone);
}

TEST(ANameIndex, FindsWhatAMapFinds) {
  Rng rng(7);
  std::vector<std::string> names;
  const auto name_of = [&](std::uint32_t i) -> std::string_view { return names[i]; };
  NameIndex index;
  std::unordered_map<std::string, std::uint32_t> map;
  for (std::uint32_t i = 0; i < 20000; ++i) {
    names.push_back(std::to_string(rng.below(8000)));
    EXPECT_EQ(index.add(names[i], i, name_of), map.try_emplace(names[i], i).second);
  }
  for (std::uint32_t i = 0; i < 10000; ++i) {
    const std::string name = std::to_string(i);
    const auto found = map.find(name);
    EXPECT_EQ(index.find(name, name_of), found == map.end() ? NameIndex::kNone : found->second);
  }
}

}  // namespace
}  // namespace kerf
