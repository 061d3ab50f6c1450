// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The original's swaps, faults K1 to K5 kept: nodes may end up in two partitions or in none, so
// everything is computed on plain sets. Its order of a partition's nodes (K6) is the order in which
// they were put in.
#include <cmath>
#include <limits>

#include "kerf/base/infinity.h"
#include "kerf/partition/fx/compat.h"
#include "kerf/partition/fx/size.h"

namespace kerf::partition::fx::compat {
namespace {

constexpr OpIndex kNobody = static_cast<OpIndex>(-1);

class Swaps {
 public:
  Swaps(const Request& request, Answer& answer)
      : graph_(request.graph),
        devices_(request.devices),
        rate_(request.rate),
        answer_(answer),
        partitions_(answer.partitions) {}

  void run() {
    double cost = graph_latency(graph_, partitions_, latencies(graph_, partitions_), rate_);
    Pair best;
    for (const OpIndex node : graph_.ops()) {
      const auto home = static_cast<std::size_t>(answer_.node_to_partition[node]);  // stale: K3
      for (std::size_t other = 0; other < partitions_.size(); ++other) {
        if (other == home) continue;
        Pair tried{node, kNobody, home, other};
        const double last = try_all(tried);
        if (last < cost) {
          cost = last;
          best = tried;
        }
      }
      if (best.first != kNobody) {
        swap(best.first, best.second, best.from, best.to);
        reorganize(graph_, partitions_);
        map();
      }
    }
    reorganize(graph_, partitions_);
    map();
  }

 private:
  struct Pair {
    OpIndex first = kNobody;
    OpIndex second = kNobody;
    std::size_t from = 0;
    std::size_t to = 0;
  };

  void map() { map_to_devices(graph_, partitions_, devices_, true); }
  void reset_devices() {
    for (Partition& partition : partitions_) partition.device_ids.clear();
  }

  void swap(OpIndex a, OpIndex b, std::size_t from, std::size_t to) {
    std::vector<OpIndex>& p0 = partitions_[from].nodes;
    std::vector<OpIndex>& p1 = partitions_[to].nodes;
    if (a != kNobody) {
      remove_node(graph_, p0, a);
      add_node(graph_, p1, a);
    }
    if (b != kNobody) {
      add_node(graph_, p0, b);
      remove_node(graph_, p1, b);
    }
    partitions_[from].used_bytes = used_bytes(graph_, p0);
    partitions_[to].used_bytes = used_bytes(graph_, p1);
  }

  // Leaves the partner of the cheapest try in `pair`; the cost is that of the last try (K1).
  double try_all(Pair& pair) {
    std::vector<OpIndex> partners;
    for (const OpIndex n : partitions_[pair.to].nodes) {
      if (!graph_.node(n).leaf) partners.push_back(n);
    }
    partners.push_back(kNobody);
    double least = kInfinity;
    double cost = kInfinity;
    const OpIndex node = pair.first;
    pair.first = kNobody;
    for (const OpIndex partner : partners) {
      cost = try_swap(node, partner, pair.from, pair.to);
      if (!(cost < least)) continue;
      least = cost;
      pair.first = node;
      pair.second = partner;
    }
    return cost;
  }

  double try_swap(OpIndex a, OpIndex b, std::size_t from, std::size_t to) {
    double cost = kInfinity;
    swap(a, b, from, to);
    reorganize(graph_, partitions_);
    if (!depends_on_itself(partitions_, from) && !depends_on_itself(partitions_, to)) {
      reset_devices();
      const std::vector<double> overall = latencies(graph_, partitions_);
      if (map_to_devices(graph_, partitions_, devices_, true)) {
        cost = graph_latency(graph_, partitions_, overall, rate_);
      }
    }
    swap(b, a, from, to);
    reorganize(graph_, partitions_);
    reset_devices();
    map();
    return cost;
  }

  const OpGraph& graph_;
  std::span<const Device> devices_;
  double rate_;
  Answer& answer_;
  std::vector<Partition>& partitions_;
};

}  // namespace

Answer kl(const Request& request) {
  Answer answer = compat::size(request);
  Swaps(request, answer).run();
  return answer;
}

}  // namespace kerf::partition::fx::compat
