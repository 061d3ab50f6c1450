// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/libtorch/block_run.h"
#include "kerf/libtorch/cold_caches.h"
#include "kerf/libtorch/measure_blocks.h"
#include "kerf/profile/block_cache.h"

namespace kerf {

// Times and memory of one block, and of its nodes times that add up to the block's. `limits`: of
// the block. `caches`: prepared before each pass that is timed. `profile`: has the sizes of nodes,
// and takes notes; its nodes of this block are changed.
KnownBlock measure_one_block(BlockRun& block, const BlockSetting& setting,
                             const BlockOptions& options, const SampleLimits& limits,
                             const ColdCaches& caches, Profile& profile);

}  // namespace kerf
