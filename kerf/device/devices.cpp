// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/device/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

#include "kerf/device/kind.h"

namespace kerf {
namespace {

constexpr std::int64_t kMostOrdinal = 1 << 20;

// Messages carry the text with a caret under the character; a list of names has no such text.
struct Where {
  std::string_view text;
  std::size_t at = 0;
};

[[noreturn]] void refuse(Where where, std::string_view found, std::string_view expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[device.devices] {} at character {}; expected {}\n  {}\n  {}^", found,
                          where.at + 1, expected, where.text, std::string(where.at, ' ')));
}

std::string known_kinds() {
  return fmt::format("a device such as cpu:0 or cuda:1, its kind one of {}",
                     fmt::join(device_kind_names(), ", "));
}

// One device as a user wrote it.
struct Request {
  const DeviceKind* kind = nullptr;
  std::int64_t ordinal = -1;  // -1: the next one of its kind
  std::optional<Bytes> memory;
};

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::int64_t parse_number(Where where, std::string_view digits, std::int64_t limit) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size() || number < 0 ||
      number > limit) {
    refuse(where, fmt::format("'{}'", digits), fmt::format("a number from 0 to {}", limit));
  }
  return number;
}

Bytes parse_limit(Where where, std::string_view text) {
  Bytes bytes;
  try {
    bytes = parse_bytes(text);
  } catch (const Error& error) {
    refuse(where, error.what(), "a size such as 2GiB");
  }
  if (bytes <= Bytes{0}) refuse(where, fmt::format("memory '{}'", text), "a positive size");
  return bytes;
}

// kind or kind:ordinal; `start` is where it stands in the text.
Request parse_name(std::string_view text, std::size_t start, std::string_view name) {
  Request request;
  const std::size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  request.kind = find_device_kind(kind);
  if (request.kind == nullptr) {
    refuse({text, start}, fmt::format("unknown device '{}'", name), known_kinds());
  }
  if (colon != std::string_view::npos) {
    request.ordinal = parse_number({text, start + colon + 1}, name.substr(colon + 1), kMostOrdinal);
  }
  return request;
}

std::string_view trim(std::string_view text, std::size_t& start) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1), ++start;
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// [count x] (kind | kind:ordinal | memory) [= memory]
void parse_item(std::string_view text, std::size_t start, std::string_view item,
                std::vector<Request>& requests) {
  item = trim(item, start);
  if (item.empty()) refuse({text, start}, "an empty device", known_kinds());
  std::int64_t count = 1;
  const std::size_t times = item.find('x');
  const bool counted = times != std::string_view::npos && is_number(item.substr(0, times));
  if (counted) {
    count = parse_number({text, start}, item.substr(0, times), kMostDevices);
    if (count == 0) refuse({text, start}, "zero devices", "at least one");
    item.remove_prefix(times + 1);
    start += times + 1;
  }
  Request request;
  if (counted && !item.empty() && item.front() >= '0' && item.front() <= '9') {
    request.kind = find_device_kind("cuda");  // "4x16GiB": accelerators of which only that is known
    request.memory = parse_limit({text, start}, item);
  } else {
    const std::size_t equals = item.find('=');
    request = parse_name(text, start, item.substr(0, equals));
    if (counted && request.ordinal >= 0) {
      refuse({text, start}, fmt::format("{} devices with the same number", count),
             "a kind without a number after 'x'");
    }
    if (equals != std::string_view::npos) {
      request.memory = parse_limit({text, start + equals + 1}, item.substr(equals + 1));
    }
  }
  requests.insert(requests.end(), static_cast<std::size_t>(count), request);
  if (requests.size() > kMostDevices) refuse({text, start}, "too many devices", "at most 4096");
}

// Numbers the devices that came without a number and names all of them.
void add_device(Cluster& cluster, const Request& request, std::map<std::string, int>& next) {
  Device device;
  device.kind = request.kind->name;
  device.host = request.kind->host;
  int& following = next[device.kind];
  device.ordinal = request.ordinal >= 0 ? static_cast<int>(request.ordinal) : following;
  following = std::max(following, device.ordinal + 1);
  device.name = fmt::format("{}:{}", device.kind, device.ordinal);
  device.memory_group = cluster.num_memory_groups();
  int copies = 0;
  for (const Device& other : cluster.devices) {
    if (other.kind != device.kind || other.ordinal != device.ordinal) continue;
    device.memory_group = other.memory_group;
    ++copies;
  }
  if (copies > 0 && device.host) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[device.devices] {} twice; expected each CPU device once, since each "
                            "owns its cores; write cpu:0, cpu:1",
                            device.name));
  }
  if (copies > 0) device.name += fmt::format("#{}", copies);
  if (request.memory || request.kind->memory > Bytes{0}) {
    device.memory_limited = true;
    device.memory = request.memory.value_or(request.kind->memory);
  }
  cluster.devices.push_back(std::move(device));
}

// Equal shares: a device with one core more would be faster than the profile says. What is left
// over serves the caller's thread.
void deal_cores(Cluster& cluster, const LocalMachine& machine) {
  std::vector<Device*> owners;
  for (Device& device : cluster.devices) {
    if (device.kind == "cpu") owners.push_back(&device);
  }
  if (owners.empty()) return;
  const std::size_t cores = machine.cores.size();
  const std::size_t share = std::max<std::size_t>(1, cores / owners.size());
  for (std::size_t i = 0; i < owners.size(); ++i) {
    for (std::size_t k = 0; k < share; ++k) {
      owners[i]->cores.push_back(machine.cores[(i * share + k) % cores]);
    }
  }
  if (owners.size() > cores) {
    cluster.notes.push_back(
        fmt::format("{} CPU devices share {} cores: stages on one core take turns and take longer",
                    owners.size(), cores));
  }
}

// One memory has one limit: the smallest that was given for any of its devices.
void share_limits(Cluster& cluster) {
  for (Device& device : cluster.devices) {
    if (!cluster.group_limited(device.memory_group)) continue;
    device.memory = cluster.group_limit(device.memory_group);
    device.memory_limited = true;
  }
}

Link make_link(const Device& from, const Device& to) {
  const DeviceKind& a = device_kind(from.kind);
  const DeviceKind& b = device_kind(to.kind);
  const Nanoseconds latency = std::max(a.link_latency, b.link_latency);
  if (from.memory_group == to.memory_group)
    return {from.name == to.name ? Nanoseconds{} : latency, 0};
  if (a.name == b.name) return {latency, a.link_bytes_per_second};
  return {latency, std::min(a.host_bytes_per_second, b.host_bytes_per_second)};
}

Cluster build(std::span<const Request> requests, const LocalMachine& machine) {
  Cluster cluster;
  std::map<std::string, int> next;
  for (const Request& request : requests) add_device(cluster, request, next);
  deal_cores(cluster, machine);
  share_limits(cluster);
  for (const Device& from : cluster.devices) {
    for (const Device& to : cluster.devices) cluster.links.push_back(make_link(from, to));
  }
  check_cluster(cluster);
  return cluster;
}

std::string name_of(const Request& request, int ordinal) {
  return fmt::format("{}:{}", request.kind->name, ordinal);
}

std::string listed(std::span<const std::string> names) {
  constexpr std::size_t kShown = 8;
  if (names.size() <= kShown) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} more", fmt::join(names.first(kShown), ", "), names.size() - kShown);
}

// Gives each request the limit of the most particular key that names it.
void apply_limits(std::vector<Request>& requests, const std::map<std::string, Bytes>& max_memory) {
  std::map<std::string, int> next;
  std::vector<std::string> names;
  std::set<std::string> used;
  for (Request& request : requests) {
    int& following = next[request.kind->name];
    const int ordinal = request.ordinal >= 0 ? static_cast<int>(request.ordinal) : following;
    following = std::max(following, ordinal + 1);
    names.push_back(name_of(request, ordinal));
    std::vector<std::string> keys{request.kind->name, names.back()};
    if (!request.kind->host) keys.insert(keys.begin() + 1, std::to_string(ordinal));
    for (const std::string& key : keys) {
      const auto found = max_memory.find(key);
      if (found == max_memory.end()) continue;
      request.memory = found->second;
      used.insert(key);
    }
  }
  for (const auto& [key, bytes] : max_memory) {
    if (bytes <= Bytes{0} || bytes.count > (std::int64_t{1} << 60)) {
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("[device.make_cluster] max_memory of '{}' is {} bytes; expected a "
                              "positive size below 2^60 bytes",
                              key, bytes.count));
    }
    if (!used.contains(key)) {
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format(
              "[device.make_cluster] max_memory names '{}', which is not one of the devices; "
              "expected one of {}, a kind of device, or an accelerator's number; correct the name",
              key, listed(names)));
    }
  }
}

}  // namespace

Cluster parse_devices(std::string_view text, const LocalMachine& machine) {
  std::vector<Request> requests;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    parse_item(text, start, text.substr(start, comma - start), requests);
    start = comma + 1;
  }
  return build(requests, machine);
}

Cluster make_cluster(std::span<const std::string> names,
                     const std::map<std::string, Bytes>& max_memory, const LocalMachine& machine) {
  if (names.size() > kMostDevices) {
    throw Error(ErrorKind::invalid_argument,
                "[device.make_cluster] too many devices; expected at most 4096");
  }
  std::vector<Request> requests;
  for (const std::string& name : names) requests.push_back(parse_name(name, 0, name));
  apply_limits(requests, max_memory);
  return build(requests, machine);
}

}  // namespace kerf
