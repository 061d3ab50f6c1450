// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/block_cost.h"

#include <nlohmann/json.hpp>

#include "kerf/base/quantity.h"

namespace kerf {
namespace {

constexpr std::int64_t kMostBlockBytes = std::int64_t{1} << 48;

}  // namespace

Json to_json(const BlockCost& cost) {
  return {{"forward_ns", cost.forward.count},
          {"forward_spread_ns", cost.forward_spread.count},
          {"backward_ns", cost.backward.count},
          {"backward_spread_ns", cost.backward_spread.count},
          {"forward_peak", cost.forward_peak.count},
          {"backward_peak", cost.backward_peak.count},
          {"samples", cost.samples}};
}

BlockCost block_cost_from_json(const JsonReader& reader) {
  BlockCost cost;
  cost.forward = Nanoseconds{read_quantity(reader, "forward_ns")};
  cost.forward_spread = Nanoseconds{read_quantity(reader, "forward_spread_ns")};
  cost.backward = Nanoseconds{read_quantity(reader, "backward_ns")};
  cost.backward_spread = Nanoseconds{read_quantity(reader, "backward_spread_ns")};
  cost.forward_peak = Bytes{reader.integer("forward_peak", 0, kMostBlockBytes)};
  cost.backward_peak = Bytes{reader.integer("backward_peak", 0, kMostBlockBytes)};
  cost.samples = static_cast<int>(reader.integer("samples", 0, 1 << 30));
  return cost;
}

}  // namespace kerf
