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
#include "kerf/plan/schedule/task.h"

namespace kerf {

// Memory that outlives the pass that made it.
struct HeldItem {
  Bytes bytes;
  std::vector<PassId> users;  // other passes, ascending
  bool result = false;        // the model returns it: held until the step ends
  // Passes that use it where they share the memory; elsewhere they have a copy.
  std::vector<PassId> keepers = {};
};

// A tensor that a pass uses and did not make. `from` is invalid for graph inputs.
struct ReceivedValue {
  ValueId value;
  Bytes bytes;
  PassId from;
};

// What stages keep for their backward.
struct KeptSets {
  std::vector<std::vector<StorageId>> storages;  // by stage, ascending; weights left out
  std::vector<Bytes> own;                        // by node: tensors that only it knows
  std::vector<PassId> until;                     // by stage: the pass that needs them last

  bool has(StageId stage, StorageId storage) const;
};

struct Footprint {
  std::vector<StorageId> weights;  // ascending
  Bytes activations;  // peak of what it allocates, workspace included, less what it releases
  std::vector<ReceivedValue> received;
  std::vector<HeldItem> held;
};

// By stage: the forward passes. `workspace` by node, or empty; `kept` empty for inference.
//
// A storage is allocated where its first value is made. A view made in another stage lives in the
// buffer that stage received; when it is needed later still it counts by itself, with its own
// bytes, at most the storage's. Views of weights cost nothing where the weight is.
std::vector<Footprint> stage_footprints(const Graph& graph, std::span<const StageId> stage_of,
                                        std::size_t num_stages, std::int64_t micro_batch,
                                        std::span<const Bytes> workspace,
                                        const KeptSets& kept = {});

}  // namespace kerf
