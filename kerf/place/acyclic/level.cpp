// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/level.h"

#include <algorithm>
#include <numeric>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/base/topological_order.h"

namespace kerf::place::acyclic {
namespace {

// Members of each cluster, ascending.
Rows members_of(std::span<const std::uint32_t> cluster, std::uint32_t count) {
  Rows single;
  for (const std::uint32_t c : cluster) single.append({&c, 1});
  return transpose(single, count);
}

// Clusters by their first vertex, without gaps.
std::uint32_t number_clusters(std::span<const std::uint32_t> cluster, Numbers& out) {
  Numbers number(cluster.size(), kNoIndex);
  out.resize(cluster.size());
  std::uint32_t count = 0;
  for (std::size_t v = 0; v < cluster.size(); ++v) {
    std::uint32_t& n = number[cluster[v]];
    if (n == kNoIndex) n = count++;
    out[v] = n;
  }
  return count;
}

Rows lift_edges(const Level& level, const Rows& members, std::span<const std::uint32_t> coarse_of) {
  Numbers seen(members.size(), kNoIndex);
  Numbers row;
  Rows out;
  for (std::uint32_t c = 0; c < members.size(); ++c) {
    row.clear();
    seen[c] = c;
    for (const std::uint32_t v : members[c]) {
      for (const std::uint32_t to : level.successors[v]) {
        const std::uint32_t d = coarse_of[to];
        if (seen[d] == c) continue;
        seen[d] = c;
        row.push_back(d);
      }
    }
    out.append(row);
  }
  return out;
}

// number[cluster] along a topological order.
Numbers topological_numbers(const Rows& successors) {
  const Numbers order = first_come_order(successors.size(), each_next_of(successors));
  KERF_CHECK(order.size() == successors.size(), "[partition.acyclic] clusters form a cycle");
  return places_in(order);
}

// Finds nets that were seen before.
class NetTable {
 public:
  NetTable(const Level& level, std::uint32_t most, bool by_source)
      : level_(level), by_source_(by_source) {
    std::size_t slots = 16;
    while (slots < std::size_t{2} * most) slots *= 2;
    slots_.assign(slots, kNoIndex);
  }
  // The net with these pins, or where to put its number.
  std::uint32_t& find(std::span<const std::uint32_t> pins, std::uint32_t source) {
    std::uint64_t hash = by_source_ ? source + std::uint64_t{1} : 0;
    for (const std::uint32_t pin : pins) {
      hash = (hash ^ pin) * 0x9e3779b97f4a7c15ULL;
      hash ^= hash >> 29;
    }
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at] != kNoIndex && !is_equal(slots_[at], pins, source)) at = (at + 1) & mask;
    return slots_[at];
  }

 private:
  bool is_equal(std::uint32_t net, std::span<const std::uint32_t> pins,
                std::uint32_t source) const {
    return (!by_source_ || level_.source[net] == source) &&
           std::ranges::equal(level_.pins[net], pins);
  }
  const Level& level_;
  bool by_source_;
  Numbers slots_;
};

void lift_nets(const Level& fine, std::span<const std::uint32_t> coarse_of, bool by_source,
               Level& out) {
  NetTable table(out, fine.num_nets(), by_source);
  Numbers pins;
  for (std::uint32_t net = 0; net < fine.num_nets(); ++net) {
    pins.clear();
    for (const std::uint32_t pin : fine.pins[net]) pins.push_back(coarse_of[pin]);
    std::ranges::sort(pins);
    pins.erase(std::unique(pins.begin(), pins.end()), pins.end());
    if (pins.size() < 2) continue;
    const std::uint32_t source = coarse_of[fine.source[net]];
    std::uint32_t& known = table.find(pins, source);
    if (known != kNoIndex) {
      out.cost[known] += fine.cost[net];
      continue;
    }
    known = out.num_nets();
    out.pins.append(pins);
    out.source.push_back(source);
    out.cost.push_back(fine.cost[net]);
  }
  out.nets = transpose(out.pins, out.size());
}

Level lift(const Level& fine, std::span<const std::uint32_t> coarse_of, std::uint32_t count,
           bool by_source) {
  Level out;
  out.time.assign(count, 0);
  out.bytes.assign(count, 0);
  for (std::uint32_t v = 0; v < fine.size(); ++v) {
    out.time[coarse_of[v]] += fine.time[v];
    out.bytes[coarse_of[v]] += fine.bytes[v];
  }
  out.successors = lift_edges(fine, members_of(coarse_of, count), coarse_of);
  out.predecessors = transpose(out.successors, count);
  lift_nets(fine, coarse_of, by_source, out);
  return out;
}

}  // namespace

Level to_level(const Instance& groups) {
  Level out;
  out.time = groups.accelerator_time;
  out.bytes = groups.bytes;
  out.successors = groups.successors;
  out.predecessors = groups.predecessors;
  out.nets = groups.nets;
  out.pins = groups.pins;
  out.source = groups.source;
  out.cost = groups.cost;
  return out;
}

Contraction contract(const Level& level, std::span<const std::uint32_t> cluster, bool by_source) {
  Contraction out;
  const std::uint32_t count = number_clusters(cluster, out.coarse_of);
  const Numbers number =
      topological_numbers(lift_edges(level, members_of(out.coarse_of, count), out.coarse_of));
  for (std::uint32_t& c : out.coarse_of) c = number[c];
  out.level = lift(level, out.coarse_of, count, by_source);
  return out;
}

Contraction contract_runs(const Level& level, std::span<const std::uint32_t> run, bool by_source) {
  Contraction out;
  out.coarse_of.assign(run.begin(), run.end());
  const std::uint32_t count = run.empty() ? 0 : *std::ranges::max_element(run) + 1;
  out.level = lift(level, out.coarse_of, count, by_source);
  return out;
}

}  // namespace kerf::place::acyclic
