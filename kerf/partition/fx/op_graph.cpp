// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/op_graph.h"

#include <fmt/format.h>

#include "kerf/base/error.h"

namespace kerf::partition::fx {

OpGraph::OpGraph(std::vector<OpNode> nodes) : nodes_(std::move(nodes)) {
  user_begin_.assign(nodes_.size() + 1, 0);
  for (OpIndex n = 0; n < nodes_.size(); ++n) {
    if (!nodes_[n].leaf) ops_.push_back(n);
    for (const OpIndex input : nodes_[n].inputs) {
      if (input >= n) {
        throw Error(ErrorKind::invalid_graph,
                    fmt::format("[partition.fx] node '{}' reads node {} of {}; expected one that "
                                "comes before it",
                                nodes_[n].name, input, nodes_.size()));
      }
      ++user_begin_[input + 1];
    }
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n) user_begin_[n + 1] += user_begin_[n];
  users_.resize(user_begin_.back());
  std::vector<std::size_t> next(user_begin_.begin(), user_begin_.end() - 1);
  for (OpIndex n = 0; n < nodes_.size(); ++n) {
    for (const OpIndex input : nodes_[n].inputs) users_[next[input]++] = n;
  }
}

}  // namespace kerf::partition::fx
