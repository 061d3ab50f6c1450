// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/placement_table.h"

#include <fmt/format.h>

#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

bool are_alike(const Placement::Unit& a, const Placement::Unit& b) {
  return a.residence == b.residence && a.bytes == b.bytes && a.time == b.time;
}

}  // namespace

std::string placement_table(const Placement& placement) {
  using Align = TextTable::Align;
  TextTable table({{"units", Align::left},
                   {"number"},
                   {"bytes each"},
                   {"weights", Align::left},
                   {"computing"},
                   {"copy"}});
  const auto& units = placement.units;
  for (std::size_t first = 0; first < units.size();) {
    std::size_t end = first + 1;
    while (end < units.size() && are_alike(units[first], units[end])) ++end;
    const Placement::Unit& unit = units[first];
    const std::string name =
        end - first == 1 ? unit.path : fmt::format("{} to {}", unit.path, units[end - 1].path);
    const bool is_streamed = unit.residence == Residence::streamed;
    table.add({name, std::to_string(end - first), to_string(unit.bytes),
               std::string(to_string(unit.residence)), to_string(unit.time),
               is_streamed ? to_string(unit.copy) : ""});
    first = end;
  }
  std::string out = table.str();
  out += fmt::format("{} holds {} of {} allowed: {} resident, {} in {} slot{}\n", placement.device,
                     to_string(placement.device_bytes()), to_string(placement.memory),
                     to_string(placement.bytes_of(Residence::resident)),
                     to_string(placement.slot_bytes * static_cast<std::int64_t>(placement.slots)),
                     placement.slots, placement.slots == 1 ? "" : "s");
  const Bytes streamed = placement.bytes_of(Residence::streamed);
  if (streamed.count > 0) {
    out += fmt::format("{} come from {} in every call\n", to_string(streamed), placement.source);
  }
  out += fmt::format("a call takes {}; at least {}: {}\n", to_string(placement.time),
                     to_string(Nanoseconds{placement.bound.value}), placement.bound.argument);
  return out;
}

}  // namespace kerf
