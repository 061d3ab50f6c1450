// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/measure_one_block.h"

#include <algorithm>
#include <optional>

#include "kerf/libtorch/block_memory.h"
#include "kerf/libtorch/cold_caches.h"
#include "kerf/libtorch/device_hold.h"
#include "kerf/libtorch/measure_pass.h"
#include "kerf/libtorch/measure_steps.h"
#include "kerf/libtorch/streams.h"

namespace kerf {
namespace {

// A phase of a block: its time, and on an accelerator both of them.
struct PhaseTime {
  Nanoseconds time;
  Nanoseconds spread;
  IssueTimes apart;
};

struct BlockTimes {
  std::vector<PhaseTime> phases;
  int samples = 0;
};

// forward; or forward with autograd, backward; or these with a forward without autograd before
// them.
std::size_t num_phases(const BlockSetting& setting, const BlockOptions& options) {
  return !setting.training ? 1 : options.recompute ? 3 : 2;
}

template <class Work>
void timed(StepClock& clock, const Work& work) {
  clock.start();
  clock.step(0);
  work();
  clock.stop();
}

void prepare_forward(BlockRun& block, const ColdCaches& caches) {
  block.prepare();
  caches.prepare(block.received());
}

Pass pass_of(BlockRun& block, const BlockSetting& setting, const BlockOptions& options,
             const ColdCaches& caches) {
  return [&](const Clocks& clocks) {
    std::size_t phase = 0;
    if (!setting.training || options.recompute) {
      prepare_forward(block, caches);
      timed(*clocks[phase++], [&] { block.forward(); });  // and frees what it made, as steps do
    }
    if (!setting.training) return;
    prepare_forward(block, caches);
    timed(*clocks[phase++], [&] { block.record_forward(); });
    if (!block.has_backward()) return;
    caches.prepare(block.gradients());  // other blocks have run meanwhile
    timed(*clocks[phase], [&] { block.backward(); });
  };
}

BlockTimes take_times(BlockRun& block, const BlockSetting& setting, const BlockOptions& options,
                      const SampleLimits& limits, const ColdCaches& caches) {
  const Pass pass = pass_of(block, setting, options, caches);
  const std::size_t phases = num_phases(setting, options);
  const auto count = static_cast<int>(phases);
  BlockTimes out;
  if (why_no_hold(setting.torch_device).empty()) {
    const Apart apart = measure_apart(pass, count, 1, setting.torch_device, limits);
    for (std::size_t p = 0; p < phases; ++p) {
      // The host is busy with the next block while the device is with this one.
      const IssueTimes& times = apart.times[p];
      out.phases.push_back({std::max(times.issue, times.device), apart.spreads[p], times});
    }
    out.samples = apart.samples;
    return out;
  }
  const Samples samples = sample_waiting(pass, count, 1, setting.torch_device, limits);
  for (std::size_t p = 0; p < phases; ++p) {
    out.phases.push_back({{samples.medians(p, 1)[0]}, {samples.spread(p)}, {}});
  }
  out.samples = samples.num_passes();
  return out;
}

// One more pass, with an ear at the allocator.
void take_peaks(BlockRun& block, const BlockSetting& setting, const BlockOptions& options,
                Profile& profile, BlockCost& cost) {
  if (!MemoryListener::has_room()) {
    const std::string note =
        "what blocks take of memory was not measured: a profiler listens to the allocators";
    const auto& notes = profile.notes;
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) profile.notes.push_back(note);
    return;
  }
  const auto memory = std::make_shared<BlockMemory>(setting.torch_device);
  block.prepare();
  const MemoryListener::Scope listening(memory);
  if (!setting.training || options.recompute) {
    block.forward();
    cost.forward_peak = memory->take_peak();
  }
  if (!setting.training) return;
  block.prepare();
  memory->take_peak();
  block.record_forward();
  const Bytes recorded = memory->take_peak();
  if (block.has_backward()) block.backward();
  const Bytes backward = block.has_backward() ? memory->take_peak() : Bytes{};
  wait_for(setting.torch_device);
  if (options.recompute) {
    cost.backward_peak = std::max(recorded, backward);
  } else {
    cost.forward_peak = recorded;
    cost.backward_peak = backward;
  }
}

// Of a block that has no backward, none is counted: what is measured then is the clock.
BlockCost cost_of(const BlockTimes& times, const BlockRun& block, const BlockSetting& setting,
                  const BlockOptions& options) {
  BlockCost cost;
  cost.samples = times.samples;
  cost.forward = times.phases[0].time;
  cost.forward_spread = times.phases[0].spread;
  if (!setting.training || !block.has_backward()) return cost;
  const std::size_t last = times.phases.size() - 1;
  cost.backward = times.phases[last].time;
  cost.backward_spread = times.phases[last].spread;
  if (!options.recompute) return cost;
  cost.backward += times.phases[1].time;
  cost.backward_spread += times.phases[1].spread;
  return cost;
}

// A few passes that look at each node.
std::vector<NodeCost> take_nodes(BlockRun& block, const BlockSetting& setting,
                                 const SampleLimits& limits, const ColdCaches& caches,
                                 Profile& profile) {
  MeasureOptions options;
  options.warmup = 1;
  options.min_passes = 2;
  options.max_passes = 5;
  options.budget_seconds = limits.budget_seconds / 4;
  options.training = setting.training;
  Neighbours nobody(std::vector<Neighbours::Work>{});
  // All of a block's time is its only node's, however the caches are.
  const bool has_shares = block.nodes().size() > 1;
  const auto restore = [&] { has_shares ? prepare_forward(block, caches) : block.prepare(); };
  const MeasuredStage measured{setting.graph,    block.nodes(),        block.stage(), block.run(),
                               block.received(), setting.torch_device, restore};
  (setting.training ? measure_training : measure_forward)(measured, options, nobody, profile);
  std::vector<NodeCost> out;
  for (const NodeId node : block.nodes()) out.push_back(profile.nodes[node.index()]);
  return out;
}

void scale(std::vector<NodeCost>& nodes, Nanoseconds NodeCost::*time, Nanoseconds total) {
  Nanoseconds sum;
  for (const NodeCost& node : nodes) sum += node.*time;
  for (NodeCost& node : nodes) {
    node.*time = sum.count > 0 ? node.*time * (total.count / sum.count)
                               : total * (1.0 / static_cast<double>(nodes.size()));
  }
}

void scale(std::vector<NodeCost>& nodes, IssueTimes NodeCost::*apart, const IssueTimes& total) {
  IssueTimes sum;
  for (const NodeCost& node : nodes) {
    sum.issue += (node.*apart).issue;
    sum.device += (node.*apart).device;
  }
  for (NodeCost& node : nodes) {
    IssueTimes& times = node.*apart;
    if (sum.issue.count > 0) times.issue = times.issue * (total.issue.count / sum.issue.count);
    if (sum.device.count > 0) times.device = times.device * (total.device.count / sum.device.count);
  }
}

// Times of the nodes that add up to those of the block, without what is computed again.
void share_out(const BlockTimes& times, const BlockRun& block, const BlockSetting& setting,
               std::vector<NodeCost>& nodes) {
  const std::size_t first = times.phases.size() == 3 ? 1 : 0;  // with autograd, where there is any
  for (NodeCost& node : nodes) {
    node.samples = times.samples;
    // The share of weights is one of a time that is about to be scaled.
    const double all = node.backward.count;
    node.backward_weights.count = all > 0 ? node.backward_weights.count / all : 0;
  }
  scale(nodes, &NodeCost::forward, times.phases[first].time);
  scale(nodes, &NodeCost::forward_apart, times.phases[first].apart);
  if (setting.training) {
    const PhaseTime none;
    const PhaseTime& backward = block.has_backward() ? times.phases[first + 1] : none;
    scale(nodes, &NodeCost::backward, backward.time);
    scale(nodes, &NodeCost::backward_apart, backward.apart);
  }
  for (NodeCost& node : nodes) node.backward_weights.count *= node.backward.count;
}

}  // namespace

KnownBlock measure_one_block(BlockRun& block, const BlockSetting& setting,
                             const BlockOptions& options, const SampleLimits& limits,
                             const ColdCaches& caches, Profile& profile) {
  const BlockTimes times = take_times(block, setting, options, limits, caches);
  KnownBlock out{cost_of(times, block, setting, options), {}};
  take_peaks(block, setting, options, profile, out.cost);
  out.nodes = take_nodes(block, setting, limits, caches, profile);
  share_out(times, block, setting, out.nodes);
  return out;
}

}  // namespace kerf
