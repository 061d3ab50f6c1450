// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Ids of placement written as numbers: 3_unit, 0_net, 2_slot, slots({0, 0, 1}).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "kerf/base/id.h"

namespace kerf {

constexpr UnitId operator""_unit(unsigned long long number) { return UnitId{number}; }
constexpr NetId operator""_net(unsigned long long number) { return NetId{number}; }
constexpr SlotId operator""_slot(unsigned long long number) { return SlotId{number}; }

inline std::vector<SlotId> slots(std::initializer_list<std::uint32_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

// The next of all splits over devices 0 .. num_devices - 1; false: they have all been.
inline bool next_split(std::vector<SlotId>& device, std::size_t num_devices) {
  for (SlotId& each : device) {
    if (++each < num_devices) return true;
    each = 0_slot;
  }
  return false;
}

}  // namespace kerf
