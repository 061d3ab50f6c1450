// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/block_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "kerf/base/error.h"
#include "kerf/base/nearest_name.h"
#include "kerf/emit/report/text_table.h"

namespace kerf {
namespace {

struct BlockColumn {
  const char* name;
  double (*figure)(const BlockCost& cost);
};

double bytes_of(Bytes bytes) { return static_cast<double>(bytes.count); }

constexpr BlockColumn kBlockColumns[] = {
    {"forward", [](const BlockCost& cost) { return cost.forward.count; }},
    {"backward", [](const BlockCost& cost) { return cost.backward.count; }},
    {"forward_peak", [](const BlockCost& cost) { return bytes_of(cost.forward_peak); }},
    {"backward_peak", [](const BlockCost& cost) { return bytes_of(cost.backward_peak); }},
    {"weights", [](const BlockCost& cost) { return bytes_of(cost.weights); }},
    {"inputs", [](const BlockCost& cost) { return bytes_of(cost.inputs); }},
    {"outputs", [](const BlockCost& cost) { return bytes_of(cost.outputs); }},
};

std::vector<BlockRow> measured_rows(const Profile& profile) {
  std::vector<BlockRow> out;
  for (const MeasuredBlock& block : profile.blocks) {
    out.push_back(
        {block.path, block.name, static_cast<std::int64_t>(block.nodes.size()), 1, block.cost});
  }
  return out;
}

std::vector<BlockRow> rows_at(const Profile& profile, std::optional<int> depth) {
  if (profile.blocks.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "[profile.table] the profile has no blocks; expected one that was measured a block "
                "at a time; give isolate=True to kerf.profile");
  }
  if (!depth) return measured_rows(profile);
  if (*depth < 0) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[profile.table] depth is {}; expected a whole number from 0 on; leave "
                            "it out for the blocks that were measured",
                            *depth));
  }
  const auto deepest = static_cast<int>(profile.levels.size()) - 1;
  return profile.levels[static_cast<std::size_t>(std::min(*depth, deepest))];
}

void sort_by(std::vector<BlockRow>& rows, const std::string& name) {
  if (name.empty()) return;
  for (const BlockColumn& column : kBlockColumns) {
    if (name != column.name) continue;
    std::stable_sort(rows.begin(), rows.end(), [&](const BlockRow& a, const BlockRow& b) {
      return column.figure(a.cost) > column.figure(b.cost);
    });
    return;
  }
  std::vector<std::string> names;
  for (const BlockColumn& column : kBlockColumns) names.emplace_back(column.name);
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[profile.table] sort is '{}'; expected one of {}{}", name,
                          fmt::join(names, ", "), nearest_name_hint(name, names)));
}

std::string ms(Nanoseconds time) { return fmt::format("{:.3f}", time.count / 1e6); }
std::string mib(Bytes bytes) { return fmt::format("{:.2f}", bytes_of(bytes) / (1 << 20)); }

std::vector<std::string> block_cells(const BlockRow& row) {
  const BlockCost& cost = row.cost;
  return {row.path.empty() ? "(model)" : row.path,
          row.name,
          ms(cost.forward),
          ms(cost.forward_spread),
          ms(cost.backward),
          ms(cost.backward_spread),
          mib(cost.forward_peak),
          mib(cost.backward_peak),
          mib(cost.weights),
          mib(cost.inputs),
          mib(cost.outputs),
          std::to_string(cost.samples)};
}

}  // namespace

std::string block_table(const Profile& profile, const BlockTableOptions& options) {
  std::vector<BlockRow> rows = rows_at(profile, options.depth);
  sort_by(rows, options.sort);
  using Align = TextTable::Align;
  TextTable table({{"block", Align::left},
                   {"module", Align::left},
                   {"forward ms"},
                   {"+-"},
                   {"backward ms"},
                   {"+-"},
                   {"fwd peak MiB"},
                   {"bwd peak MiB"},
                   {"weights"},
                   {"inputs"},
                   {"outputs"},
                   {"samples"}});
  Nanoseconds forward;
  Nanoseconds backward;
  for (const BlockRow& row : rows) {
    forward += row.cost.forward;
    backward += row.cost.backward;
    table.add(block_cells(row));
  }
  table.add({"total", fmt::format("{} blocks", rows.size()), ms(forward), "", ms(backward), "", "",
             "", "", "", "", ""});
  return table.str();
}

}  // namespace kerf
