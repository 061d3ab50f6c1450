// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory of one step of a whole model on one device, tensor by tensor: forward, backward with
// recomputed regions, optimizer; or an inference pass.
//
//   StepRequest request{.batch = 32, .optimizer = &optimizer("adamw")};
//   request.regions = traced_regions(graph);
//   const StepMemory memory = step_memory(graph, request);
//
// What is counted
// - A tensor lives from the call that makes it to the last call that reads it, or to the backward
//   of the last operator that keeps it. Gradients of activations live from the backward of the last
//   reader to that of the maker; a gradient that an operator passes on unchanged is one tensor.
// - The caller's loss reads the results when forward ends and gives a gradient for each of them.
// - Gradients of parameters are made as backward goes, and given up after the optimizer's step.
// - The second step is judged: from then on the optimizer has its state.
// - On an accelerator every block goes through a model of PyTorch's caching allocator, which says
//   what is reserved; on a host nothing is reserved beyond what is in use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/plan/memory_kind.h"
#include "kerf/profile/optimizer.h"
#include "kerf/profile/profile.h"
#include "kerf/profile/saved/saved.h"

namespace kerf {

struct StepRequest {
  std::int64_t batch = 0;                // 0: the graph's example batch
  bool accelerator = true;               // else a host
  const Optimizer* optimizer = nullptr;  // null: inference, no backward
  std::vector<RegionNumber> regions;     // by node; empty: nothing is recomputed
  // Measured on the kind of device that is asked about, at this batch: what its operators needed
  // beside their arguments and results. Null: rules, which cannot know what cuDNN chooses.
  const Profile* profile = nullptr;
  bool list_blocks = false;  // fill StepMemory::blocks
};

// A tensor that is asked for or given up.
struct BlockEvent {
  bool is_made;       // else given up
  std::size_t block;  // the same number at both; one from before the step: kOlderBlock
  Bytes bytes;
  NodeId node;  // that ran; invalid in the loss and the optimizer
};
inline constexpr std::size_t kOlderBlock = static_cast<std::size_t>(-1);

struct StepMemory {
  Bytes peak;                                 // in use, blocks as the allocator rounds them
  Bytes reserved;                             // taken from the device; 0 on a host
  MemoryKinds at_peak{};                      // tensors as they are
  std::string phase;                          // of the peak: forward, backward, optimizer
  std::string node;                           // that ran then; empty in the optimizer
  Bytes saved;                                // distinct bytes kept when forward has ended
  Bytes added_by_forward;                     // those and results, blocks as they are rounded
  std::vector<std::string> ops_without_rule;  // of the saved sets
  std::vector<BlockEvent> blocks;             // of the step that is judged, in its order
};

// Throws Error(invalid_argument) when training is asked for of a graph that was traced in eval mode
// or makes no gradients, when a batch is given that the graph cannot have, and when the profile is
// not measured, of another batch, or without the backward that is asked about;
// Error(invalid_profile) when it is of another graph. Time: nodes x log(live tensors).
StepMemory step_memory(const Graph& graph, const StepRequest& request);

}  // namespace kerf
