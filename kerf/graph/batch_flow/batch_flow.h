// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Does a model treat the samples of a batch separately, so that a batch may be cut into
// micro-batches? Followed through the graph, not tried: sizes are expressions in B, and each
// operator has a rule that says what becomes of the dimension that holds the samples.
//
//   const BatchFlow flow = analyse_batch(graph);
//   const BatchVerdict verdict = judge_batch(graph, flow);
//   if (verdict.kind == Independence::mixes) refuse(verdict.reason);
//
// "Proved" is meant: the values of a sample are the same beside any other samples, at any place in
// a batch of any size. What has no rule is unknown, never proved.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "kerf/graph/batch_flow/batch_state.h"
#include "kerf/graph/graph.h"

namespace kerf {

enum class OpaqueBlocks : std::uint8_t {
  unknown,   // they run as Python and are not looked into
  separate,  // the user says that they treat samples separately
};

struct BatchFlow {
  std::vector<BatchState> states;    // of each value, when the graph has run
  std::vector<NodeId> batch_norms;   // that take statistics of the batch, in train mode
  std::vector<NodeId> not_followed;  // the operators that made a value unknown, ascending
};

// Nearly linear in nodes and edges.
BatchFlow analyse_batch(const Graph& graph, OpaqueBlocks opaque = OpaqueBlocks::unknown);

enum class Independence : std::uint8_t { proved, unknown, opaque, mixes };
std::string_view to_string(Independence kind);

struct BatchVerdict {
  Independence kind = Independence::proved;
  NodeId by;           // the operator that mixes or that could not be followed
  std::string reason;  // "node 'norm' (aten.norm.Scalar) in Head 'head', model.py:12 runs over ..."
  std::string where;   // what it reaches: "output 'logits'", "buffer 'history'"
  bool of_state = false;   // that is no output: a tensor that lives longer than the call
  std::size_t others = 0;  // further operators that could not be followed
  // Modules that normalise by statistics of the batch, as they do in train mode: each micro-batch
  // has its own. That is how pipelines train, so it is no mixing, but the numbers are others.
  std::vector<std::string> batch_norms;
};

// On the results of one batch. Those without a batch dimension are judged by what they are made of:
// a mean of numbers that the samples have for themselves is proved, and runtime/batching.h asks how
// to put it together. State that micro-batches may leave as something else counts as mixing
// (batch_flow/state_writes.h).
struct JudgedOutputs {
  std::set<std::string> left_out;  // by path
  std::set<std::string> weighed;   // the user says what micro-batches count: Sources::direct
};
BatchVerdict judge_batch(const Graph& graph, const BatchFlow& flow,
                         const JudgedOutputs& which = {});

}  // namespace kerf
