// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/pack/bins.h"

#include "kerf/base/infinity.h"

namespace kerf::place {

Bins::Bins(const Instance& instance)
    : instance_(&instance),
      bytes_(instance.num_devices, 0),
      time_(instance.num_devices, 0),
      device_(instance.num_units()) {}

bool Bins::fits(std::span<const UnitId> units, SlotId device) const {
  double bytes = 0;
  for (const UnitId t : units) {
    if (!instance_->runs_on(t, device)) return false;
    bytes += instance_->bytes[t];
  }
  return bytes_[device] + bytes <= instance_->memory[device];
}

void Bins::put(std::span<const UnitId> units, SlotId device) {
  for (const UnitId t : units) {
    bytes_[device] += instance_->bytes[t];
    time_[device] += instance_->time(t, device);
    device_[t] = device;
  }
}

std::optional<SlotId> Bins::done_first(std::span<const UnitId> units, std::uint32_t count) const {
  std::optional<SlotId> best;
  double least = kInfinity;
  for (SlotId d{0}; d < count; ++d) {
    if (!fits(units, d)) continue;
    double end = time_[d];
    for (const UnitId t : units) end += instance_->time(t, d);
    if (end >= least) continue;
    least = end;
    best = d;
  }
  return best;
}

bool Bins::put_where_done_first(std::span<const UnitId> units) {
  const std::optional<SlotId> device = done_first(units, instance_->num_devices);
  if (device) put(units, *device);
  return device.has_value();
}

}  // namespace kerf::place
