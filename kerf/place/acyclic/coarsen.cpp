// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: clusters of vertices tied by expensive nets that form no cycle, without looking for
// cycles. Three rules that promise it:
// - Levels (Herrmann, Ozkaya, Ucar, Kaya, Catalyurek 2019, in a weaker form). Let t grow along
// every
//   edge, and each cluster have vertices of one t or of two that follow each other. The least t of
//   a cluster never falls along an edge, so on a cycle it stays the same, m, and every edge of the
//   cycle leads from m to m + 1, from the low side of one cluster to the high side of the next. It
//   is enough to allow no such edge.
// - Trees. In a cluster where all but one vertex have their only predecessor in the cluster, that
//   one reaches all others, and all edges enter there: a cycle of clusters would be one of
//   vertices. The same for only successors.
// - Runs of a topological order.
#include "kerf/place/acyclic/coarsen.h"

#include <algorithm>
#include <array>
#include <numeric>
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
  std::vector<double> weight;     // by vertex, a share of the whole
  double most = 1;                // of a cluster
  const Numbers* part = nullptr;  // of the level
  std::uint32_t members = 8;      // of a cluster, at most

  bool may_meet(std::uint32_t u, std::uint32_t v) const {
    return part == nullptr || (*part)[u] == (*part)[v];
  }
};

// A cluster is called like the vertex that began it.
class Clusters {
 public:
  explicit Clusters(const Joining& joining)
      : joining_(joining),
        sets_(joining.level.num_tasks()),
        weight_(joining.weight),
        members_(joining.level.num_tasks(), 1) {}
  std::uint32_t of(std::uint32_t v) { return sets_.find(v); }
  std::uint32_t members(std::uint32_t cluster) const { return members_[cluster]; }
  double weight(std::uint32_t cluster) const { return weight_[cluster]; }
  // v is alone.
  bool can_take(std::uint32_t cluster, std::uint32_t v) const {
    return joining_.may_meet(cluster, v) && members_[cluster] < joining_.members &&
           weight_[cluster] + joining_.weight[v] <= joining_.most;
  }
  void take(std::uint32_t cluster, std::uint32_t v) {
    sets_.join_to(cluster, v);
    weight_[cluster] += joining_.weight[v];
    ++members_[cluster];
  }
  std::size_t joined() const { return sets_.size() - sets_.num_sets(); }
  struct Numbering {
    Numbers of;  // by vertex; empty: none
    std::uint32_t count = 0;
  };
  Numbering numbering() { return {sets_.numbers(), static_cast<std::uint32_t>(sets_.num_sets())}; }

 private:
  const Joining& joining_;
  UnionFind sets_;
  std::vector<double> weight_;
  Numbers members_;
};

// By vertex: grows along every edge, by one along some edge into (from the end: out of) it.
std::vector<std::int64_t> find_heights(const Instance& level, bool from_end) {
  std::vector<std::int64_t> out(level.num_tasks(), 0);
  if (from_end) {
    for (std::uint32_t v = level.num_tasks(); v-- > 0;) {
      for (const std::uint32_t to : level.successors[v]) out[v] = std::min(out[v], out[to] - 1);
    }
  } else {
    for (std::uint32_t v = 0; v < level.num_tasks(); ++v) {
      for (const std::uint32_t from : level.predecessors[v]) {
        out[v] = std::max(out[v], out[from] + 1);
      }
    }
  }
  return out;
}

class LevelRule {
 public:
  LevelRule(const Joining& joining, bool from_end, Clusters& clusters)
      : joining_(joining),
        level_(joining.level),
        clusters_(clusters),
        height_(find_heights(level_, from_end)),
        low_(level_.num_tasks(), 0),
        rating_(level_.num_tasks(), 0) {}

  void run(Rng& rng) {
    Numbers visits(level_.num_tasks());
    std::iota(visits.begin(), visits.end(), 0U);
    for (std::size_t i = visits.size(); i > 1; --i) {
      std::swap(visits[i - 1], visits[rng.below(i)]);
    }
    for (const std::uint32_t v : visits) {
      if (is_alone(v)) visit(v);
    }
  }

 private:
  bool is_alone(std::uint32_t v) { return clusters_.of(v) == v && clusters_.members(v) == 1; }
  void rate(std::uint32_t u, double by) {
    if (rating_[u] == 0) candidates_.push_back(u);
    rating_[u] += by;
  }
  void rate_all(std::uint32_t v) {
    constexpr std::size_t kManyPins = 32;
    for (const std::uint32_t net : level_.nets[v]) {
      const auto pins = level_.pins[net];
      const double each = level_.cost[net] / static_cast<double>(pins.size() - 1);
      if (pins.size() <= kManyPins) {
        for (const std::uint32_t u : pins) rate(u, each);
      } else {
        rate(level_.source[net], each);
      }
    }
  }
  void visit(std::uint32_t v) {
    candidates_.clear();
    rate_all(v);
    std::uint32_t best = v;
    double best_rating = 0;
    for (const std::uint32_t u : candidates_) {
      const std::uint32_t cluster = clusters_.of(u);
      const double rating = rating_[u] / (clusters_.weight(cluster) + 1e-12);
      rating_[u] = 0;
      if (u == v || rating <= best_rating) continue;
      if (!clusters_.can_take(cluster, v) || !may_join(v, u)) continue;
      best = u;
      best_rating = rating;
    }
    if (best != v) join(v, best);
  }
  std::int64_t low_with(std::uint32_t v, std::uint32_t u) {
    return is_alone(u) ? std::min(height_[u], height_[v]) : low_[clusters_.of(u)];
  }
  bool may_join(std::uint32_t v, std::uint32_t u) {
    const std::int64_t low = low_with(v, u);
    if (height_[v] < low || height_[v] > low + 1) return false;
    if (!is_alone(u)) return is_safe(v, low, clusters_.of(u));
    if (height_[u] == height_[v] || height_[u] > low + 1) return false;
    return is_safe(v, low, v) && is_safe(u, low, u);
  }
  // No edge between the low side of one cluster and the high side of another with the same low.
  bool is_safe(std::uint32_t v, std::int64_t low, std::uint32_t own) {
    const bool is_low = height_[v] == low;
    const Rows& rows = is_low ? level_.successors : level_.predecessors;
    const std::int64_t other_side = is_low ? low + 1 : low;
    return std::ranges::none_of(rows[v], [&](std::uint32_t x) {
      const std::uint32_t cluster = clusters_.of(x);
      return height_[x] == other_side && cluster != own && clusters_.members(cluster) > 1 &&
             low_[cluster] == low;
    });
  }
  void join(std::uint32_t v, std::uint32_t u) {
    const std::int64_t low = low_with(v, u);
    const std::uint32_t cluster = clusters_.of(u);
    clusters_.take(cluster, v);
    low_[cluster] = low;
  }

  const Joining& joining_;
  const Instance& level_;
  Clusters& clusters_;
  std::vector<std::int64_t> height_;
  std::vector<std::int64_t> low_;  // by cluster of several, all of which have two heights
  std::vector<double> rating_;
  Numbers candidates_;
};

void join_only_predecessors(const Joining& joining, Clusters& clusters) {
  for (std::uint32_t v = 0; v < joining.level.num_tasks(); ++v) {
    const auto before = joining.level.predecessors[v];
    if (before.size() != 1) continue;
    const std::uint32_t cluster = clusters.of(before[0]);
    if (clusters.can_take(cluster, v)) clusters.take(cluster, v);
  }
}

void join_only_successors(const Joining& joining, Clusters& clusters) {
  for (std::uint32_t v = joining.level.num_tasks(); v-- > 0;) {
    const auto after = joining.level.successors[v];
    if (after.size() != 1) continue;
    const std::uint32_t cluster = clusters.of(after[0]);
    if (clusters.can_take(cluster, v)) clusters.take(cluster, v);
  }
}

void join_neighbours_in_order(const Joining& joining, Clusters& clusters, Rng& rng) {
  Numbers order = find_order(joining.level, TwoWayOrder::depth_first, rng.below(2) == 0, rng);
  // Parts one after the other are a topological order too.
  if (joining.part != nullptr) {
    std::ranges::stable_sort(order, {}, [&](std::uint32_t v) { return (*joining.part)[v]; });
  }
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    if (clusters.of(order[i]) == order[i] && clusters.can_take(order[i], order[i + 1])) {
      clusters.take(order[i], order[i + 1]);
      ++i;
    }
  }
}

std::vector<double> find_weights(const Instance& level, const Goal& goal) {
  std::vector<double> out(level.num_tasks(), 0);
  for (std::uint32_t v = 0; v < level.num_tasks(); ++v) {
    if (goal.total_time > 0) out[v] = level.accelerator_time[v] / goal.total_time;
    if (goal.memory_binds) out[v] = std::max(out[v], level.bytes[v] / goal.total_bytes);
  }
  return out;
}

// Clusters by the first rule that shrinks the level, from `rule` on; empty: none does.
Clusters::Numbering cluster_level(Joining& joining, std::uint32_t& rule, Rng& rng, double& work) {
  const std::uint32_t size = joining.level.num_tasks();
  const double effort = 2.0 * (static_cast<double>(size) + joining.level.num_nets());
  for (std::uint32_t tried = 0; tried < 5; ++tried, ++rule) {
    const std::uint32_t kind = tried == 4 ? 4 : rule % 4;
    joining.members = kind % 2 == 0 ? 8 : 4;
    Clusters clusters(joining);
    work += kind % 2 == 0 ? 4 * effort : effort;
    if (kind == 0 || kind == 2) LevelRule(joining, kind == 2, clusters).run(rng);
    if (kind == 1) join_only_successors(joining, clusters);
    if (kind == 3) join_only_predecessors(joining, clusters);
    if (kind == 4) join_neighbours_in_order(joining, clusters, rng);
    if (clusters.joined() > size / 8) {
      ++rule;
      return clusters.numbering();
    }
  }
  return {};
}

// The clusters must form no cycle; they are numbered in a topological order.
Contraction contract(const Instance& level, Clusters::Numbering clusters) {
  const Rows edges = between_groups(level.successors, clusters.of, clusters.count);
  const Numbers order = first_come_order(clusters.count, each_next_of(edges));
  KERF_CHECK(order.size() == clusters.count, "[partition.acyclic] clusters form a cycle");
  const Numbers place = places_in(order);
  for (std::uint32_t& c : clusters.of) c = place[c];
  return {merge_ordered(level, clusters.of, clusters.count), std::move(clusters.of)};
}

}  // namespace

std::vector<Contraction> coarsen(const Instance& base, const Goal& goal,
                                 const CoarsenOptions& options, Rng& rng, double& work) {
  std::vector<Contraction> out;
  Numbers part = options.part == nullptr ? Numbers{} : *options.part;
  auto rule = static_cast<std::uint32_t>(rng.below(4));
  const Instance* level = &base;
  while (level->num_tasks() > options.target) {
    Joining joining{*level, find_weights(*level, goal), 2.0 / options.target,
                    options.part == nullptr ? nullptr : &part};
    Clusters::Numbering clusters = cluster_level(joining, rule, rng, work);
    if (clusters.of.empty()) break;
    work += 6.0 * (static_cast<double>(level->num_tasks()) + level->num_nets());
    out.push_back(contract(*level, std::move(clusters)));
    if (options.part != nullptr) part = out.back().to_coarse(part);
    level = &out.back().instance;
  }
  return out;
}

}  // namespace kerf::place::acyclic
