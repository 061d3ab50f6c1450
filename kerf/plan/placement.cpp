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

Outcome<Placement, std::string> place_units(const ResidenceProblem& problem,
                                            const std::vector<std::string>& paths,
                                            const std::string& device, const std::string& source) {
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
  return out;
}

}  // namespace kerf
