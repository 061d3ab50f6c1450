// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kerf/graph/builder.h"
#include "kerf/graph/operator.h"

namespace kerf {

// Makes a graph out of the calls of a traced model. The tracer states all of them as it met them,
// and what the schemas of their operators say; which of them a graph needs is decided here.
//
//   Capture capture("mlp", /*training=*/false);
//   ValueId x = capture.builder().add_input("args.0", spec);
//   capture.add_operator(relu);
//   capture.add_call(node, {"encoder.act", "ReLU"}, {&out_spec});
//   capture.builder().set_outputs(outputs);
//   if (auto refused = capture.simplify()) ...;
//   Graph graph = capture.finish();
class Capture {
 public:
  Capture(std::string name, bool training) : builder_(std::move(name), training) {}

  // For everything but calls. Scopes that are added before the first call stay, used or not; those
  // that calls bring go with them.
  GraphBuilder& builder() { return builder_; }

  // Saying one twice keeps the first.
  void add_operator(const Operator& op) { operators_.try_emplace(op.name, op); }
  // `node.written`, `may_alias` and `random` count for calls of unknown operators, i.e. blocks that
  // run as Python. `refused`: something of it cannot be written down, and stands there as none or
  // as a scalar; that is no harm where nobody needs the call.
  std::vector<ValueId> add_call(Node node, const Scope& scope,
                                const std::vector<const TensorSpec*>& outputs,
                                bool refused = false);

  // Applies the passes, once, after all calls and outputs. Numbers of values are void afterwards.
  // The first refused call that the graph needs, counted from 0 as they were added.
  std::optional<std::size_t> simplify();

  // Verifies and freezes. Throws Error(invalid_graph).
  Graph finish();

 private:
  GraphBuilder builder_;
  Operators operators_;
  std::vector<bool> refused_;  // by call
  std::size_t num_modules_ = 0;
};

}  // namespace kerf
