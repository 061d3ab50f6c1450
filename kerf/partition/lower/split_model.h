// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A traced problem as an Instance, so that the searches of kerf/place serve it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/partition/lower/units.h"
#include "kerf/place/instance.h"

namespace kerf::partition {

// What the model is for. They are the same problem when every pair of devices has the same link,
// devices have memories of their own and the communication model is one that loads can have.
enum class ModelUse : std::uint8_t {
  search,  // as near the truth as an Instance can be
  bound,   // never more expensive than the truth: what bounds it bounds the problem
};

// Times in ns on the device, bytes: weights, of those that several units use a share each for
// searches and nothing for bounds. Devices of the model stand for
// those of the cluster by `devices`; one that is unlike all others, or the only host under
// `host_staged`, is the model's CPU.
struct SplitModel {
  place::Instance instance;  // of `units`, by number
  std::vector<Unit> units;
  std::vector<std::size_t> unit_of;  // by node
  std::vector<std::size_t> order;    // units, topological
  std::vector<DeviceId> devices;     // by device of the model
  bool exact = true;                 // its loads are those of plan/metrics

  std::vector<DeviceId> to_devices(std::span<const SlotId> device) const;
  // The model's device of each unit, from the cluster's device of each node.
  place::Split from_devices(std::span<const DeviceId> device_of_node) const;
};
SplitModel make_split_model(const Problem& problem, ModelUse use);
// Units as given (units.h): larger ones than need be make a coarse model, fit for searches only.
SplitModel make_split_model(const Problem& problem, ModelUse use, std::vector<std::size_t> unit_of);

}  // namespace kerf::partition
