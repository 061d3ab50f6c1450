// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: clusters of vertices that form no cycle, without looking for cycles. Two rules that
// promise it; linear time each. What nets cost does not count here: ratings by it, tried with the
// levels of Herrmann, Ozkaya, Ucar, Kaya and Catalyurek (2019), cut no better.
// - Trees. In a cluster where all but one vertex have their only predecessor in the cluster, that
//   one reaches all others, and all edges enter there: a cycle of clusters would be one of
//   vertices. The same for only successors.
// - Runs of a topological order.
#include "kerf/place/acyclic/coarsen.h"

#include <algorithm>
#include <utility>

#include "kerf/base/error.h"
#include "kerf/base/topological_order.h"
#include "kerf/base/union_find.h"
#include "kerf/place/order/two_way_orders.h"

namespace kerf::place::acyclic {
namespace {

// How vertices of a level may join.
struct Joining {
  const Instance& level;
  std::vector<double> weight;   // by vertex, a share of the whole
  double most = 1;              // of a cluster
  const Split* part = nullptr;  // of the level

  bool may_meet(UnitId u, UnitId v) const { return part == nullptr || (*part)[u] == (*part)[v]; }
};

// A cluster is called like the vertex that began it.
class Clusters {
 public:
  explicit Clusters(const Joining& joining)
      : joining_(joining),
        sets_(joining.level.num_units()),
        weight_(joining.weight),
        members_(joining.level.num_units(), 1) {}
  UnitId of(UnitId v) { return UnitId{sets_.find(v)}; }
  // v is alone.
  bool can_take(UnitId cluster, UnitId v) const {
    return joining_.may_meet(cluster, v) && members_[cluster] < kMostMembers &&
           weight_[cluster] + joining_.weight[v] <= joining_.most;
  }
  void take(UnitId cluster, UnitId v) {
    sets_.join_to(cluster, v);
    weight_[cluster] += joining_.weight[v];
    ++members_[cluster];
  }
  std::size_t joined() const { return sets_.size() - sets_.num_sets(); }
  struct Numbering {
    std::vector<UnitId> of;  // by vertex; empty: none
    std::uint32_t count = 0;
  };
  Numbering numbering() {
    return {sets_.numbers<UnitId>(), static_cast<std::uint32_t>(sets_.num_sets())};
  }

 private:
  static constexpr std::uint32_t kMostMembers = 4;
  const Joining& joining_;
  UnionFind sets_;
  std::vector<double> weight_;
  Numbers members_;
};

void join_only_predecessors(const Joining& joining, Clusters& clusters) {
  for (UnitId v{0}; v < joining.level.num_units(); ++v) {
    const auto before = joining.level.predecessors[v];
    if (before.size() != 1) continue;
    const UnitId cluster = clusters.of(before[0]);
    if (clusters.can_take(cluster, v)) clusters.take(cluster, v);
  }
}

void join_only_successors(const Joining& joining, Clusters& clusters) {
  for (UnitId v{joining.level.num_units()}; v-- > 0;) {
    const auto after = joining.level.successors[v];
    if (after.size() != 1) continue;
    const UnitId cluster = clusters.of(after[0]);
    if (clusters.can_take(cluster, v)) clusters.take(cluster, v);
  }
}

void join_neighbours_in_order(const Joining& joining, Clusters& clusters, Rng& rng) {
  Order order = find_order(joining.level, TwoWayOrder::depth_first, rng.below(2) == 0, rng);
  // Parts one after the other are a topological order too.
  if (joining.part != nullptr) {
    std::ranges::stable_sort(order, {}, [&](UnitId v) { return (*joining.part)[v]; });
  }
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    if (clusters.of(order[i]) == order[i] && clusters.can_take(order[i], order[i + 1])) {
      clusters.take(order[i], order[i + 1]);
      ++i;
    }
  }
}

std::vector<double> find_weights(const Instance& level, const Goal& goal) {
  std::vector<double> out(level.num_units(), 0);
  for (UnitId v{0}; v < level.num_units(); ++v) {
    if (goal.total_time > 0) out[v] = level.accelerator_time[v] / goal.total_time;
    if (goal.memory_binds) out[v] = std::max(out[v], level.bytes[v] / goal.total_bytes);
  }
  return out;
}

// Clusters by the first rule that shrinks the level, trees from `rule` on, then runs; empty: none
// does.
Clusters::Numbering cluster_level(const Joining& joining, std::uint32_t& rule, Rng& rng,
                                  double& work) {
  const std::uint32_t size = joining.level.num_units();
  const double effort = 2.0 * (static_cast<double>(size) + joining.level.num_nets());
  for (std::uint32_t tried = 0; tried < 3; ++tried, ++rule) {
    Clusters clusters(joining);
    work += effort;
    if (tried == 2) {
      work += 3 * effort;
      join_neighbours_in_order(joining, clusters, rng);
    } else if (rule % 2 == 0) {
      join_only_successors(joining, clusters);
    } else {
      join_only_predecessors(joining, clusters);
    }
    if (clusters.joined() > size / 8) {
      ++rule;
      return clusters.numbering();
    }
  }
  return {};
}

// The clusters must form no cycle; they are numbered in a topological order.
Contraction contract(const Instance& level, Clusters::Numbering clusters) {
  const UnitRows edges = between_groups(level.successors, clusters.of, clusters.count);
  const Order order = first_come_order<UnitId>(clusters.count, each_next_of(edges));
  KERF_CHECK(order.size() == clusters.count, "[partition.acyclic] clusters form a cycle");
  const Numbers place = places_in(order);
  for (UnitId& c : clusters.of) c = UnitId{place[c]};
  return {merge_ordered(level, clusters.of, clusters.count), std::move(clusters.of)};
}

}  // namespace

std::vector<Contraction> coarsen(const Instance& base, const Goal& goal,
                                 const CoarsenOptions& options, Rng& rng, double& work) {
  std::vector<Contraction> out;
  Split part = options.part == nullptr ? Split{} : *options.part;
  auto rule = static_cast<std::uint32_t>(rng.below(4) / 2);
  const Instance* level = &base;
  while (level->num_units() > options.target) {
    const Joining joining{*level, find_weights(*level, goal), 2.0 / options.target,
                          options.part == nullptr ? nullptr : &part};
    Clusters::Numbering clusters = cluster_level(joining, rule, rng, work);
    if (clusters.of.empty()) break;
    work += 6.0 * (static_cast<double>(level->num_units()) + level->num_nets());
    out.push_back(contract(*level, std::move(clusters)));
    if (options.part != nullptr) part = out.back().to_coarse(part);
    level = &out.back().instance;
  }
  return out;
}

}  // namespace kerf::place::acyclic
