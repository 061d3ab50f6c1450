// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/json.h"
#include "kerf/device/device.h"

namespace kerf {

// How tensors go from one device to another.
struct Link {
  Nanoseconds latency;
  // 0: the two ends share a memory, bytes cost nothing.
  double bytes_per_second = 0;
  // One wire for every pair of devices that has a shared link: transfers wait for each other.
  bool shared = false;

  // latency + bytes / bytes_per_second.
  Nanoseconds time(Bytes bytes) const;
  friend bool operator==(const Link&, const Link&) = default;
};

inline constexpr int kMostDevices = 4096;  // of a cluster

// Devices and the links between them. A plain value; saved as cluster.json.
//
//   Cluster cluster = parse_devices("cpu:0=2GiB,cpu:1=1GiB");   // device/devices.h
//   cluster.link(DeviceId{0}, DeviceId{1}).time(Bytes{1 << 20});
struct Cluster {
  std::vector<Device> devices;
  std::vector<Link> links;         // row by row: links[from * num_devices + to]
  std::vector<std::string> notes;  // what a user should know, e.g. that CPU devices share cores

  std::size_t num_devices() const { return devices.size(); }
  const Device& device(DeviceId id) const { return devices[id.index()]; }
  const Link& link(DeviceId from, DeviceId to) const {
    return links[from.index() * devices.size() + to.index()];
  }
  Link& link(DeviceId from, DeviceId to) {
    return links[from.index() * devices.size() + to.index()];
  }
  DeviceId find_device(std::string_view name) const;  // invalid when absent

  // Groups are numbered 0 .. num_memory_groups() - 1.
  int num_memory_groups() const;
  // Devices of a group, ascending.
  std::vector<DeviceId> group(int memory_group) const;
  // The limit the group's devices share: the smallest that was given; `limited` false when none
  // was.
  Bytes group_limit(int memory_group) const;
  bool group_limited(int memory_group) const;

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// Sizes agree, names are unique, speeds and rates are positive and finite, groups are numbered from
// 0 without a gap. Throws Error(invalid_argument) naming the device.
void check_cluster(const Cluster& cluster);

Json to_json(const Cluster& cluster);  // without the format header: plans embed it
Cluster cluster_from_json(const JsonReader& reader);

// cluster.json: "kerf-cluster" 1.0.
void save_cluster(const Cluster& cluster, const std::string& path);
Cluster load_cluster(const std::string& path);

}  // namespace kerf
