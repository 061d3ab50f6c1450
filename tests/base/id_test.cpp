// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/id.h"

#include <gtest/gtest.h>

#include <concepts>
#include <string>
#include <unordered_set>

#include "kerf/base/units.h"

namespace kerf {
namespace {

// What must not compile is asked of the type system here too, because a failed compilation cannot
// tell one mistake from another. tests/must_not_compile shows it to the compiler.
static_assert(!std::is_constructible_v<NodeId, ValueId>);
static_assert(!std::is_constructible_v<NodeId, double>);
static_assert(!std::is_constructible_v<NodeId, bool>);
static_assert(!std::is_constructible_v<NodeId, const char*>);
static_assert(!std::is_convertible_v<int, NodeId>);
static_assert(!std::is_convertible_v<NodeId, std::size_t>);
static_assert(!std::equality_comparable_with<NodeId, ValueId>);
static_assert(!std::is_assignable_v<NodeId&, int>);
static_assert(!std::is_convertible_v<Bytes, Nanoseconds>);
static_assert(std::is_constructible_v<NodeId, int>);
static_assert(std::is_constructible_v<NodeId, std::size_t>);
static_assert(std::is_constructible_v<NodeId, std::ptrdiff_t>);

TEST(AnId, NamesNothingUntilItIsGivenANumber) {
  EXPECT_FALSE(NodeId{}.valid());
  EXPECT_TRUE(NodeId{0}.valid());
  EXPECT_EQ(NodeId{7}.index(), 7U);
}

TEST(AnId, IsOrderedAndHashed) {
  EXPECT_LT(NodeId{1}, NodeId{2});
  EXPECT_LT(NodeId{2}, NodeId{}) << "nothing comes after everything";
  const std::unordered_set<ValueId> set{ValueId{1}, ValueId{2}, ValueId{1}};
  EXPECT_EQ(set.size(), 2U);
}

}  // namespace
}  // namespace kerf
