// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "kerf/graph/passes/coarsen.h"
#include "kerf/libtorch/block_run.h"
#include "kerf/runtime/program.h"

namespace kerf {

// A run of a graph without gradients, block by block, for whoever wants to look at some of them
// with the values that they are given. What blocks send is kept on the host as long as somebody
// needs it.
class BlockWalk {
 public:
  // `wanted`: by block, in whose order they can run. Those between two of them run as one where
  // `joined`, else each by itself: with only its own weights on the device.
  BlockWalk(const BlockSetting& setting, const Cluster& cluster, const std::vector<Block>& blocks,
            const std::vector<bool>& wanted, bool joined);

  std::size_t num_steps() const { return num_steps_; }
  // Up to the last block that is wanted; `done` is told after each step.
  using Look = std::function<void(std::size_t block, BlockRun& run)>;
  void run(TorchRun& run, const Look& look, const std::function<void(std::size_t)>& done);

 private:
  std::vector<TorchParcelPtr> take(const Program& program);
  void keep(const Program& program, const std::vector<ParcelPtr>& sends);

  const BlockSetting& setting_;
  std::vector<Program> programs_;
  std::vector<std::size_t> block_of_;      // by step: the block that is wanted, or none
  std::size_t num_steps_ = 0;              // that are run
  std::vector<TorchParcelPtr> values_;     // by value
  std::vector<std::size_t> readers_left_;  // by value: steps that have not run yet
};

}  // namespace kerf
