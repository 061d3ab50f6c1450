// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// find_latency for searches: the same figure, with everything that does not depend on the split
// prepared and no memory taken for a call. O(edges x devices / 16).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/rows.h"
#include "kerf/place/load_problem.h"

namespace kerf::place {

class LatencyTimer {
 public:
  // `problem` must be acyclic and outlive the timer.
  LatencyTimer(const LoadProblem& problem, bool serial);

  // device[node]; infinite when pieces wait for each other in a circle.
  double latency(std::span<const SlotId> device);
  std::int64_t work() const {
    return static_cast<std::int64_t>(order_.size() + successors_.num_values());
  }
  std::span<const std::uint32_t> order() const { return order_; }  // topological, depth first

 private:
  void find_pieces(std::span<const SlotId> device);
  void form_groups(std::span<const SlotId> device);
  void add_times(std::span<const SlotId> device);
  void chain_pieces();
  double longest_path();

  const LoadProblem& problem_;
  bool serial_;
  std::uint32_t cpu_;
  std::size_t stride_;  // devices, rounded up to whole vectors
  Rows successors_;
  std::vector<std::uint32_t> order_;
  // Of the split at hand, by node:
  std::vector<std::uint16_t> piece_;
  std::vector<std::uint16_t> left_;  // and device: 1 + the last piece left there before this node
  std::vector<std::uint32_t> group_, next_in_group_;
  // By device: the groups of its pieces.
  std::vector<std::vector<std::uint32_t>> pieces_;
  // By group (a CPU node, or a piece of an accelerator):
  std::vector<double> own_, start_;
  std::vector<std::uint32_t> head_, waiting_, after_, stamp_, ready_;
  std::vector<std::uint8_t> on_cpu_;
};

}  // namespace kerf::place
