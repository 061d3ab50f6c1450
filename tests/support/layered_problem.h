// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Training steps of models that are a stack of layers, as most are: each a norm, two matrix
// products around a gelu, and what was there before added again. On equal devices.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <vector>

#include "kerf/device/kind.h"
#include "kerf/graph/text.h"
#include "kerf/plan/problem.h"
#include "kerf/profile/estimate.h"

namespace kerf {

// `widths`: of the inside of each layer; the stream between them is 64 wide.
inline Graph layered_graph(const std::vector<int>& widths) {
  std::string text = "kerf-graph 1.1\ngraph \"layers\" training\nbatch 64\n";
  auto out = std::back_inserter(text);
  for (std::size_t l = 0; l < widths.size(); ++l) {
    fmt::format_to(out, "scope {} \"h.{}\" \"Layer\"\n", l + 1, l);
  }
  fmt::format_to(out, "input %x0: f32[B, 64] = \"args.0\"\n");
  for (std::size_t l = 0; l < widths.size(); ++l) {
    fmt::format_to(out, "weight @wn{0}: f32[64] grad = parameter \"h.{0}.n\"\n", l);
    fmt::format_to(out, "weight @wa{0}: f32[{1}, 64] grad = parameter \"h.{0}.a\"\n", l, widths[l]);
    fmt::format_to(out, "weight @wb{0}: f32[64, {1}] grad = parameter \"h.{0}.b\"\n", l, widths[l]);
  }
  for (std::size_t l = 0; l < widths.size(); ++l) {
    const auto node = [&](std::string_view name, int width, const std::string& call) {
      fmt::format_to(out, "%{}{}: f32[B, {}] grad = aten.{} ; scope={}\n", name,
                     name == "x" ? l + 1 : l, width, call, l + 1);
    };
    node("n", 64, fmt::format("layer_norm.default(%x{0}, [64], @wn{0}, none, 1e-05, false)", l));
    node("a", widths[l], fmt::format("linear.default(%n{0}, @wa{0}, none)", l));
    node("g", widths[l], fmt::format("gelu.default(%a{0})", l));
    node("b", 64, fmt::format("linear.default(%g{0}, @wb{0}, none)", l));
    node("x", 64, fmt::format("add.Tensor(%x{0}, %b{0})", l));
  }
  fmt::format_to(out, "output \"y\" = %x{}\n", widths.size());
  return parse_graph(text);
}

// Equal devices without limits, nothing computed again.
inline Problem layered_problem(const std::vector<int>& widths, std::size_t devices,
                               int n_microbatches, const std::string& schedule) {
  Problem problem;
  problem.graph = layered_graph(widths);
  problem.training = true;
  problem.n_microbatches = n_microbatches;
  problem.batch = std::int64_t{256} * n_microbatches;
  problem.schedule = schedule;
  problem.recompute = "none";
  set_recomputed(problem, {});
  for (std::size_t d = 0; d < devices; ++d) {
    Device device;
    device.name = fmt::format("cuda:{}", d);
    device.kind = "cuda";
    device.memory_group = static_cast<int>(d);
    problem.cluster.devices.push_back(device);
  }
  problem.cluster.links.assign(devices * devices, Link{Nanoseconds{2000}, 50e9, false});
  problem.profile = estimate(problem.graph, device_kind("cuda"), problem.micro_batch(), true);
  return problem;
}

}  // namespace kerf
