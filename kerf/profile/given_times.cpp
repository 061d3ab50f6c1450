// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/given_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kerf/base/error.h"
#include "kerf/base/nearest_name.h"
#include "kerf/base/quantity.h"
#include "kerf/graph/has_backward.h"

namespace kerf {
namespace {

[[noreturn]] void refuse_time(const std::string& message) {
  throw Error(ErrorKind::invalid_argument, "[profile.with_given_times] " + message);
}

void refuse_unknown(const Graph& graph, const std::map<std::string, Nanoseconds>& times) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.push_back(node.name);
  for (const auto& [name, time] : times) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    refuse_time(fmt::format("a time for '{}'; expected the name of a node of graph '{}'{}", name,
                            graph.name(), nearest_name_hint(name, names)));
  }
}

// How much of a node's time is its forward.
double forward_share(const NodeCost& cost, bool has_backward) {
  if (!has_backward) return 1;
  const Nanoseconds sum = cost.forward + cost.backward;
  constexpr double kUsual = 1.0 / 3;
  return sum.count > 0 ? cost.forward / sum : kUsual;
}

void give_time(NodeCost& cost, Nanoseconds time, bool has_backward) {
  const double share = forward_share(cost, has_backward);
  const double of_weights = cost.backward.count > 0 ? cost.backward_weights / cost.backward : 0;
  cost.forward = time * share;
  cost.backward = time * (1 - share);
  cost.backward_weights = cost.backward * of_weights;
  cost.forward_spread = cost.backward_spread = {};
  cost.forward_under_load = cost.backward_under_load = {};
  cost.forward_apart = cost.backward_apart = {};
  cost.samples = 0;
  cost.source = Source::given;
}

}  // namespace

Profile with_given_times(Profile profile, const Graph& graph,
                         const std::map<std::string, Nanoseconds>& times) {
  check_profile_matches(profile, graph);
  std::size_t found = 0;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const auto given = times.find(graph.nodes()[n].name);
    if (given == times.end()) continue;
    ++found;
    if (!is_quantity(given->second.count)) {
      refuse_time(fmt::format("node '{}' takes {} ns; expected {}", given->first,
                              given->second.count, kQuantityText));
    }
    const bool backward = profile.training && has_backward(graph, NodeId{n});
    give_time(profile.nodes[n], given->second, backward);
  }
  if (found != times.size()) refuse_unknown(graph, times);
  if (found == profile.nodes.size()) profile.source = Source::given;
  return profile;
}

}  // namespace kerf
