// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/op_graph.h"

#include <fmt/format.h>

#include "kerf/base/error.h"

namespace kerf::partition::fx {

OpGraph::OpGraph(std::vector<OpNode> nodes) : nodes_(std::move(nodes)) {
  Rows inputs;
  for (OpIndex n = 0; n < nodes_.size(); ++n) {
    if (!nodes_[n].leaf) ops_.push_back(n);
    for (const OpIndex input : nodes_[n].inputs) {
      if (input < n) continue;
      throw Error(ErrorKind::invalid_graph,
                  fmt::format("[partition.fx] node '{}' reads node {} of {}; expected one that "
                              "comes before it",
                              nodes_[n].name, input, nodes_.size()));
    }
    inputs.append(nodes_[n].inputs);
  }
  users_ = transpose(inputs, inputs.size());
}

}  // namespace kerf::partition::fx
