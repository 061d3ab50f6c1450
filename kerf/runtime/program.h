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
};

// A value that leaves the stage. Sent when the stage has finished the micro-batch, so that writes
// through another name inside the stage are seen by the receivers.
struct Send {
  ValueId value;
  std::vector<StageId> to;  // ascending
  bool to_caller = false;   // it is a result of the model
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
  // Received values whose memory this stage writes, grouped by memory. Each group is copied first,
  // all its views rebuilt over one copy: other stages may be reading the original.
  std::vector<std::vector<ValueId>> copied;
};

// One program a stage of `plan`. Throws Error(invalid_plan) when the plan was made for another
// graph or leaves a node out. Steps follow the order of the graph.
std::vector<Program> compile_programs(const Graph& graph, const Plan& plan);

}  // namespace kerf
