// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Strong ids: an index that remembers what it indexes. Mixing two kinds does not compile.
//
//   std::vector<Node> nodes;    NodeId id{3};    nodes[id.index()];
//   std::vector<double> bytes;  UnitId unit{3};  bytes[unit];
//
// Ids whose tag says `kCounts` read as numbers and can be counted up: the searches index arrays
// with them on every line. No number becomes an id by itself.
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

  constexpr operator std::uint32_t() const  // NOLINT(google-explicit-constructor): see above
    requires(Tag::kCounts)
  {
    return value_;
  }
  constexpr Id& operator++()
    requires(Tag::kCounts)
  {
    ++value_;
    return *this;
  }
  constexpr Id operator--(int)
    requires(Tag::kCounts)
  {
    return Id(value_--);
  }

  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  static constexpr std::uint32_t kInvalid = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t value_ = kInvalid;
};

// Both would read as numbers.
template <class A, class B>
  requires(!std::same_as<A, B>)
bool operator==(Id<A>, Id<B>) = delete;
template <class A, class B>
  requires(!std::same_as<A, B>)
std::strong_ordering operator<=>(Id<A>, Id<B>) = delete;

using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;
using WeightId = Id<struct WeightTag>;
using StorageId = Id<struct StorageTag>;
using ScopeId = Id<struct ScopeTag>;
using StageId = Id<struct StageTag>;
using DeviceId = Id<struct DeviceTag>;

// In a problem of placement (place/instance.h): what is placed, a tensor that several units hold or
// read, and a device to place them on.
struct UnitTag {
  static constexpr bool kCounts = true;
};
struct NetTag {
  static constexpr bool kCounts = true;
};
struct SlotTag {
  static constexpr bool kCounts = true;
};
using UnitId = Id<UnitTag>;
using NetId = Id<NetTag>;
using SlotId = Id<SlotTag>;

}  // namespace kerf

template <class Tag>
struct std::hash<kerf::Id<Tag>> {
  std::size_t operator()(kerf::Id<Tag> id) const noexcept { return id.index(); }
};
