// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/id.h"

namespace kerf {

// Who pays for a tensor that somebody needs on another device than the one that makes it. Compute
// and communication of a device add up.
enum class Charging : std::uint8_t {
  host_staged,  // the accelerator that makes it, once, and each other accelerator that needs it,
                // once; a CPU pays nothing: host memory is its own
  link,         // each other device that needs it, once, a CPU too; its maker nothing
};

// What every device pays a sample; the largest is the objective `throughput`.
struct Loads {
  explicit Loads(std::size_t devices) : compute(devices), transfer(devices), bytes(devices) {}

  // For a tensor made on `source` and held or read on all devices that `touches` names, several.
  void charge(Charging charging, SlotId cpu, double cost, SlotId source,
              const std::vector<bool>& touches) {
    const SlotId free = charging == Charging::link ? source : cpu;
    for (SlotId d{0}; d < transfer.size(); ++d) {
      if (touches[d] && d != free) transfer[d] += cost;
    }
  }
  // When everything is there. `memory` is by device.
  void sum_up(std::span<const double> memory) {
    for (std::size_t d = 0; d < compute.size(); ++d) {
      busiest = std::max(busiest, compute[d] + transfer[d]);
      if (bytes[d] > memory[d]) fits = false;
    }
  }

  std::vector<double> compute;   // by device
  std::vector<double> transfer;  // by device
  std::vector<double> bytes;     // by device
  double busiest = 0;
  bool fits = true;  // memory, and every unit on a device that can run it
};

}  // namespace kerf
