// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kerf/libtorch/measure.h"
#include "kerf/profile/block_cache.h"

namespace kerf {

struct BlockOptions : MeasureOptions {
  // Figures of blocks that are computed again in backward (Profile::recompute).
  bool recompute = false;
  // Each block by itself, twins too: to show what measuring one for all is worth.
  bool every_block = false;
  std::string cache_folder;        // empty: no cache
  MeasuringConditions conditions;  // of this machine, beside what the options say
  // Told before the work and after each step of it: steps done, and how many there are.
  std::function<void(std::size_t done, std::size_t total)> progress;
};

// A profile of a graph, measured a block at a time (blocks_to_measure): each runs by itself, again
// and again, on what it is given in a run of the model, and blocks that do the same work
// (signature) are measured once. The graph runs once, up to the last block that is to be measured,
// with the values between blocks on the host; weights and inputs of one block at a time are on the
// device, so that a model that is larger than the device can be measured. On a host, blocks between
// those that are measured run as one.
//
// On a host, where the graph's tensors are larger than the caches, these are emptied before each
// pass (ColdCaches), as between two steps; not on accelerators.
//
// Times of a block are those of a stage that holds it alone, gradients of weights included; of its
// nodes, shares of these, by a few passes that look at each (measure.h). A CPU device is measured
// while the others are idle, which a note says. What blocks take of memory is heard of the
// allocator; with a profiler listening it is not, which a note says.
//
// The model's weights, buffers, gradients and inputs and the caller's random numbers are as before
// afterwards. Throws as `measure` does.
Profile measure_blocks(const Graph& graph, const Cluster& cluster, DeviceId device,
                       std::vector<at::Tensor> weights, const std::vector<at::Tensor>& inputs,
                       std::int64_t batch, const OpaqueCalls& opaque, const BlockOptions& options);

}  // namespace kerf
