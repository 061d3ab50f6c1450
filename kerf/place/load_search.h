// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the searches over an Instance take and give. Deterministic: counted work decides, the
// clock is only a safety stop, and an answer that it cut short says so.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/place/instance.h"

namespace kerf::place {

// What the acyclic methods minimise within their balance.
enum class Minimise : std::uint8_t {
  stage_time,  // the largest load of a part: its time, and the tensors it pays for
  edge_cut,    // over the tensors: cost x parts other than the maker's that hold a reader
};
std::string_view to_string(Minimise minimise);
// Throws Error(invalid_argument), which lists the names.
Minimise parse_minimise(std::string_view name);

struct LoadOptions {
  double time_budget = 1;  // seconds; fixes the counted work
  double clock = 0;        // seconds until its clock strikes; 0: the time budget
  std::uint64_t seed = 0;
  int threads = 1;
  // Stop as soon as an objective at or below this is found (a proved bound).
  double good_enough = 0;
  // For the families (place/portfolio/families.h).
  bool mixed = true;                         // several stages on a device; false: one each
  int stages = 0;                            // mixed_pipe: blocks to share out; 0: found
  Minimise minimise = Minimise::stage_time;  // acyclic, multilevel
  double imbalance = 0.03;                   // edge_cut: of the heaviest part over its share

  double safety_stop() const { return clock > 0 ? clock : time_budget; }
};

struct LoadAnswer {
  std::vector<std::uint32_t> device;  // by task; Instance::cpu for the CPU
  double objective = 0;               // max load
  bool optimal = false;               // proved, within the space the method searches
  bool truncated = false;             // the clock stopped it
  std::int64_t work = 0;              // steps taken, for tests and tables
};

// No split of any kind has a smaller max load.
struct LoadBound {
  std::string name;
  double value = 0;
  std::string argument;  // one sentence
};

}  // namespace kerf::place
