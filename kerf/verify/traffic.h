// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The tensors that go from device to device in one micro-batch, and what each costs whom
// (docs/concepts.md: communication model). Private to verify/.
#pragma once

#include <map>
#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/verify/flow.h"

namespace kerf::derive {

struct Delivery {
  DeviceId to;
  std::vector<StageId> users;  // stages there, ascending; fetched for the one that runs first
  double time = 0;             // spent by the receiver; overlapped: by the maker
  bool wire = false;           // over the shared wire
};

struct Shipment {
  ValueId value;
  StageId from;
  double upload = 0;                 // host_staged: spent by the maker, once
  std::vector<Delivery> deliveries;  // by receiver; there is one
};

struct Traffic {
  bool staged = false;              // host_staged: through host memory
  bool overlapped = false;          // sent beside what devices compute
  std::vector<Shipment> shipments;  // by value
  std::map<ValueId, double> given;  // times that the plan says were given, whatever the link

  bool uses_wire() const;
};

// Of the plan's own devices. Sizes are the graph's, at the plan's micro-batch.
Traffic read_traffic(const Graph& graph, const Flow& flow, const Plan& plan);

// One more tensor, from a stage to others. Of the plan only cluster and devices of stages count.
void add_shipment(const Plan& plan, Traffic& traffic, ValueId value, StageId from, double bytes,
                  const std::vector<StageId>& users);

// By device. The times of the stages are the plan's.
std::vector<DeviceLoad> derive_loads(const Traffic& traffic, const Plan& plan);

}  // namespace kerf::derive
