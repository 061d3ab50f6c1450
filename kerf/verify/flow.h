// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Who makes and who uses what, by stage. Read off the nodes' arguments again, and not taken from
// the graph's adjacency, which planners rely on. Private to verify/.
#pragma once

#include <cstddef>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf::derive {

struct Flow {
  std::vector<StageId> stage_of;            // by node
  std::vector<StageId> maker;               // by value; invalid: a weight, or the caller's
  std::vector<std::vector<StageId>> users;  // by value: stages but its maker, ascending
  std::vector<bool> result;                 // by value: the model returns it
  std::vector<std::vector<StageId>> after;  // by stage: those it waits for, ascending

  std::size_t num_stages() const { return after.size(); }
};

// `stage_of` has a stage for every node.
Flow read_flow(const Graph& graph, std::vector<StageId> stage_of, std::size_t num_stages);

}  // namespace kerf::derive
