// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What each stage needs in memory for one micro-batch, wherever it and the others run, from the
// definitions (plan/plan.h: Stage). Private to verify/.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "kerf/verify/flow.h"

namespace kerf::derive {

// Memory that outlives the run of the stage that has it.
struct Kept {
  Bytes bytes;
  std::vector<StageId> users;         // once these have run it is free; ascending
  bool result = false;                // the model returns it: kept until the step ends
  std::vector<StageId> sharers = {};  // users too where they share the memory
};

// A tensor that comes from elsewhere; from nobody: the caller's.
struct Arrival {
  ValueId value;
  StageId from;
  Bytes bytes;
};

// Training: what stages keep for their backward.
struct Reserved {
  std::vector<std::set<StorageId>> storages;  // by stage, weights left out
  std::vector<Bytes> own;                     // by node: in no storage of the graph
  std::vector<StageId> until;                 // by stage: the pass that frees them
};

struct StageNeeds {
  std::vector<StorageId> weights;  // each once
  Bytes weight_bytes;
  Bytes activations;              // the most that its nodes have allocated at once
  std::vector<Arrival> received;  // tensors that it uses and does not make, weights left out
  Bytes inputs;                   // of those
  std::vector<Kept> kept;
  Bytes outputs;  // of those
};

// By stage. `workspace` by node, or empty.
//
// A storage belongs to the stage with the first node that makes a value in it, from that node to
// the stage's last one that touches such a value; when another stage or the caller needs it, to the
// end. Views of memory that belongs elsewhere cost nothing, unless they are needed by others in
// turn: then each is kept by itself. A stage that writes to memory of another one has a clone of
// it, from the node that writes to the end.
std::vector<StageNeeds> derive_needs(const Graph& graph, const Flow& flow, std::int64_t micro_batch,
                                     std::span<const Bytes> workspace,
                                     const Reserved& reserved = {});

}  // namespace kerf::derive
