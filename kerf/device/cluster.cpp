// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/device/cluster.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "kerf/base/file.h"
#include "kerf/base/quantity.h"

namespace kerf {
namespace {

constexpr FormatVersion kVersion{1, 0};

[[noreturn]] void refuse(std::string_view found, std::string_view expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[device.cluster] {}; expected {}", found, expected));
}

void check_device(const Device& device) {
  if (device.name.empty()) refuse("a device without a name", "a name such as cpu:0");
  if (!(device.speed > 0) || !is_quantity(device.speed)) {
    refuse(fmt::format("{} has speed {}", device.name, device.speed),
           "a positive number from 1e-300 to 1e300");
  }
  if (device.memory_limited && device.memory <= Bytes{0}) {
    refuse(fmt::format("{} has a memory limit of {} bytes", device.name, device.memory.count),
           "a positive size");
  }
}

void check_link(const Link& link) {
  if (!is_quantity(link.latency.count) || !is_quantity(link.bytes_per_second)) {
    refuse(fmt::format("a link with latency {} ns and {} bytes per second", link.latency.count,
                       link.bytes_per_second),
           kQuantityText);
  }
}

Json device_to_json(const Device& device) {
  Json json;
  json["name"] = device.name;
  json["kind"] = device.kind;
  if (device.memory_limited) json["memory"] = device.memory.count;
  json["speed"] = device.speed;
  json["host"] = device.host;
  if (!device.cores.empty()) json["cores"] = device.cores;
  json["ordinal"] = device.ordinal;
  json["memory_group"] = device.memory_group;
  return json;
}

Device device_from_json(const JsonReader& reader) {
  Device device;
  device.name = reader.text("name");
  device.kind = reader.text("kind");
  device.memory_limited = reader.has("memory");
  if (device.memory_limited) {
    device.memory = Bytes{reader.integer("memory", 1, std::int64_t{1} << 60)};
  }
  device.speed = read_quantity(reader, "speed");
  device.host = reader.boolean("host");
  if (reader.has("cores")) {
    for (const JsonReader& core : reader.children("cores")) {
      device.cores.push_back(static_cast<int>(core.as_integer()));
    }
  }
  device.ordinal = static_cast<int>(reader.integer("ordinal", 0, 1 << 20));
  device.memory_group = static_cast<int>(reader.integer("memory_group", 0, kMostDevices));
  return device;
}

Json link_to_json(const Link& link) {
  Json json;
  json["latency_ns"] = link.latency.count;
  json["bytes_per_second"] = link.bytes_per_second;
  if (link.shared) json["shared"] = true;
  return json;
}

Link link_from_json(const JsonReader& reader) {
  return {Nanoseconds{read_quantity(reader, "latency_ns")},
          read_quantity(reader, "bytes_per_second"),
          reader.has("shared") && reader.boolean("shared")};
}

}  // namespace

Nanoseconds Link::time(Bytes bytes) const {
  if (bytes_per_second <= 0) return latency;
  return latency + Nanoseconds{static_cast<double>(bytes.count) * 1e9 / bytes_per_second};
}

DeviceId Cluster::find_device(std::string_view name) const {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].name == name) return DeviceId{i};
  }
  return {};
}

int Cluster::num_memory_groups() const {
  int groups = 0;
  for (const Device& device : devices) groups = std::max(groups, device.memory_group + 1);
  return groups;
}

std::vector<DeviceId> Cluster::group(int memory_group) const {
  std::vector<DeviceId> members;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].memory_group == memory_group) members.emplace_back(i);
  }
  return members;
}

Bytes Cluster::group_limit(int memory_group) const {
  Bytes limit{std::int64_t{1} << 60};
  for (const Device& device : devices) {
    if (device.memory_group == memory_group && device.memory_limited) {
      limit = std::min(limit, device.memory);
    }
  }
  return limit;
}

bool Cluster::group_limited(int memory_group) const {
  return std::any_of(devices.begin(), devices.end(), [&](const Device& device) {
    return device.memory_group == memory_group && device.memory_limited;
  });
}

void check_cluster(const Cluster& cluster) {
  if (cluster.devices.empty()) refuse("no device", "at least one, such as cpu:0");
  if (cluster.links.size() != cluster.devices.size() * cluster.devices.size()) {
    refuse(fmt::format("{} devices and {} links", cluster.devices.size(), cluster.links.size()),
           "a link for every ordered pair of devices");
  }
  std::set<std::string> names;
  std::set<int> groups;
  for (const Device& device : cluster.devices) {
    check_device(device);
    groups.insert(device.memory_group);
    if (!names.insert(device.name).second) {
      refuse(fmt::format("two devices named {}", device.name), "unique names");
    }
  }
  if (*groups.begin() != 0 || *groups.rbegin() + 1 != static_cast<int>(groups.size())) {
    refuse("memory groups with a gap in their numbers", "0, 1, 2, ...");
  }
  for (const Link& link : cluster.links) check_link(link);
}

Json to_json(const Cluster& cluster) {
  Json json;
  json["devices"] = Json::array();
  for (const Device& device : cluster.devices) json["devices"].push_back(device_to_json(device));
  json["links"] = Json::array();
  for (std::size_t from = 0; from < cluster.num_devices(); ++from) {
    Json row = Json::array();
    for (std::size_t to = 0; to < cluster.num_devices(); ++to) {
      row.push_back(link_to_json(cluster.link(DeviceId{from}, DeviceId{to})));
    }
    json["links"].push_back(std::move(row));
  }
  if (!cluster.notes.empty()) json["notes"] = cluster.notes;
  return json;
}

Cluster cluster_from_json(const JsonReader& reader) {
  Cluster cluster;
  for (const JsonReader& device : reader.children("devices")) {
    cluster.devices.push_back(device_from_json(device));
  }
  for (const JsonReader& row : reader.children("links")) {
    const std::vector<JsonReader> cells = row.elements();
    if (cells.size() != cluster.num_devices()) {
      row.fail(fmt::format("{} links in a row", cells.size()), "one for each device");
    }
    for (const JsonReader& cell : cells) cluster.links.push_back(link_from_json(cell));
  }
  if (reader.has("notes")) {
    for (const JsonReader& note : reader.children("notes")) {
      cluster.notes.push_back(note.as_text());
    }
  }
  try {
    check_cluster(cluster);
  } catch (const Error& error) {
    reader.fail(error.what(), "a sound cluster");
  }
  return cluster;
}

void save_cluster(const Cluster& cluster, const std::string& path) {
  Json json = format_header("kerf-cluster", kVersion);
  json.update(to_json(cluster));
  write_file(path, json.dump(1) + "\n");
}

Cluster load_cluster(const std::string& path) {
  const JsonDocument document = load_json(path, ErrorKind::invalid_argument);
  check_format_header(document, "kerf-cluster", kVersion);
  return cluster_from_json(JsonReader(document));
}

}  // namespace kerf
