// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/measured_sizes.h"

#include "kerf/profile/saved/saved.h"

namespace kerf {

Profile measured_sizes(const Graph& graph, const std::string& device_kind, bool host,
                       std::int64_t batch, bool training) {
  Profile profile;
  profile.graph_hash = graph.hash();
  profile.device_kind = device_kind;
  profile.batch = batch;
  profile.training = training;
  profile.source = Source::measured;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    profile.nodes.push_back(node_sizes(graph, NodeId(n), batch));
    profile.nodes.back().source = Source::measured;
  }
  if (!training) return profile;
  const SavedSets sets = find_saved(graph, batch, !host);
  const std::vector<Bytes> saved = saved_alone(graph, sets, batch);
  for (std::size_t n = 0; n < saved.size(); ++n) profile.nodes[n].saved = saved[n];
  return profile;
}

}  // namespace kerf
