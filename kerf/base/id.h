// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Strong ids: an index that remembers what it indexes. Mixing two kinds does not compile.
//
//   std::vector<Node> nodes;  NodeId id{3};  nodes[id.index()];
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

namespace kerf {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  template <std::integral Integer>
    requires(!std::same_as<Integer, bool>)
  explicit constexpr Id(Integer value) : value_(static_cast<std::uint32_t>(value)) {}

  constexpr std::size_t index() const { return value_; }
  // A default-made id names nothing.
  constexpr bool valid() const { return value_ != kInvalid; }

  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  static constexpr std::uint32_t kInvalid = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t value_ = kInvalid;
};

using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;
using WeightId = Id<struct WeightTag>;
using StorageId = Id<struct StorageTag>;
using ScopeId = Id<struct ScopeTag>;
using StageId = Id<struct StageTag>;
using DeviceId = Id<struct DeviceTag>;

}  // namespace kerf

template <class Tag>
struct std::hash<kerf::Id<Tag>> {
  std::size_t operator()(kerf::Id<Tag> id) const noexcept { return id.index(); }
};
