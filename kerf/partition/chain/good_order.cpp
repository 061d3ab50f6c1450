// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/good_order.h"

#include <algorithm>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/chain/coarse.h"
#include "kerf/partition/chain/lineup.h"

namespace kerf::partition {
namespace {

using Order = std::vector<DeviceId>;

double memory_of(const Cluster& cluster, DeviceId device) {
  const int group = cluster.device(device).memory_group;
  if (!cluster.group_limited(group)) return kInfinity;
  return static_cast<double>(cluster.group_limit(group).count);
}

std::vector<Order> sorted_orders(const Cluster& cluster) {
  std::vector<Order> orders;
  const auto sorted = [&](auto&& key) {
    Order& order = orders.emplace_back(given_order(cluster));
    std::stable_sort(order.begin(), order.end(),
                     [&](DeviceId a, DeviceId b) { return key(a) > key(b); });
  };
  sorted([&](DeviceId device) { return cluster.device(device).speed; });
  sorted([&](DeviceId device) { return -cluster.device(device).speed; });
  sorted([&](DeviceId device) { return memory_of(cluster, device); });
  sorted([&](DeviceId device) { return cluster.device(device).host ? 1 : 0; });
  sorted([&](DeviceId device) { return cluster.device(device).host ? 0 : 1; });
  return orders;
}

class Climb {
 public:
  explicit Climb(const ChainInput& input) : input_(input), positions_(input.cuttable) {
    constexpr std::size_t kPositions = 128;
    constexpr std::size_t kWork = 200'000'000;
    const std::size_t nodes = input.intervals.num_nodes();
    if (nodes > 2 * kPositions) {
      positions_ = coarse_positions(input.intervals, input.cuttable, kPositions);
    }
    trials_left_ = std::clamp<std::size_t>(kWork / ((nodes + 1) * kPositions), 16, 256);
  }

  // Is it better than the best so far?
  bool consider(const Order& order) {
    if (deadline_passed() && !best_.empty()) trials_left_ = 0;
    if (trials_left_ == 0) return false;
    --trials_left_;
    const OrderScore score = score_order(input_, order, positions_);
    if (!best_.empty() && !(score < score_)) return false;
    score_ = score;
    best_ = order;
    return true;
  }

  void swap_neighbours() {
    bool better = true;
    while (better && trials_left_ > 0) {
      better = false;
      for (std::size_t p = 0; p + 1 < best_.size(); ++p) {
        if (interchangeable(input_.problem.cluster, best_[p], best_[p + 1])) continue;
        Order order = best_;
        std::swap(order[p], order[p + 1]);
        better |= consider(order);
      }
    }
  }

  const Order& best() const { return best_; }

 private:
  const ChainInput& input_;
  std::vector<bool> positions_;
  std::size_t trials_left_;
  OrderScore score_;
  Order best_;
};

}  // namespace

std::vector<DeviceId> find_good_order(const ChainInput& input,
                                      std::vector<std::vector<DeviceId>> starts) {
  Climb climb(input);
  for (Order& order : sorted_orders(input.problem.cluster)) starts.push_back(std::move(order));
  for (const Order& order : starts) climb.consider(order);
  climb.swap_neighbours();
  return climb.best();
}

}  // namespace kerf::partition
