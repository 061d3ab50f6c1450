// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kerf/place/instance.h"

namespace kerf::place {

// Devices that are being filled, units that stay together at a time: what each holds so far, and
// what it still has room for. Nets are left out. The instance must outlive it.
class Bins {
 public:
  explicit Bins(const Instance& instance);

  // The device can run them, and has the memory.
  bool fits(std::span<const UnitId> units, SlotId device) const;
  double room(SlotId device) const { return instance_->memory[device] - bytes_[device]; }
  void put(std::span<const UnitId> units, SlotId device);
  // Of the devices 0 .. count - 1 that they fit, the one that is done with them first.
  std::optional<SlotId> done_first(std::span<const UnitId> units, std::uint32_t count) const;
  // Onto that one of all devices; false: they fit none.
  bool put_where_done_first(std::span<const UnitId> units);

  // By unit, when all are placed.
  Split take_devices() { return std::move(device_); }

 private:
  const Instance* instance_;
  std::vector<double> bytes_, time_;  // by device
  std::vector<SlotId> device_;
};

}  // namespace kerf::place
