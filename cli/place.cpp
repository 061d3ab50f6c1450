// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "cli/verbs.h"
#include "kerf/base/error.h"
#include "kerf/base/file.h"
#include "kerf/device/devices.h"
#include "kerf/emit/report/placement_table.h"
#include "kerf/plan/placement_json.h"

namespace kerf::cli {
namespace {

struct PlaceOptions {
  std::string units;
  std::string devices;
  std::string link;
  double latency_us = 20;
  std::string out;
};

// "55GB/s" or "55GB": bytes per second.
double parse_speed(std::string text) {
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  const Bytes bytes = parse_bytes(text);
  if (bytes.count == 0) {
    throw Error(ErrorKind::invalid_argument,
                "[cli.place] the link moves nothing; expected its speed, --link 55GB/s");
  }
  if (!text.ends_with('B')) {  // a number alone, or bits
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[cli.place] the link's speed is '{}'; expected bytes per second, with "
                            "a unit that ends in B, --link 55GB/s; a byte has 8 bits",
                            text));
  }
  return static_cast<double>(bytes.count);
}

void run_place(const PlaceOptions& options, int& exit_code) {
  const Cluster cluster = parse_devices(options.devices);
  const Device& device = cluster.devices.front();
  if (!device.memory_limited) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[cli.place] no memory is given for {}; expected what it has for "
                            "weights, --devices {}=2GiB",
                            device.name, device.name));
  }
  if (cluster.num_devices() > 2) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[cli.place] {} devices; expected the one that computes and the host; "
                            "leave out '{}' (kerf plan cuts a model over several)",
                            cluster.num_devices(), cluster.devices[2].name));
  }
  UnitsFile units = load_units(options.units);
  ResidenceProblem problem;
  problem.units = std::move(units.units);
  problem.memory = device.memory;
  problem.bytes_per_nanosecond = parse_speed(options.link) * 1e-9;
  problem.copy_latency = {options.latency_us * 1e3};
  const bool has_host = cluster.num_devices() > 1;
  if (!has_host) {  // nobody else computes
    for (StreamUnit& unit : problem.units) unit.host_time = kNotOnTheHost;
  }
  const std::string source = has_host ? cluster.devices[1].name : "disk";
  const auto placement = place_units(problem, units.paths, device.name, source);
  if (!placement) {
    exit_code = kNo;
    return fmt::print(stderr, "{}\n", placement.reason());
  }
  const Bytes away =
      placement->bytes_of(Residence::streamed) + placement->bytes_of(Residence::host);
  if (has_host && cluster.devices[1].memory_limited && away > cluster.devices[1].memory) {
    exit_code = kNo;
    return fmt::print(
        stderr, "[cli.place] {} of weights are left for {}, which has {}; {} more are needed\n",
        to_string(away), source, to_string(cluster.devices[1].memory),
        to_string(away - cluster.devices[1].memory));
  }
  fmt::print("{}", placement_table(*placement));
  if (!options.out.empty()) write_file(options.out, placement_json(*placement));
}

}  // namespace

void add_place(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PlaceOptions>();
  CLI::App* verb = app.add_subcommand(
      "place", "Decide which weights stay on a device and which are streamed to it");
  verb->add_option("units", options->units, "units.json")->required();
  verb->add_option("--devices", options->devices,
                   "the device that computes and its memory for weights, then the host, if it may "
                   "compute units: cuda:0=2GiB,cpu:0=100GiB")
      ->required();
  verb->add_option("--link", options->link, "speed of the way that weights come, 55GB/s")
      ->required();
  verb->add_option("--latency-us", options->latency_us, "of each copy")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  verb->add_option("--out", options->out, "placement.json");
  verb->callback([options, &exit_code] { run_place(*options, exit_code); });
}

}  // namespace kerf::cli
