// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/placement_table.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

bool are_alike(const Placement::Unit& a, const Placement::Unit& b) {
  return a.residence == b.residence && a.bytes == b.bytes && a.time == b.time &&
         a.host_rows == b.host_rows;
}

std::string with_host_line(const Placement& placement) {
  Bytes bytes;
  std::size_t count = 0;
  for (const Placement::Unit& unit : placement.units) {
    if (unit.host_rows == 0) continue;
    bytes += unit.bytes;
    ++count;
  }
  return fmt::format(
      "with one row the host computes {} unit{}, {}: such a call takes {}; at least {}: {}\n",
      count, count == 1 ? "" : "s", to_string(bytes), to_string(placement.with_host->time),
      to_string(Nanoseconds{placement.with_host->bound.value}),
      placement.with_host->bound.argument);
}

std::string rows(std::int64_t count) {
  return count == 0 ? "" : fmt::format("up to {} row{}", count, count == 1 ? "" : "s");
}

}  // namespace

std::string placement_table(const Placement& placement) {
  using Align = TextTable::Align;
  std::vector<TextTable::Column> columns = {{"units", Align::left},   {"number"},    {"bytes each"},
                                            {"weights", Align::left}, {"computing"}, {"copy"}};
  if (placement.with_host) columns.push_back({"host computes", Align::left});
  TextTable table(std::move(columns));
  const auto& units = placement.units;
  for (std::size_t first = 0; first < units.size();) {
    std::size_t end = first + 1;
    while (end < units.size() && are_alike(units[first], units[end])) ++end;
    const Placement::Unit& unit = units[first];
    const std::string name =
        end - first == 1 ? unit.path : fmt::format("{} to {}", unit.path, units[end - 1].path);
    const bool is_streamed = unit.residence == Residence::streamed;
    std::vector<std::string> cells = {
        name,
        std::to_string(end - first),
        to_string(unit.bytes),
        std::string(to_string(unit.residence)),
        to_string(unit.time),
        is_streamed ? to_string(unit.copy) : "",
    };
    if (placement.with_host) cells.push_back(rows(unit.host_rows));
    table.add(std::move(cells));
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
  if (placement.with_host) out += with_host_line(placement);
  return out;
}

}  // namespace kerf
