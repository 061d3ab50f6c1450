// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/placement_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

constexpr std::array kResidences = {Residence::resident, Residence::streamed, Residence::host};

// "model.layers.7.mlp" is one of "model.layers.*.mlp".
std::string pattern_of(std::string_view path) {
  std::string out;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    const bool is_number =
        !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char letter) {
          return std::isdigit(letter) != 0;
        });
    if (begin > 0) out += '.';
    out += is_number ? "*" : part;
    begin = end + 1;
  }
  return out;
}

// Units at the same place in modules that repeat.
struct Kind {
  const Placement::Unit* first = nullptr;
  std::string pattern;
  std::array<std::size_t, kResidences.size()> counts{};  // by residence
  Nanoseconds computing;
  Nanoseconds host_time;
  Nanoseconds copy;
  std::size_t on_host = 0;  // in calls of few rows
  std::int64_t most_rows = 0;

  std::size_t count() const { return counts[0] + counts[1] + counts[2]; }
};

std::vector<Kind> kinds_of(const Placement& placement) {
  std::vector<Kind> out;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> known;
  for (const Placement::Unit& unit : placement.units) {
    const std::string pattern = pattern_of(unit.path);
    const auto [found, is_new] = known.try_emplace({pattern, unit.bytes.count}, out.size());
    if (is_new) out.push_back({&unit, pattern, {}, {}, {}, {}, 0, 0});
    Kind& kind = out[found->second];
    ++kind.counts[static_cast<std::size_t>(unit.residence)];
    // The device's, unless the host computes all of them.
    Nanoseconds& time = unit.residence == Residence::host ? kind.host_time : kind.computing;
    time = std::max(time, unit.time);
    kind.copy = std::max(kind.copy, unit.copy);
    if (unit.host_rows > 0) ++kind.on_host;
    kind.most_rows = std::max(kind.most_rows, unit.host_rows);
  }
  return out;
}

std::string host_cell(const Kind& kind) {
  if (kind.on_host == 0) return "";
  const std::string rows =
      fmt::format("up to {} row{}", kind.most_rows, kind.most_rows == 1 ? "" : "s");
  return kind.count() == 1 ? rows : fmt::format("{}, {}", kind.on_host, rows);
}

std::string units_table(const Placement& placement) {
  const std::vector<Kind> kinds = kinds_of(placement);
  std::vector<TextTable::Column> columns = {
      {"units", TextTable::Align::left}, {"number"}, {"bytes each"}};
  std::vector<std::size_t> used;  // residences that some unit has
  for (std::size_t r = 0; r < kResidences.size(); ++r) {
    const bool any = std::any_of(kinds.begin(), kinds.end(),
                                 [&](const Kind& kind) { return kind.counts[r] > 0; });
    if (!any) continue;
    used.push_back(r);
    columns.push_back({std::string(to_string(kResidences[r]))});
  }
  columns.push_back({"computing"});
  columns.push_back({"copy"});
  if (placement.with_host) columns.push_back({"host computes", TextTable::Align::left});
  TextTable table(std::move(columns));
  for (const Kind& kind : kinds) {
    std::vector<std::string> cells = {kind.count() == 1 ? kind.first->path : kind.pattern,
                                      std::to_string(kind.count()), to_string(kind.first->bytes)};
    for (const std::size_t r : used) {
      cells.push_back(kind.counts[r] > 0 ? std::to_string(kind.counts[r]) : "-");
    }
    const bool is_hosts = kind.counts[2] == kind.count();
    cells.push_back(to_string(is_hosts ? kind.host_time : kind.computing));
    cells.push_back(kind.copy.count > 0 ? to_string(kind.copy) : "");
    if (placement.with_host) cells.push_back(host_cell(kind));
    table.add(std::move(cells));
  }
  return table.str();
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

}  // namespace

std::string placement_table(const Placement& placement) {
  std::string out = units_table(placement);
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
