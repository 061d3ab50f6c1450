// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What a stage does, as a flat list: immutable, shared by all runs, free of any backend.
#pragma once

#include <vector>

#include "kerf/base/id.h"
#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"

namespace kerf {

// One node, and the values that nobody in this stage needs once it has run.
struct Step {
  NodeId node;
  std::vector<ValueId> dead;
  std::uint32_t block = 0;  // training: computed again in backward, with the others of this number
};

// A value that leaves the stage. Sent when the stage has finished the micro-batch, so that writes
// through another name inside the stage are seen by the receivers.
struct Send {
  ValueId value;
  std::vector<StageId> to;  // ascending
  bool to_caller = false;   // it is a result of the model
};

// What a backward waits for or gives, and the stage at the other end.
struct Exchange {
  ValueId value;  // invalid: nothing but the word that it has run
  StageId stage;
  friend auto operator<=>(const Exchange&, const Exchange&) = default;
};

struct Program {
  StageId stage;
  DeviceId device;
  std::vector<Step> steps;
  std::vector<ValueId> received;  // from other stages, ascending
  std::vector<StageId> senders;   // of each received value
  std::vector<ValueId> inputs;    // of the graph, used here, ascending
  std::vector<ValueId> weights;   // used here, ascending
  std::vector<Send> sends;        // by value
  // Stages that it comes after or before without a value: one reads memory of the caller, or a
  // buffer, that the other writes. Ascending.
  std::vector<StageId> order_after;
  std::vector<StageId> order_before;
  // Received values whose memory this stage writes, grouped by memory. Each group is copied first,
  // all its views rebuilt over one copy: other stages may be reading the original.
  std::vector<std::vector<ValueId>> copied;

  // Training. Gradients by value, then by the other stage.
  bool has_backward = false;
  std::vector<Exchange> gradients_in;   // that its backward waits for
  std::vector<Exchange> gradients_out;  // that it gives: of values that it received
  // The last stage that makes a result of the model is where the loss is made, before its backward:
  // results of the other stages, of which it gives the gradients back.
  bool makes_loss = false;
  std::vector<Exchange> results_in;
};

// How many parcels a task of the program waits for.
std::size_t num_received(const Program& program, Phase phase);

// One program a stage of `plan`. Throws Error(invalid_plan) when the plan was made for another
// graph or leaves a node out. Steps follow the order of the graph.
std::vector<Program> compile_programs(const Graph& graph, const Plan& plan);

}  // namespace kerf
