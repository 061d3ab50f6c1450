// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/measure_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>

#include "kerf/libtorch/allocator_watch.h"
#include "kerf/libtorch/device_hold.h"
#include "kerf/libtorch/random.h"
#include "kerf/libtorch/streams.h"
#include "kerf/libtorch/sweep.h"
#include "kerf/profile/probe_cost.h"
#include "kerf/profile/replay.h"

namespace kerf {
namespace {

// One pass over all steps with one clock for each phase (forward, or forward and backward): the
// figures of the phases, one after the other.
using Clocks = std::vector<StepClock*>;
using Pass = std::function<void(const Clocks&)>;

std::vector<double> figures(const Clocks& clocks) {
  std::vector<double> out;
  for (StepClock* clock : clocks) {
    const std::vector<double> taken = clock->take();
    out.insert(out.end(), taken.begin(), taken.end());
  }
  return out;
}

template <class Clock, class... Args>
std::pair<std::vector<std::unique_ptr<Clock>>, Clocks> make_clocks(int phases, Args... args) {
  std::vector<std::unique_ptr<Clock>> owned;
  Clocks clocks;
  for (int p = 0; p < phases; ++p) {
    owned.push_back(std::make_unique<Clock>(args...));
    clocks.push_back(owned.back().get());
  }
  return {std::move(owned), std::move(clocks)};
}

template <class Clock>
Samples sample_with(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                    const SampleLimits& limits) {
  const auto [owned, clocks] = make_clocks<Clock>(phases, steps, device);
  return Samples::take(
      [&] {
        pass(clocks);
        return figures(clocks);
      },
      limits);
}

// A pass in which the device caught up with the host has gaps in it: it is made again, with the
// device held longer.
Samples sample_events(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                      bool each_step, const SampleLimits& limits) {
  constexpr int kMostTries = 8;
  const auto [owned, clocks] = make_clocks<EventClock>(phases, steps, device, each_step);
  return Samples::take(
      [&] {
        std::vector<double> out;
        for (int i = 0; i < kMostTries; ++i) {
          pass(clocks);
          out = figures(clocks);
          bool behind = true;
          for (const auto& clock : owned) behind = clock->was_behind() && behind;
          if (behind) break;
        }
        return out;
      },
      limits);
}

// A pass alone, and one more while neighbours work, in turns: a machine that is slower for a while
// is so for both.
Pass alone_and_beside(const Pass& once, std::ptrdiff_t phases, Neighbours& neighbours) {
  return [&, once, phases](const Clocks& clocks) {
    once({clocks.begin(), clocks.begin() + phases});
    neighbours.check();
    const Neighbours::AtWork at_work(neighbours);
    once({clocks.begin() + phases, clocks.end()});
  };
}

Samples sample_waiting(const Pass& pass, int phases, const MeasuredStage& m,
                       const SampleLimits& limits, Neighbours& neighbours) {
  const std::size_t steps = m.graph.num_nodes();
  if (neighbours.empty()) return sample_with<WaitingClock>(pass, phases, steps, m.device, limits);
  return sample_with<WaitingClock>(alone_and_beside(pass, phases, neighbours), 2 * phases, steps,
                                   m.device, limits);
}

// Both times of all steps of all phases, measured apart.
struct Apart {
  std::vector<IssueTimes> times;
  std::vector<Nanoseconds> spreads;  // of the one that spreads more
  int samples = 0;
};

// The device's time of one phase: with an event before each step, less what events take.
std::vector<double> device_times(const Samples& each, const Samples& whole, std::size_t first,
                                 std::size_t steps, std::size_t most, bool backward) {
  std::vector<double> out = each.medians(first, steps);
  for (std::size_t done = 0; done < steps; done += most) {
    // Backward goes the other way round: its stretches begin at the end.
    const std::size_t length = std::min(most, steps - done);
    const std::size_t at = backward ? steps - done - length : done;
    const std::vector<double> stretch = whole.medians(first + at, length);
    const auto begin = out.begin() + static_cast<std::ptrdiff_t>(at);
    const std::vector<double> clean =
        without_probe_cost({begin, begin + static_cast<std::ptrdiff_t>(length)},
                           std::accumulate(stretch.begin(), stretch.end(), 0.0));
    std::copy(clean.begin(), clean.end(), begin);
  }
  return out;
}

Apart measure_apart(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                    SampleLimits limits) {
  limits.budget_seconds /= 3;
  const Samples issue = sample_with<HostClock>(pass, phases, steps, device, limits);
  limits.warmup = 1;
  const Samples each = sample_events(pass, phases, steps, device, true, limits);
  const Samples whole = sample_events(pass, phases, steps, device, false, limits);
  const std::size_t most = EventClock(0, device, true).most_steps();
  Apart out;
  out.samples = each.num_passes();
  for (int phase = 0; phase < phases; ++phase) {
    const std::size_t first = static_cast<std::size_t>(phase) * steps;
    const std::vector<double> host = issue.medians(first, steps);
    const std::vector<double> own = device_times(each, whole, first, steps, most, phase == 1);
    for (std::size_t i = 0; i < steps; ++i) {
      out.times.push_back({{host[i]}, {own[i]}});
      out.spreads.push_back({std::max(issue.spread(first + i), each.spread(first + i))});
    }
  }
  return out;
}

// Calls of the whole graph, taken down while it runs once.
std::unique_ptr<Sweep> make_sweep(const MeasuredStage& m) {
  auto sweep = std::make_unique<Sweep>(m.graph, m.device, m.run.batches[0]);
  m.restore();
  m.stage.run_whole(m.run, [&](Kernel& kernel, const Slots& slots) {
    sweep->add(kernel, slots, [&](ValueId id) { return m.stage.slot(id); });
  });
  return sweep;
}

void note_deaf(const AllocatorWatch& watch, Profile& profile) {
  if (watch.works()) return;
  profile.notes.emplace_back(
      "what operators take while they run was not measured: a profiler listens to the host's "
      "allocator");
}

void add_workspaces(const MeasuredStage& m, Sweep& sweep, bool training, Profile& profile) {
  AllocatorWatch watch(m.graph.num_nodes(), m.device);
  note_deaf(watch, profile);
  const auto take = [&](const auto& put) {
    const std::vector<double> bytes = watch.take();
    for (std::size_t n = 0; n < bytes.size(); ++n) {
      put(profile.nodes[n], Bytes{static_cast<std::int64_t>(bytes[n])});
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
  AllocatorWatch watch(m.graph.num_nodes(), m.device);
  note_deaf(watch, profile);
  m.restore();
  m.stage.run_timed(m.run, watch);
  const std::vector<double> bytes = watch.take();
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    profile.nodes[n].peak += Bytes{static_cast<std::int64_t>(bytes[n])};
  }
}

void set_forward(Profile& profile, const Apart& apart) {
  const std::span times = std::span(apart.times).first(profile.nodes.size());
  const std::vector<Nanoseconds> added = replay(times);
  for (std::size_t n = 0; n < profile.nodes.size(); ++n) {
    NodeCost& cost = profile.nodes[n];
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

void set_under_load(Profile& profile, const Samples& samples) {
  const std::size_t steps = profile.nodes.size();
  const std::vector<double> forward = loaded_medians(samples, 0, steps);
  for (std::size_t n = 0; n < steps; ++n) profile.nodes[n].forward_under_load = {forward[n]};
  if (!profile.training) return;
  const std::vector<double> backward = loaded_medians(samples, 1, steps);
  for (std::size_t n = 0; n < steps; ++n) profile.nodes[n].backward_under_load = {backward[n]};
}

void set_forward(Profile& profile, const Samples& samples) {
  const std::vector<double> medians = samples.medians(0, profile.nodes.size());
  for (std::size_t n = 0; n < profile.nodes.size(); ++n) {
    NodeCost& cost = profile.nodes[n];
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

void set_backward(const Graph& graph, Profile& profile, const Apart& full, const Apart& inputs) {
  const std::size_t steps = profile.nodes.size();
  std::vector<IssueTimes> reversed;
  for (std::size_t n = steps; n-- > 0;) reversed.push_back(full.times[steps + n]);
  const std::vector<Nanoseconds> added = replay(reversed);
  for (std::size_t n = 0; n < steps; ++n) {
    NodeCost& cost = profile.nodes[n];
    cost.backward_apart = reversed[steps - 1 - n];
    cost.backward = added[steps - 1 - n];
    cost.backward_spread = full.spreads[steps + n];
    const auto sum = [&](const Apart& apart) {
      const IssueTimes& times = apart.times[steps + n];
      return times.issue.count + times.device.count;
    };
    cost.backward_weights = weight_share(graph, NodeId(n), cost.backward, sum(full), sum(inputs));
  }
}

void set_backward(const Graph& graph, Profile& profile, const Samples& full,
                  const Samples& inputs) {
  const std::size_t steps = profile.nodes.size();
  const std::vector<double> medians = full.medians(steps, steps);
  const std::vector<double> inputs_alone = inputs.medians(steps, steps);
  for (std::size_t n = 0; n < steps; ++n) {
    NodeCost& cost = profile.nodes[n];
    cost.backward = {medians[n]};
    cost.backward_spread = {full.spread(steps + n)};
    cost.backward_weights =
        weight_share(graph, NodeId(n), cost.backward, medians[n], inputs_alone[n]);
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
      m.stage.run_timed(m.run, gate);
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
    m.stage.run_timed(m.run, *clocks[0]);
  };
  const std::size_t steps = m.graph.num_nodes();
  const std::string why = why_no_hold(m.device);
  if (why.empty()) {
    set_forward(profile, measure_apart(pass, 1, steps, m.device, options));
  } else {
    const Samples samples = sample_waiting(pass, 1, m, options, neighbours);
    set_forward(profile, samples);
    if (!neighbours.empty()) set_under_load(profile, samples);
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
  const std::size_t steps = m.graph.num_nodes();
  const std::string why = why_no_hold(m.device);
  if (why.empty()) {
    const Apart both = measure_apart(full, 2, steps, m.device, limits);
    set_forward(profile, both);
    set_backward(m.graph, profile, both, measure_apart(inputs, 2, steps, m.device, limits));
  } else {
    const Samples both = sample_waiting(full, 2, m, limits, neighbours);
    set_forward(profile, both);
    if (!neighbours.empty()) set_under_load(profile, both);
    set_backward(m.graph, profile, both,
                 sample_with<WaitingClock>(inputs, 2, steps, m.device, limits));
    note_waits(m.device, why, profile);
  }
  add_workspaces(m, *sweep, true, profile);
}

}  // namespace kerf
