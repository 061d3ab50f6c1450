// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The parts of mode sparse_nn.
#pragma once

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

// Runs of embedding nodes and runs of others, then merged by size within their kind while levels
// allow. Throws OriginalError where the original raises.
struct SparseParts {
  std::vector<Partition> partitions;
  std::vector<std::size_t> embedding;  // positions, in the order in which they take devices
  std::vector<std::size_t> dense;
};
// `is_embedding` by node. `compat`: raises when either kind is absent (S3).
SparseParts split_by_kind(const OpGraph& graph, const std::vector<bool>& is_embedding,
                          std::int64_t capacity, bool compat);
// Devices: embedding partition i on device i, dense ones on all that were used.
void place_by_kind(SparseParts& parts, std::span<const Device> devices, std::int64_t capacity);

}  // namespace kerf::partition::fx
