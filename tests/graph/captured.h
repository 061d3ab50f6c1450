// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Captured calls from text, for tests of the passes that make a graph of them.
#pragma once

#include <numeric>
#include <string>

#include "kerf/graph/passes/captured.h"
#include "kerf/graph/renumber.h"
#include "kerf/graph/text.h"

namespace kerf {

inline Parameter parameter(std::string name) { return {std::move(name), std::nullopt}; }
inline Parameter optional_parameter(std::string name) { return {std::move(name), Argument{}}; }
inline Parameter view_of(std::string name) { return {std::move(name), {}, false, true}; }
inline Parameter changed(std::string name) { return {std::move(name), {}, true, true}; }

// What PyTorch's schemas say of the operators below.
inline Operators some_operators() {
  const std::vector<Parameter> dropout = {parameter("input"), parameter("p"), parameter("train")};
  const std::vector<Parameter> norm = {
      parameter("input"),        parameter("weight"),      parameter("bias"),
      parameter("running_mean"), parameter("running_var"), parameter("training"),
      parameter("momentum"),     parameter("eps"),         parameter("cudnn_enabled")};
  const Operator all[] = {
      {"aten.add_.Tensor", {changed("self"), parameter("other")}, false, true},
      {"aten.alpha_dropout.default", dropout, true, true},
      {"aten.batch_norm.default", norm, false, true},
      {"aten.contiguous.default",
       {view_of("self"), optional_parameter("memory_format")},
       false,
       true},
      {"aten.detach.default", {view_of("self")}, false, true},
      {"aten.detach_.default", {changed("self")}, false, true},
      {"aten.dropout.default", dropout, true, true},
      {"aten.lift_fresh_copy.default", {parameter("self")}, false, true},
      {"aten.neg.default", {parameter("self")}, false, true},
      {"aten.relu_.default", {changed("self")}, false, true},
      {"aten.rrelu.default",
       {parameter("self"), parameter("lower"), parameter("upper"), {"training", Argument{false}}},
       true,
       true},
      {"aten.split.Tensor", {view_of("self"), parameter("split_size")}, false, false},
      {"aten.to.dtype",
       {view_of("self"), parameter("dtype"), optional_parameter("non_blocking"),
        optional_parameter("copy"), optional_parameter("memory_format")},
       false,
       true},
      {"aten.view.default", {view_of("self"), parameter("size")}, false, true},
  };
  Operators out;
  for (const Operator& op : all) out.emplace(op.name, op);
  return out;
}

// `lines` follow an input %x: f32[B, 4].
inline Graph graph_of(const std::string& lines) {
  return parse_graph("kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n" + lines);
}

inline Captured captured(const std::string& lines) {
  Captured out{graph_of(lines).data(), some_operators(), {}};
  out.numbers.resize(out.data.nodes.size());
  std::iota(out.numbers.begin(), out.numbers.end(), 0U);
  return out;
}

inline Graph frozen(Captured captured) {
  renumber_values(captured.data);
  return Graph::freeze(std::move(captured.data));
}

}  // namespace kerf
