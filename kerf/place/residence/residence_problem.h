// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/base/units.h"

namespace kerf {

// Where the weights of a unit are while a model runs on a device that cannot hold them all.
enum class Residence : std::uint8_t {
  resident,  // on the device, always
  streamed,  // further away; copied into a slot of the device before each use
  host,      // on the host, which computes the unit
};

inline constexpr Nanoseconds kNotOnTheHost{kInfinity};

// A part of a model whose weights come and go together.
struct StreamUnit {
  Bytes bytes;
  Nanoseconds device_time;                // of one use, its weights being there
  Nanoseconds host_time = kNotOnTheHost;  // of one use on the host, its arguments' way included
  bool stays = false;                     // resident whatever it costs

  friend bool operator==(const StreamUnit&, const StreamUnit&) = default;
};

// Units in the order of their use. Every call uses each once; calls follow each other.
struct ResidenceProblem {
  std::vector<StreamUnit> units;
  Bytes memory;                     // of the device, for residents and slots
  double bytes_per_nanosecond = 1;  // of the link that weights come by
  Nanoseconds copy_latency;         // of each copy

  Nanoseconds copy_time(Bytes bytes) const {
    return Nanoseconds{static_cast<double>(bytes.count) / bytes_per_nanosecond} + copy_latency;
  }
};

// A slot holds any streamed unit. With one, nothing is copied while a unit is in use.
struct Residences {
  std::vector<Residence> of;  // by unit
  std::size_t slots = 0;
  Bytes slot_bytes;
};

}  // namespace kerf
