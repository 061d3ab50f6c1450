// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/lower/coarse_units.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/lower/units.h"

namespace kerf::partition {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash ^= word + 0x9e3779b97f4a7c15ULL + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdULL;
}

// Tensors that cross a place of the order, in bytes.
std::vector<double> crossing_bytes(const Problem& problem) {
  const Graph& graph = problem.graph;
  const std::int64_t batch = problem.micro_batch();
  std::vector<double> change(graph.num_nodes() + 2);
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    const Value& value = graph.values()[v];
    if (value.scalar || value.origin != Origin::node) continue;
    const auto users = graph.consumers(ValueId{v});
    if (users.empty()) continue;
    const auto bytes = static_cast<double>(value.bytes(batch).count);
    change[value.producer.index() + 1] += bytes;
    change[users.back().index() + 1] -= bytes;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return change;
}

class OrderCutter {
 public:
  OrderCutter(const Problem& problem, std::size_t target)
      : cuttable_(cut_positions(problem.graph)), crossing_(crossing_bytes(problem)) {
    const std::size_t nodes = problem.graph.num_nodes();
    time_before_.reserve(nodes + 1);
    time_before_.push_back(0);
    for (std::size_t n = 0; n < nodes; ++n) {
      time_before_.push_back(time_before_.back() + problem.node_time(NodeId{n}).count);
    }
    // Nodes that take no time still count for something.
    const double total = time_before_.back();
    const double each = (total > 0 ? total * 0.1 : 1) / static_cast<double>(nodes);
    for (std::size_t n = 0; n <= nodes; ++n) {
      time_before_[n] += each * static_cast<double>(n);
    }
    share_ = time_before_.back() / static_cast<double>(std::max<std::size_t>(target, 1));
    chosen_.assign(nodes + 1, false);
  }

  void cut_repeat(const Repeat& repeat) {
    const std::size_t first = best_phase(repeat);
    const std::size_t count = (repeat.end() - first) / repeat.period;
    const double block = time(first, first + repeat.period);
    cut_span(repeat.start, first);
    if (block <= share_) {
      // Whole blocks, several together.
      const auto together = std::max<std::size_t>(1, static_cast<std::size_t>(share_ / block));
      for (std::size_t i = 0; i < count; i += together) choose(first + i * repeat.period);
    } else {
      const std::vector<std::size_t> inside = places_in(first, first + repeat.period);
      for (std::size_t i = 0; i < count; ++i) {
        choose(first + i * repeat.period);
        for (const std::size_t place : inside) choose(place + i * repeat.period);
      }
    }
    choose(first + count * repeat.period);
    cut_span(first + count * repeat.period, repeat.end());
  }

  void cut_span(std::size_t from, std::size_t to) {
    choose(from);
    for (const std::size_t place : places_in(from, to)) choose(place);
    choose(to);
  }

  // Run by node.
  std::vector<std::size_t> units() const {
    std::vector<std::size_t> unit_of(chosen_.size() - 1);
    std::size_t number = 0;
    for (std::size_t n = 0; n < unit_of.size(); ++n) {
      if (n > 0 && chosen_[n]) ++number;
      unit_of[n] = number;
    }
    return unit_of;
  }

 private:
  double time(std::size_t from, std::size_t to) const {
    return time_before_[to] - time_before_[from];
  }
  void choose(std::size_t place) {
    if (cuttable_[place]) chosen_[place] = true;
  }

  // Where blocks had best begin: looked for once, in the middle, where all is as it mostly is.
  std::size_t best_phase(const Repeat& repeat) const {
    const std::size_t middle = repeat.start + repeat.period * ((repeat.count - 1) / 2);
    std::size_t best = middle;
    for (std::size_t place = middle; place < middle + repeat.period; ++place) {
      if (cuttable_[place] && (!cuttable_[best] || crossing_[place] < crossing_[best])) {
        best = place;
      }
    }
    return repeat.start + (best - middle);
  }

  // Ends of pieces of about a share each, both ends left out.
  std::vector<std::size_t> places_in(std::size_t from, std::size_t to) const {
    std::vector<std::size_t> places;
    if (from >= to) return places;
    const double pieces = std::ceil(time(from, to) / share_);
    const double piece = time(from, to) / pieces;
    std::size_t place = from + 1;
    for (double i = 1; place < to; ++i) {
      const double until = time_before_[from] + piece * i;
      std::size_t best = to;
      for (; place < to && time_before_[place] <= until; ++place) {
        if (cuttable_[place] && (best == to || crossing_[place] < crossing_[best])) best = place;
      }
      if (best < to) places.push_back(best);
      if (i > pieces) ++place;
    }
    return places;
  }

  std::vector<bool> cuttable_;
  std::vector<double> crossing_;  // bytes, by place
  std::vector<double> time_before_;
  double share_ = 0;
  std::vector<bool> chosen_;  // by place
};

}  // namespace

std::vector<std::uint64_t> node_signatures(const Graph& graph) {
  std::vector<std::uint64_t> signatures;
  signatures.reserve(graph.num_nodes());
  const std::int64_t batch = std::max<std::int64_t>(graph.data().example_batch, 1);
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.nodes()[n];
    std::uint64_t hash = std::hash<std::string>{}(node.op);
    for (const ValueId id : graph.inputs_of(NodeId{n})) {
      const Value& value = graph.value(id);
      hash = mix(hash, static_cast<std::uint64_t>(value.origin));
      hash = mix(hash, value.scalar ? 1 : static_cast<std::uint64_t>(value.bytes(batch).count));
    }
    for (const ValueId id : node.outputs) {
      const bool sized = id.valid() && !graph.value(id).scalar;
      hash = mix(hash, sized ? static_cast<std::uint64_t>(graph.value(id).bytes(batch).count) : 2);
    }
    signatures.push_back(hash);
  }
  return signatures;
}

std::vector<std::size_t> coarse_units(const Problem& problem, std::size_t target) {
  OrderCutter cutter(problem, target);
  std::size_t done = 0;
  for (const Repeat& repeat : find_repeats(node_signatures(problem.graph))) {
    cutter.cut_span(done, repeat.start);
    cutter.cut_repeat(repeat);
    done = repeat.end();
  }
  cutter.cut_span(done, problem.graph.num_nodes());
  return cutter.units();
}

std::vector<std::size_t> open_borders(const Problem& problem,
                                      const std::vector<std::size_t>& unit_of,
                                      const std::vector<DeviceId>& device_of_unit,
                                      std::size_t most) {
  const std::size_t count = device_of_unit.size();
  std::vector<std::size_t> size(count);
  for (const std::size_t unit : unit_of) ++size[unit];
  std::vector<bool> open(count);
  std::size_t let_out = 0;
  for (std::size_t u = 0; u + 1 < count; ++u) {
    if (device_of_unit[u] == device_of_unit[u + 1]) continue;
    for (const std::size_t each : {u, u + 1}) {
      if (open[each] || let_out + size[each] > most) continue;
      open[each] = true;
      let_out += size[each];
    }
  }
  // Units are numbered by their first node: what is glued stays one.
  const std::vector<std::size_t> fine = indivisible_units(problem.graph);
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> of_run(count, kNone);
  std::vector<std::size_t> of_fine(unit_of.size(), kNone);
  std::vector<std::size_t> out(unit_of.size());
  std::size_t next = 0;
  for (std::size_t n = 0; n < unit_of.size(); ++n) {
    std::size_t& number = open[unit_of[n]] ? of_fine[fine[n]] : of_run[unit_of[n]];
    if (number == kNone) number = next++;
    out[n] = number;
  }
  return out;
}

}  // namespace kerf::partition
