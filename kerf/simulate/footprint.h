// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What one stage allocates, receives and leaves behind, whatever the schedule. Private to
// simulate/; simulate/memory.h puts it together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// Memory that outlives the run of the stage that made it.
struct HeldItem {
  Bytes bytes;
  std::vector<StageId> users;  // other stages, ascending
  bool result = false;         // the model returns it: held until the step ends
};

// A tensor that a stage uses and did not make. `from` is invalid for graph inputs.
struct ReceivedValue {
  ValueId value;
  Bytes bytes;
  StageId from;
};

struct Footprint {
  std::vector<StorageId> weights;  // ascending
  Bytes activations;               // peak of what its nodes allocate, workspace included
  std::vector<ReceivedValue> received;
  std::vector<HeldItem> held;
};

// By stage. `workspace` by node, or empty.
//
// A storage is allocated where its first value is made. A view made in another stage lives in the
// buffer that stage received; when it is needed later still it counts by itself, with its own
// bytes, at most the storage's. Views of weights cost nothing where the weight is.
std::vector<Footprint> stage_footprints(const Graph& graph, std::span<const StageId> stage_of,
                                        std::size_t num_stages, std::int64_t micro_batch,
                                        std::span<const Bytes> workspace);

}  // namespace kerf
