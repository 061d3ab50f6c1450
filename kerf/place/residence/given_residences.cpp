// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/given_residences.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "kerf/place/residence/stream_time.h"

namespace kerf {
namespace {

constexpr std::size_t kSlotCounts[] = {1, 2, 3, 4, 8, 16};
constexpr double kAboutAsShort = 1.01;

struct Given {
  Bytes resident;
  Bytes slot;  // the largest streamed unit
  std::size_t streamed = 0;
  std::size_t largest = 0;  // of the units on the device
  Nanoseconds link;
  Nanoseconds computing;
};

Given look_at(const ResidenceProblem& problem, const std::vector<Residence>& of) {
  Given given;
  std::int64_t most = -1;
  for (std::size_t u = 0; u < of.size(); ++u) {
    const StreamUnit& unit = problem.units[u];
    given.computing += of[u] == Residence::host ? unit.host_time : unit.device_time;
    if (of[u] == Residence::resident) given.resident += unit.bytes;
    if (of[u] == Residence::streamed) {
      ++given.streamed;
      given.slot = std::max(given.slot, unit.bytes);
      given.link += problem.copy_time(unit.bytes);
    }
    if (of[u] != Residence::host && unit.bytes.count > most) {
      given.largest = u, most = unit.bytes.count;
    }
  }
  return given;
}

LowerBound bound_of(const Given& given) {
  if (given.link > given.computing) {
    return {"given", given.link.count,
            fmt::format("the weights that are to be streamed keep the link busy for {} per call",
                        to_string(given.link))};
  }
  return {"given", given.computing.count,
          fmt::format("computing takes {} per call", to_string(given.computing))};
}

bool fits(const ResidenceProblem& problem, const Given& given, std::size_t slots) {
  const auto count = static_cast<std::int64_t>(slots);
  return given.slot.count == 0
             ? given.resident <= problem.memory
             : (problem.memory.count - given.resident.count) / given.slot.count >= count;
}

}  // namespace

Outcome<ResidenceChoice, ResidenceShortage> give_slots(const ResidenceProblem& problem,
                                                       std::vector<Residence> of) {
  const Given given = look_at(problem, of);
  std::vector<ResidenceChoice> choices;
  for (const std::size_t count : kSlotCounts) {
    const std::size_t slots = std::min(count, given.streamed);
    if (problem.memory < given.resident || !fits(problem, given, slots)) break;
    Residences residences{of, slots, given.slot};
    const Nanoseconds time = stream_time(problem, residences);
    choices.push_back({std::move(residences), time, bound_of(given)});
    if (slots == given.streamed) break;
  }
  if (choices.empty()) {
    return ResidenceShortage{given.resident + given.slot, problem.memory, given.largest};
  }
  const auto shortest = std::min_element(
      choices.begin(), choices.end(),
      [](const ResidenceChoice& a, const ResidenceChoice& b) { return a.time < b.time; });
  const double enough = shortest->time.count * kAboutAsShort;
  return *std::find_if(choices.begin(), choices.end(),
                       [&](const ResidenceChoice& choice) { return choice.time.count <= enough; });
}

}  // namespace kerf
