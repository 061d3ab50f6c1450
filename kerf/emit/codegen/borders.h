// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What stands at the borders of stages: values that go from one to another, weights and their
// owners.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"

namespace kerf::codegen {

// B from the size of a tensor that a stage is given: (x.shape[dim] - offset) // factor.
struct BatchSource {
  ValueId value;
  std::size_t dim = 0;
  std::int64_t offset = 0;
  std::int64_t factor = 1;
};

// One stage, seen from outside.
struct Border {
  StageId stage;
  std::vector<NodeId> nodes;           // ascending
  std::vector<ValueId> takes;          // inputs, results of other stages, weights of others
  std::vector<ValueId> gives;          // to other stages and to the caller
  std::vector<std::size_t> owns;       // numbers of weights: those it is the first to use
  std::vector<std::size_t> constants;  // numbers of weights: those it uses
  std::vector<std::string> blocks;     // paths of modules that run as they are
  // Taken values whose memory it writes, by memory: other stages may be reading the original.
  std::vector<std::vector<ValueId>> copied;
  bool uses_batch = false;
  std::optional<BatchSource> batch;  // none: it is told
};

// A tensor of a graph, and who has to do with it.
struct Travel {
  int from = -1;        // the stage that makes or owns it; -1: the caller
  std::vector<int> to;  // ascending; -1: the caller
  // By entry of `to`: the stage that hands it over. `from`, or with relays a stage in between.
  std::vector<int> via;

  // Those of `to` that get it from a stage; ascending.
  std::vector<int> given_by(int stage) const;
  // Who hands it to a stage.
  int giver_of(int stage) const;
};

struct Borders {
  std::vector<Border> stages;
  std::vector<Travel> travels;  // by value
};

// Throws Error(invalid_plan) where stages could not run one after the other, and
// Error(unsupported_operator) for what cannot be shared between stages. A weight that several
// stages use belongs to the first of them, which gives it to the others as it gives its results:
// gradients come back the same way, and there is one owner.
//
// With `relay`, a value that several later stages use goes from each of them to the next, unless
// that one writes its memory; without, its maker gives it to all.
Borders find_borders(const Graph& graph, const Plan& plan, bool relay = false);

}  // namespace kerf::codegen
