// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/measure_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "kerf/libtorch/allocator_watch.h"
#include "kerf/libtorch/device_hold.h"
#include "kerf/libtorch/measure_pass.h"
#include "kerf/libtorch/random.h"
#include "kerf/libtorch/streams.h"
#include "kerf/libtorch/sweep.h"
#include "kerf/profile/replay.h"

namespace kerf {
namespace {

// Alone, or alone and while neighbours work.
Samples sample(const Pass& pass, int phases, const MeasuredStage& m, const SampleLimits& limits,
               Neighbours& neighbours) {
  const std::size_t steps = m.nodes.size();
  if (neighbours.empty()) return sample_waiting(pass, phases, steps, m.device, limits);
  return sample_beside(pass, phases, steps, m.device, limits, neighbours);
}

NodeCost& cost_of(const MeasuredStage& m, std::size_t step, Profile& profile) {
  return profile.nodes[m.nodes[step].index()];
}

// Calls of all steps, taken down while they run once.
std::unique_ptr<Sweep> make_sweep(const MeasuredStage& m) {
  auto sweep = std::make_unique<Sweep>(m.graph, m.device, m.run.batches[0]);
  m.restore();
  const auto visit = [&](Kernel& kernel, const Slots& slots) {
    sweep->add(kernel, slots, [&](ValueId id) { return m.stage.slot(id); });
  };
  m.stage.run_whole(m.run, visit, m.received);
  return sweep;
}

void note_deaf(const AllocatorWatch& watch, Profile& profile) {
  if (watch.works()) return;
  profile.notes.emplace_back(
      "what operators take while they run was not measured: a profiler listens to the host's "
      "allocator");
}

void add_workspaces(const MeasuredStage& m, Sweep& sweep, bool training, Profile& profile) {
  AllocatorWatch watch(m.nodes.size(), m.device);
  note_deaf(watch, profile);
  const auto take = [&](const auto& put) {
    const std::vector<double> bytes = watch.take();
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      put(cost_of(m, n, profile), Bytes{static_cast<std::int64_t>(bytes[n])});
    }
  };
  m.restore();
  sweep.forward(training ? GradientsOf::inputs_and_weights : GradientsOf::nothing, watch);
  take([](NodeCost& cost, Bytes workspace) { cost.peak += workspace; });
  if (training) {
    sweep.backward(watch, &watch);
    take([](NodeCost& cost, Bytes workspace) { cost.backward_workspace = workspace; });
  }
  sweep.clear();
}

// On the host no sweep is needed, which would hold all values of the graph at once.
void add_host_workspaces(const MeasuredStage& m, Profile& profile) {
  AllocatorWatch watch(m.nodes.size(), m.device);
  note_deaf(watch, profile);
  m.restore();
  m.stage.run_timed(m.run, watch, m.received);
  const std::vector<double> bytes = watch.take();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    cost_of(m, n, profile).peak += Bytes{static_cast<std::int64_t>(bytes[n])};
  }
}

void set_forward(const MeasuredStage& m, Profile& profile, const Apart& apart) {
  const std::span times = std::span(apart.times).first(m.nodes.size());
  const std::vector<Nanoseconds> added = replay(times);
  for (std::size_t n = 0; n < m.nodes.size(); ++n) {
    NodeCost& cost = cost_of(m, n, profile);
    cost.forward_apart = times[n];
    cost.forward = added[n];
    cost.forward_spread = apart.spreads[n];
    cost.samples = apart.samples;
  }
}

// Times of a phase of two passes, the second of which was made while neighbours worked.
std::vector<double> loaded_medians(const Samples& samples, int phase, std::size_t steps) {
  const std::size_t alone = samples.num_steps() / 2;
  return samples.medians(alone + static_cast<std::size_t>(phase) * steps, steps);
}

void set_under_load(const MeasuredStage& m, Profile& profile, const Samples& samples) {
  const std::size_t steps = m.nodes.size();
  const std::vector<double> forward = loaded_medians(samples, 0, steps);
  for (std::size_t n = 0; n < steps; ++n) {
    cost_of(m, n, profile).forward_under_load = {forward[n]};
  }
  if (!profile.training) return;
  const std::vector<double> backward = loaded_medians(samples, 1, steps);
  for (std::size_t n = 0; n < steps; ++n) {
    cost_of(m, n, profile).backward_under_load = {backward[n]};
  }
}

void set_forward(const MeasuredStage& m, Profile& profile, const Samples& samples) {
  const std::vector<double> medians = samples.medians(0, m.nodes.size());
  for (std::size_t n = 0; n < m.nodes.size(); ++n) {
    NodeCost& cost = cost_of(m, n, profile);
    cost.forward = {medians[n]};
    cost.forward_spread = {samples.spread(n)};
    cost.samples = samples.num_passes();
  }
}

// An opaque block has weights that the graph does not know.
bool has_trained_weight(const Graph& graph, NodeId node) {
  if (graph.node(node).op == "opaque") return true;
  const auto inputs = graph.inputs_of(node);
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) {
    return graph.value(id).origin == Origin::weight && graph.value(id).requires_grad;
  });
}

// The part of a backward that is for weights: what it takes more than one for inputs alone.
Nanoseconds weight_share(const Graph& graph, NodeId node, Nanoseconds backward, double full,
                         double inputs_alone) {
  if (full <= 0 || !has_trained_weight(graph, node)) return {};
  return backward * std::clamp(1 - inputs_alone / full, 0.0, 1.0);
}

void set_backward(const MeasuredStage& m, Profile& profile, const Apart& full,
                  const Apart& inputs) {
  const std::size_t steps = m.nodes.size();
  std::vector<IssueTimes> reversed;
  for (std::size_t n = steps; n-- > 0;) reversed.push_back(full.times[steps + n]);
  const std::vector<Nanoseconds> added = replay(reversed);
  for (std::size_t n = 0; n < steps; ++n) {
    NodeCost& cost = cost_of(m, n, profile);
    cost.backward_apart = reversed[steps - 1 - n];
    cost.backward = added[steps - 1 - n];
    cost.backward_spread = full.spreads[steps + n];
    const auto sum = [&](const Apart& apart) {
      const IssueTimes& times = apart.times[steps + n];
      return times.issue.count + times.device.count;
    };
    cost.backward_weights =
        weight_share(m.graph, m.nodes[n], cost.backward, sum(full), sum(inputs));
  }
}

void set_backward(const MeasuredStage& m, Profile& profile, const Samples& full,
                  const Samples& inputs) {
  const std::size_t steps = m.nodes.size();
  const std::vector<double> medians = full.medians(steps, steps);
  const std::vector<double> inputs_alone = inputs.medians(steps, steps);
  for (std::size_t n = 0; n < steps; ++n) {
    NodeCost& cost = cost_of(m, n, profile);
    cost.backward = {medians[n]};
    cost.backward_spread = {full.spread(steps + n)};
    cost.backward_weights =
        weight_share(m.graph, m.nodes[n], cost.backward, medians[n], inputs_alone[n]);
  }
}

void note_waits(c10::Device device, const std::string& why, Profile& profile) {
  if (!has_streams(device)) return;
  profile.notes.push_back(
      fmt::format("each operator was waited for on {}: {}; a run waits for none and is faster",
                  device.str(), why));
}

}  // namespace

void keep_busy(const MeasuredStage& m, bool training, Neighbours::Gate& gate) {
  const std::unique_ptr<Sweep> sweep = training ? make_sweep(m) : nullptr;
  while (gate.next_pass()) {
    m.restore();
    if (sweep == nullptr) {
      m.stage.run_timed(m.run, gate, m.received);
    } else {
      sweep->forward(GradientsOf::inputs_and_weights, gate);
      sweep->backward(gate);
    }
  }
}

void measure_forward(const MeasuredStage& m, const MeasureOptions& options, Neighbours& neighbours,
                     Profile& profile) {
  const Pass pass = [&](const Clocks& clocks) {
    m.restore();
    m.stage.run_timed(m.run, *clocks[0], m.received);
  };
  const std::size_t steps = m.nodes.size();
  const std::string why = why_no_hold(m.device);
  if (why.empty()) {
    set_forward(m, profile, measure_apart(pass, 1, steps, m.device, options));
  } else {
    const Samples samples = sample(pass, 1, m, options, neighbours);
    set_forward(m, profile, samples);
    if (!neighbours.empty()) set_under_load(m, profile, samples);
    note_waits(m.device, why, profile);
  }
  if (!has_streams(m.device)) return add_host_workspaces(m, profile);
  add_workspaces(m, *make_sweep(m), false, profile);
}

void measure_training(const MeasuredStage& m, const MeasureOptions& options, Neighbours& neighbours,
                      Profile& profile) {
  const std::unique_ptr<Sweep> sweep = make_sweep(m);
  const RandomScope random(m.device, m.run.seed, /*host_too=*/true);
  const auto pass_for = [&](GradientsOf gradients) {
    return Pass([&, gradients](const Clocks& clocks) {
      m.restore();
      sweep->forward(gradients, *clocks[0]);
      sweep->backward(*clocks[1]);
    });
  };
  const Pass full = pass_for(GradientsOf::inputs_and_weights);
  const Pass inputs = pass_for(GradientsOf::inputs);
  SampleLimits limits = options;
  limits.budget_seconds /= 2;
  const std::size_t steps = m.nodes.size();
  const std::string why = why_no_hold(m.device);
  if (why.empty()) {
    const Apart both = measure_apart(full, 2, steps, m.device, limits);
    set_forward(m, profile, both);
    set_backward(m, profile, both, measure_apart(inputs, 2, steps, m.device, limits));
  } else {
    const Samples both = sample(full, 2, m, limits, neighbours);
    set_forward(m, profile, both);
    if (!neighbours.empty()) set_under_load(m, profile, both);
    set_backward(m, profile, both, sample_waiting(inputs, 2, steps, m.device, limits));
    note_waits(m.device, why, profile);
  }
  add_workspaces(m, *sweep, true, profile);
}

}  // namespace kerf
