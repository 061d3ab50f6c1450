// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/placement_json.h"

#include <nlohmann/json.hpp>

#include "kerf/base/json.h"
#include "kerf/base/quantity.h"

namespace kerf {
namespace {

constexpr FormatVersion kVersion{1, 0};
constexpr std::int64_t kMost = std::int64_t{1} << 60;

}  // namespace

UnitsFile load_units(const std::string& path) {
  const JsonDocument document = load_json(path, ErrorKind::invalid_argument);
  check_format_header(document, "kerf-units", kVersion);
  UnitsFile out;
  for (const JsonReader& json : JsonReader(document).children("units")) {
    StreamUnit unit{{json.integer("bytes", 0, kMost)}, {read_quantity(json, "device_ns")}};
    if (json.has("host_ns")) unit.host_time = {read_quantity(json, "host_ns")};
    if (json.has("stays")) unit.stays = json.boolean("stays");
    out.paths.push_back(json.text("path"));
    out.units.push_back(unit);
  }
  return out;
}

std::string placement_json(const Placement& placement) {
  Json json = format_header("kerf-placement", kVersion);
  json["device"] = placement.device;
  json["source"] = placement.source;
  json["memory"] = placement.memory.count;
  json["slots"] = placement.slots;
  json["slot_bytes"] = placement.slot_bytes.count;
  json["time_ns"] = placement.time.count;
  json["lower_bound_ns"] = placement.bound.value;
  json["argument"] = placement.bound.argument;
  json["units"] = Json::array();
  for (const Placement::Unit& unit : placement.units) {
    json["units"].push_back({{"path", unit.path},
                             {"bytes", unit.bytes.count},
                             {"residence", to_string(unit.residence)},
                             {"time_ns", unit.time.count},
                             {"copy_ns", unit.copy.count}});
  }
  return json.dump(1) + "\n";
}

}  // namespace kerf
