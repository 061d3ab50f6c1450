// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What an interval needs as a stage of a training step. Private to partition/chain/.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/partition/chain/intervals.h"
#include "kerf/partition/chain/pipeline_moments.h"

namespace kerf::partition {

// One stage that is the interval [i, j); bytes of one micro-batch. Near what
// simulate/training_footprint.h finds for it, rarely above: views of what other stages made and
// clones are left out, and of a tensor that several stages use one gradient is counted;
// where a block that is computed again is cut, what it makes again may be off.
struct TrainingFigures {
  IntervalFigures forward;
  std::int64_t trained = 0;   // weights with gradients
  std::int64_t kept = 0;      // made here and kept for backward
  std::int64_t received = 0;  // received and kept for backward
  std::int64_t outputs = 0;   // made here for later stages, and not kept
  std::int64_t results = 0;   // made here for the caller
  std::int64_t grad_in = 0;   // gradients that come from later stages
  std::int64_t grad_out = 0;  // gradients that go to earlier ones
  std::int64_t waiting = 0;   // gradients that wait until those of weights are made
  std::int64_t live = 0;      // allocated and not released by the forward
  std::int64_t peak = 0;      // the most that was, workspace included
  std::int64_t backward = 0;  // peak of what the backward allocates, less what it released
  std::int64_t weights = 0;   // peak of what gradients of weights allocate, where they are apart

  // At the fullest of these moments.
  std::int64_t activations(std::span<const Moment> moments) const;
};

// Intervals between chosen positions, by numbers of those.
class TrainingTable {
 public:
  // Complexity: positions times nodes, positions squared space. All must outlive the call alone.
  TrainingTable(const Problem& problem, const Intervals& intervals,
                std::vector<std::size_t> positions);

  std::size_t num_positions() const { return positions_.size(); }
  std::size_t position(std::size_t number) const { return positions_[number]; }
  // first < last.
  const TrainingFigures& at(std::size_t first, std::size_t last) const {
    return figures_[first * num_positions() + last];
  }

 private:
  std::vector<std::size_t> positions_;
  std::vector<TrainingFigures> figures_;
};

}  // namespace kerf::partition
