// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/device/device.h"

#include <fmt/format.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <nlohmann/json.hpp>

#include "kerf/device/cluster.h"
#include "kerf/device/devices.h"
#include "kerf/device/kind.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

std::optional<std::int64_t> limit_of(const Device& device) {
  return device.memory_limited ? std::optional(device.memory.count) : std::nullopt;
}

std::string device_text(const Device& device) {
  return device.memory_limited ? fmt::format("{}={}", device.name, to_string(device.memory))
                               : device.name;
}

std::string summary(const Cluster& cluster) {
  std::string out;
  for (const Device& device : cluster.devices) {
    out += (out.empty() ? "" : ", ") + device_text(device);
  }
  return out;
}

DeviceId find(const Cluster& cluster, const std::string& name) {
  const DeviceId id = cluster.find_device(name);
  if (!id.valid()) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[device.cluster] no device '{}'; expected one of {}", name, summary(cluster)));
  }
  return id;
}

Cluster build(const std::vector<std::string>& names,
              const std::map<std::string, std::int64_t>& max_memory,
              const std::map<std::string, double>& speeds) {
  std::map<std::string, Bytes> limits;
  for (const auto& [key, bytes] : max_memory) limits.emplace(key, Bytes{bytes});
  Cluster cluster = make_cluster(names, limits);
  for (const auto& [name, speed] : speeds) {
    cluster.devices[find(cluster, name).index()].speed = speed;
  }
  check_cluster(cluster);
  return cluster;
}

Cluster from_text(const std::string& text) {
  const JsonDocument document = parse_json(text, "pickle", ErrorKind::invalid_argument);
  return cluster_from_json(JsonReader(document));
}

}  // namespace

void init_device(py::module_& m) {
  py::class_<Device>(m, "Device", "One logical device of a cluster.")
      .def_readonly("name", &Device::name, "Its name in plans, such as 'cuda:0'.")
      .def_readonly("kind", &Device::kind, "What it is: 'cpu', 'cuda', 'h200' and so on.")
      .def_property_readonly("memory", &limit_of, "The limit in bytes; None: no limit.")
      .def_readonly("speed", &Device::speed,
                    "Relative to the kind that the profile was made for: 2 is twice as fast.")
      .def_readonly("host", &Device::host,
                    "Whether it uses the machine's own memory; False for accelerators.")
      .def_readonly("cores", &Device::cores,
                    "The cores that a CPU device owns; empty for accelerators.")
      .def_readonly("ordinal", &Device::ordinal, "The number in its name.")
      .def_readonly("memory_group", &Device::memory_group,
                    "Devices of one group share one memory and its limit.")
      .def("__repr__", [](const Device& d) { return "kerf.Device('" + device_text(d) + "')"; })
      .def("__eq__", [](const Device& a, const Device& b) { return a == b; }, py::is_operator());

  py::class_<Link>(m, "Link", "How tensors go from one device to another.")
      .def_property_readonly(
          "latency", [](const Link& l) { return seconds(l.latency); },
          "Seconds before the first byte arrives.")
      .def_readonly("bytes_per_second", &Link::bytes_per_second,
                    "0: both ends share one memory, nothing is copied.")
      .def_readonly("shared", &Link::shared,
                    "Whether all such links are one wire, on which transfers wait for each other.");

  py::class_<Cluster>(m, "Cluster", "Devices and the links between them.")
      .def(py::init(&build), py::arg("devices"),
           py::arg("max_memory") = std::map<std::string, std::int64_t>{},
           py::arg("speeds") = std::map<std::string, double>{},
           "From device names; limits in bytes and relative speeds by name.")
      .def_static(
          "parse", [](const std::string& text) { return parse_devices(text); }, py::arg("text"),
          "A cluster from a text such as 'cpu:0=2GiB,cpu:1=1GiB' or '4xh200'.")
      .def_property_readonly(
          "devices", [](const Cluster& c) { return c.devices; }, "The devices, in the order given.")
      .def_property_readonly(
          "notes", [](const Cluster& c) { return c.notes; },
          "What a user should know, such as devices that share cores.")
      .def(
          "link",
          [](const Cluster& c, const std::string& from, const std::string& to) {
            return c.link(find(c, from), find(c, to));
          },
          py::arg("from_device"), py::arg("to_device"), "The link from one device to the other.")
      .def(
          "save",
          [](const Cluster& c, const std::filesystem::path& path) { save_cluster(c, path); },
          py::arg("path"), "Writes cluster.json; the file is replaced whole or not at all.")
      .def("__len__", &Cluster::num_devices)
      .def("__repr__", [](const Cluster& c) { return "kerf.Cluster('" + summary(c) + "')"; })
      .def(
          "__eq__", [](const Cluster& a, const Cluster& b) { return a == b; }, py::is_operator())
      .def(py::pickle([](const Cluster& c) { return to_json(c).dump(); }, &from_text));

  m.def("make_cluster", &build, py::arg("devices"),
        py::arg("max_memory") = std::map<std::string, std::int64_t>{},
        py::arg("speeds") = std::map<std::string, double>{},
        "A Cluster from device names; limits in bytes and relative speeds by name.");
  m.def(
      "load_cluster", [](const std::filesystem::path& path) { return load_cluster(path); },
      py::arg("path"), "Reads a cluster that Cluster.save wrote.");
  m.def("device_kinds", &device_kind_names, "Kinds of device the estimator knows.");
  m.def(
      "parse_bytes", [](const std::string& text) { return parse_bytes(text).count; },
      py::arg("text"), "'2GiB', '512 MiB', '1.5GB' or '4096' as a number of bytes.");
}

}  // namespace kerf::bindings
