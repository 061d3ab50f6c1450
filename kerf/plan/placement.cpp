// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/placement.h"

#include <fmt/format.h>

#include "kerf/base/error.h"
#include "kerf/place/residence/choose_residences.h"

namespace kerf {

std::string_view to_string(Residence residence) {
  switch (residence) {
    case Residence::resident: return "resident";
    case Residence::streamed: return "streamed";
    case Residence::host: return "host";
  }
  return "";
}

Bytes Placement::device_bytes() const {
  return bytes_of(Residence::resident) + slot_bytes * static_cast<std::int64_t>(slots);
}

Bytes Placement::bytes_of(Residence residence) const {
  Bytes bytes;
  for (const Unit& unit : units) {
    if (unit.residence == residence) bytes += unit.bytes;
  }
  return bytes;
}

namespace {

void give_to_host(Placement& placement, ResidenceProblem problem, const Residences& residences,
                  std::span<const RowTimes> row_times) {
  const HostShare share = share_with_host(problem, residences, row_times);
  bool any = false;
  for (std::size_t u = 0; u < placement.units.size(); ++u) {
    placement.units[u].host_rows = share.most_rows[u];
    any = any || share.most_rows[u] > 0;
  }
  if (!any) return;
  for (std::size_t u = 0; u < problem.units.size(); ++u) {
    problem.units[u].device_time = row_times.front().device_time[u];
    problem.units[u].host_time = row_times.front().host_time[u];
  }
  const auto best = choose_residences(problem);  // a call without its slots, for the bound alone
  KERF_CHECK(best, "what fits without the host fits with it");
  placement.with_host = {share.time, best->bound};
}

}  // namespace

Outcome<Placement, std::string> place_units(const ResidenceProblem& problem,
                                            const std::vector<std::string>& paths,
                                            const std::string& device, const std::string& source,
                                            std::span<const RowTimes> row_times) {
  KERF_CHECK(paths.size() == problem.units.size(), "each unit has a path");
  const auto choice = choose_residences(problem);
  if (!choice) {
    const ResidenceShortage& shortage = choice.reason();
    return fmt::format(
        "[plan.placement] the model does not fit: {} of weights are allowed on {}, and at least {} "
        "are needed, {} more; the largest unit that must be there is '{}' with {}; allow more, or "
        "let larger modules be opened",
        to_string(shortage.memory), device, to_string(shortage.needed),
        to_string(shortage.needed - shortage.memory), paths[shortage.largest],
        to_string(problem.units[shortage.largest].bytes));
  }
  Placement out;
  out.device = device;
  out.source = source;
  out.memory = problem.memory;
  out.slots = choice->residences.slots;
  out.slot_bytes = choice->residences.slot_bytes;
  out.time = choice->time;
  out.bound = choice->bound;
  for (std::size_t u = 0; u < paths.size(); ++u) {
    const StreamUnit& unit = problem.units[u];
    const Residence residence = choice->residences.of[u];
    out.units.push_back(
        {paths[u], unit.bytes, residence,
         residence == Residence::host ? unit.host_time : unit.device_time,
         residence == Residence::streamed ? problem.copy_time(unit.bytes) : Nanoseconds{}});
  }
  if (!row_times.empty()) give_to_host(out, problem, choice->residences, row_times);
  return out;
}

}  // namespace kerf
