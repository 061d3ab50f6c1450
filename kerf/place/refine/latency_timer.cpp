// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/refine/latency_timer.h"

#include <algorithm>
#include <utility>

#include "kerf/base/infinity.h"

namespace kerf::place {
namespace {

// Reversed order of leaving, depth first: branches stay in one go.
std::vector<std::uint32_t> depth_first_order(const LoadProblem& problem) {
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(problem.nodes.size(), false);
  std::vector<std::pair<std::uint32_t, std::size_t>> stack;
  for (std::uint32_t root = 0; root < problem.nodes.size(); ++root) {
    if (!seen[root]) stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [node, next] = stack.back();
      seen[node] = true;
      if (next == problem.successors[node].size()) {
        order.push_back(node);
        stack.pop_back();
        continue;
      }
      const std::uint32_t to = problem.successors[node][next++];
      if (!seen[to]) stack.emplace_back(to, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace

LatencyTimer::LatencyTimer(const LoadProblem& problem, bool serial)
    : problem_(problem),
      serial_(serial),
      cpu_(problem.cpu()),
      stride_((problem.cpu() + 8) / 8 * 8),
      order_(depth_first_order(problem)) {
  const std::size_t count = problem.nodes.size();
  for (const auto& next : problem.successors) successors_.append(next);
  piece_.resize(count);
  left_.resize(count * stride_);
  group_.resize(count);
  next_in_group_.resize(count);
  pieces_.resize(cpu_);
}

double LatencyTimer::latency(std::span<const SlotId> device) {
  find_pieces(device);
  form_groups(device);
  add_times(device);
  if (serial_) chain_pieces();
  return longest_path();
}

// As find_latency's level_pieces.
void LatencyTimer::find_pieces(std::span<const SlotId> device) {
  std::fill(piece_.begin(), piece_.end(), std::uint16_t{0});
  std::fill(left_.begin(), left_.end(), std::uint16_t{0});
  for (const std::uint32_t n : order_) {
    const std::uint32_t own = device[n];
    const std::uint16_t* from = &left_[n * stride_];
    piece_[n] = std::max(piece_[n], from[own]);
    for (const std::uint32_t next : successors_[n]) {
      std::uint16_t* to = &left_[next * stride_];
      for (std::size_t d = 0; d < stride_; ++d) to[d] = std::max(to[d], from[d]);
      if (device[next] == own) {
        piece_[next] = std::max(piece_[next], piece_[n]);
      } else {
        to[own] = std::max(to[own], static_cast<std::uint16_t>(piece_[n] + 1));
      }
    }
  }
}

void LatencyTimer::form_groups(std::span<const SlotId> device) {
  for (auto& pieces : pieces_) pieces.clear();
  head_.clear();
  on_cpu_.clear();
  for (const std::uint32_t n : order_) {
    auto g = static_cast<std::uint32_t>(head_.size());
    if (device[n] != cpu_) {
      auto& known = pieces_[device[n]];
      if (known.size() <= piece_[n]) known.resize(piece_[n] + std::size_t{1}, kNoIndex);
      if (known[piece_[n]] == kNoIndex) known[piece_[n]] = g;
      g = known[piece_[n]];
    }
    if (g == head_.size()) {
      head_.push_back(kNoIndex);
      on_cpu_.push_back(device[n] == cpu_ ? 1 : 0);
    }
    group_[n] = g;
    next_in_group_[n] = head_[g];
    head_[g] = n;
  }
  own_.assign(head_.size(), 0);
  start_.assign(head_.size(), 0);
  waiting_.assign(head_.size(), 0);
  after_.assign(head_.size(), kNoIndex);
  stamp_.assign(head_.size(), kNoIndex);
}

// Compute and tensors of every group: a tensor once for its maker and once for each reader.
void LatencyTimer::add_times(std::span<const SlotId> device) {
  for (std::uint32_t n = 0; n < group_.size(); ++n) {
    const LoadNode& node = problem_.nodes[n];
    const std::uint32_t g = group_[n];
    own_[g] += device[n] == cpu_ ? node.cpu_time : node.accelerator_time;
    bool leaves = false;
    for (const std::uint32_t next : successors_[n]) {
      const std::uint32_t reader = group_[next];
      if (reader == g) continue;
      leaves = true;
      ++waiting_[reader];
      if (on_cpu_[reader] != 0 || stamp_[reader] == n) continue;
      stamp_[reader] = n;
      own_[reader] += node.transfer;
    }
    if (leaves && on_cpu_[g] == 0) own_[g] += node.transfer;
  }
}

void LatencyTimer::chain_pieces() {
  for (const auto& pieces : pieces_) {
    std::uint32_t last = kNoIndex;
    for (const std::uint32_t g : pieces) {
      if (g == kNoIndex) continue;
      if (last != kNoIndex) {
        after_[last] = g;
        ++waiting_[g];
      }
      last = g;
    }
  }
}

double LatencyTimer::longest_path() {
  ready_.clear();
  for (std::uint32_t g = 0; g < head_.size(); ++g) {
    if (waiting_[g] == 0) ready_.push_back(g);
  }
  double latency = 0;
  std::size_t done = 0;
  for (; done < ready_.size(); ++done) {
    const std::uint32_t g = ready_[done];
    const double end = start_[g] + own_[g];
    latency = std::max(latency, end);
    const auto release = [&](std::uint32_t to) {
      start_[to] = std::max(start_[to], end);
      if (--waiting_[to] == 0) ready_.push_back(to);
    };
    for (std::uint32_t n = head_[g]; n != kNoIndex; n = next_in_group_[n]) {
      for (const std::uint32_t next : successors_[n]) {
        if (group_[next] != g) release(group_[next]);
      }
    }
    if (after_[g] != kNoIndex) release(after_[g]);
  }
  return done == head_.size() ? latency : kInfinity;
}

}  // namespace kerf::place
