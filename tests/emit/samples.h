// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A plan and its timelines with figures chosen by hand, so that reports are tested alone.
#pragma once

#include "kerf/plan/plan.h"
#include "kerf/plan/timeline.h"

namespace kerf::samples {

inline Cluster two_devices() {
  Device a;
  a.name = "cpu:0";
  a.memory = {2 << 20};
  a.memory_limited = true;
  Device b;
  b.name = "cpu:1";
  b.memory_group = 1;
  const Link near{};
  const Link far{{1000}, 1e9};
  return {{a, b}, {near, far, far, near}, {}};
}

inline Stage first_stage() {
  Stage stage;
  stage.nodes = {NodeId{0}, NodeId{1}};
  stage.device = DeviceId{0};
  stage.time = {3e6};
  stage.weights = {1 << 20};
  stage.activations = {65536};
  stage.inputs = {512};
  stage.outputs = {4096};
  return stage;
}

inline Stage second_stage() {
  Stage stage;
  stage.nodes = {NodeId{2}};
  stage.device = DeviceId{1};
  stage.time = {2e6};
  stage.weights = {524288};
  stage.activations = {32768};
  stage.inputs = {4096};
  stage.outputs = {256};
  stage.after = {StageId{0}};
  return stage;
}

// Nodes a, b on cpu:0; c on cpu:1. One tensor of 4 KiB is cut.
inline Plan plan() {
  Plan plan;
  plan.graph_hash = "00000000000000000000000000000000";
  plan.graph_name = "mlp";
  plan.node_names = {"a", "b", "c"};
  plan.method = "chain";
  plan.contiguous = true;
  plan.profile_kind = "cpu";
  plan.profile_batch = 2;
  plan.cluster = two_devices();
  plan.n_microbatches = 4;
  plan.batch = 8;
  plan.micro_batch = 2;
  plan.stages = {first_stage(), second_stage()};
  plan.cuts = {{"b", ValueId{5}, {4096}, StageId{0}, {StageId{1}}, {}}};
  plan.loads = {{{3e6}, {0}}, {{2e6}, {5096}}};
  plan.memory = {{{1 << 20}, {}, {}, {131072}, {1179648}, {2 << 20}, true},
                 {{524288}, {}, {}, {65536}, {589824}, {}, false}};
  plan.busiest = {3e6};
  plan.step_time = {14005096};
  plan.latency = {5005096};
  plan.throughput = 571.2;
  plan.bubble = 0.285;
  plan.lower_bound = {"average load", 2.5e6, "all the work, shared out evenly over 2 devices"};
  plan.notes = {"an example"};
  return plan;
}

inline Event compute(int device, int stage, int microbatch, double start, double end) {
  return {EventKind::compute,
          DeviceId{device},
          StageId{stage},
          microbatch,
          Phase::forward,
          {start},
          {end},
          {},
          {},
          {}};
}

inline Timeline timeline(const std::string& origin = "simulated", double slowness = 1) {
  Timeline out;
  out.origin = origin;
  out.graph_hash = plan().graph_hash;
  out.devices = {"cpu:0", "cpu:1"};
  out.num_stages = 2;
  out.n_microbatches = 4;
  for (int m = 0; m < 4; ++m) {
    const double start = 3e6 * m * slowness;
    const double end = start + 3e6 * slowness;
    out.events.push_back(compute(0, 0, m, start, end));
    out.events.push_back({EventKind::transfer,
                          DeviceId{1},
                          StageId{1},
                          m,
                          Phase::forward,
                          {end},
                          {end + 1e6},
                          {4096},
                          "b",
                          DeviceId{0}});
    out.events.push_back(compute(1, 1, m, end + 1e6, end + 3e6));
  }
  MemoryKinds kinds{};
  of(kinds, MemoryKind::weights) = {1048576};
  out.memory = {{DeviceId{0}, {{{0}, {1048576}, kinds}}}};
  of(kinds, MemoryKind::temporaries) = {4096};
  out.memory[0].points.push_back({{3e6}, {1052672}, kinds});
  out.memory.push_back({DeviceId{1}, {{{0}, {524288}}}});  // as in files of 1.0
  return out;
}

}  // namespace kerf::samples
