// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Devices that are as good as each other. Private to partition/chain/. place/ideals has classes of
// its own: an Instance knows one link for all, here every pair of devices has one.
#pragma once

#include <vector>

#include "kerf/partition/chain/device_model.h"

namespace kerf::partition {

// Devices with the same model: for the dynamic program one is as good as another.
struct DeviceClass {
  DeviceModel model;
  std::vector<DeviceId> members;  // ascending
};
// By first member.
std::vector<DeviceClass> find_classes(const ChainModel& model);

// Do all plans keep their loads and memory when two devices change places? Speed, memory, kind of
// memory and every link tell. An equivalence.
bool interchangeable(const Cluster& cluster, DeviceId a, DeviceId b);
// All of them: their order does not matter.
bool all_interchangeable(const Cluster& cluster);

}  // namespace kerf::partition
