// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/placement.h"

#include <fmt/format.h>

#include "kerf/base/error.h"
#include "kerf/place/residence/choose_residences.h"
#include "kerf/place/residence/given_residences.h"

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

std::string in_words(const std::string& path) {
  return path.empty() ? "the model itself" : fmt::format("'{}'", path);
}

Placement placement_of(const ResidenceProblem& problem, const ResidenceChoice& choice,
                       const std::vector<std::string>& paths, const std::string& device,
                       const std::string& source) {
  Placement out;
  out.device = device;
  out.source = source;
  out.memory = problem.memory;
  out.bytes_per_nanosecond = problem.bytes_per_nanosecond;
  out.copy_latency = problem.copy_latency;
  out.slots = choice.residences.slots;
  out.slot_bytes = choice.residences.slot_bytes;
  out.time = choice.time;
  out.bound = choice.bound;
  for (std::size_t u = 0; u < paths.size(); ++u) {
    const StreamUnit& unit = problem.units[u];
    const Residence residence = choice.residences.of[u];
    out.units.push_back(
        {paths[u], unit.bytes, residence,
         residence == Residence::host ? unit.host_time : unit.device_time,
         residence == Residence::streamed ? problem.copy_time(unit.bytes) : Nanoseconds{}});
  }
  return out;
}

}  // namespace

Outcome<Placement, std::string> place_units(const ResidenceProblem& problem,
                                            const std::vector<std::string>& paths,
                                            const std::string& device, const std::string& source) {
  KERF_CHECK(paths.size() == problem.units.size(), "each unit has a path");
  const auto choice = choose_residences(problem);
  if (!choice) {
    const ResidenceShortage& shortage = choice.reason();
    return fmt::format(
        "[plan.placement] the model does not fit: {} of weights are allowed on {}, and at least {} "
        "are needed, {} more; the largest unit that must be there is {} with {}; allow more, or "
        "let larger modules be opened",
        to_string(shortage.memory), device, to_string(shortage.needed),
        to_string(shortage.needed - shortage.memory), in_words(paths[shortage.largest]),
        to_string(problem.units[shortage.largest].bytes));
  }
  return placement_of(problem, *choice, paths, device, source);
}

Outcome<Placement, std::string> place_as_given(const ResidenceProblem& problem,
                                               const std::vector<Residence>& residences,
                                               const std::vector<std::string>& paths,
                                               const std::string& device,
                                               const std::string& source) {
  KERF_CHECK(paths.size() == problem.units.size(), "each unit has a path");
  KERF_CHECK(residences.size() == problem.units.size(), "each unit has a residence");
  const auto choice = give_slots(problem, residences);
  if (!choice) {
    const ResidenceShortage& shortage = choice.reason();
    return fmt::format(
        "[plan.placement] what is to be on {0} does not fit: {1} of weights are allowed, and at "
        "least {2} are needed, {3} more; the largest unit is {4} with {5}; allow more, or keep "
        "less there",
        device, to_string(shortage.memory), to_string(shortage.needed),
        to_string(shortage.needed - shortage.memory), in_words(paths[shortage.largest]),
        to_string(problem.units[shortage.largest].bytes));
  }
  Placement out = placement_of(problem, *choice, paths, device, source);
  if (out.memory == kNoLimit) out.memory = out.device_bytes();
  return out;
}

void give_to_host(Placement& placement, std::span<const RowTimes> row_times) {
  KERF_CHECK(!row_times.empty(), "there are times");
  ResidenceProblem problem;
  Residences residences{{}, placement.slots, placement.slot_bytes};
  for (const Placement::Unit& unit : placement.units) {
    problem.units.push_back({unit.bytes, unit.time});
    residences.of.push_back(unit.residence);
  }
  problem.memory = placement.memory;
  problem.bytes_per_nanosecond = placement.bytes_per_nanosecond;
  problem.copy_latency = placement.copy_latency;
  const HostShare share = share_with_host(problem, residences, row_times);
  placement.with_host.reset();
  bool any = false;
  for (std::size_t u = 0; u < placement.units.size(); ++u) {
    placement.units[u].host_rows = share.most_rows[u];
    any = any || share.most_rows[u] > 0;
    problem.units[u].device_time = row_times.front().device_time[u];
    problem.units[u].host_time = row_times.front().host_time[u];
  }
  if (!any) return;
  const auto best = choose_residences(problem);  // a call without its slots, for the bound alone
  KERF_CHECK(best, "what fits without the host fits with it");
  placement.with_host = {share.time, best->bound};
}

}  // namespace kerf
