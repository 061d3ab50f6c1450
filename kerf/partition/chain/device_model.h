// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What an interval costs on a device. Private to partition/chain/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/partition/chain/intervals.h"
#include "kerf/plan/problem.h"

namespace kerf::partition {

inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// What tensors cost a device that pays for them.
struct Rate {
  double latency = 0;  // a tensor
  double per_byte = 0;
  friend bool operator==(const Rate&, const Rate&) = default;
};

// What an interval costs on one device, as far as it can be told without knowing where the other
// stages run: the best of the links, and of its memory what does not depend on the others. The
// communication models of plan/metrics.h differ in who pays, and in whether it adds up:
//   link         `in` alone; training: `out` for gradients that come back
//   host_staged  both on an accelerator, none on a host device
//   overlapped   `out` alone, beside the compute
struct DeviceModel {
  double slowness = 1;  // 1 / speed
  Rate in;              // for each tensor made before the interval
  Rate out;             // for each tensor used after it, once
  bool overlapped = false;
  std::int64_t limit = kNoLimit;
  bool alone = true;  // the only device of its memory

  double load(const IntervalFigures& figures) const {
    return add(figures.time * slowness, in.latency * static_cast<double>(figures.received_count),
               in.per_byte * static_cast<double>(figures.received), figures);
  }
  // Where the makers of what it receives are known: `received` is what that costs.
  double load(const IntervalFigures& figures, double received) const {
    return add(figures.time * slowness, received, 0, figures);
  }
  std::int64_t memory(const IntervalFigures& figures, std::int64_t n_microbatches) const {
    // Tensors from its own memory take no buffer; which those are is not known here.
    return figures.memory(n_microbatches) - (alone ? 0 : figures.received);
  }

  friend bool operator==(const DeviceModel&, const DeviceModel&) = default;

 private:
  double add(double compute, double latencies, double bytes, const IntervalFigures& figures) const {
    const double sent = out.latency * static_cast<double>(figures.sent_count) +
                        out.per_byte * static_cast<double>(figures.sent);
    if (overlapped) return std::max(compute, latencies + bytes + sent);
    return compute + latencies + bytes + sent;
  }
};

struct ChainModel {
  std::vector<DeviceModel> devices;
  std::vector<DeviceId> ids;  // whose models they are
  std::int64_t n_microbatches = 1;
  bool exact = true;  // the models above are the truth, not bounds
};

std::vector<DeviceId> given_order(const Cluster& cluster);
// Devices that follow each other in this order.
ChainModel make_chain_model(const Problem& problem, std::span<const DeviceId> order);
// Devices by id, in whatever order they will follow each other.
ChainModel make_free_model(const Problem& problem);

// What `to` pays for a tensor that `from` made.
double receive_time(const Problem& problem, DeviceId from, DeviceId to, ValueId value);

}  // namespace kerf::partition
