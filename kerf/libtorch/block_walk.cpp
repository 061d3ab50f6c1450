// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/block_walk.h"

#include <algorithm>

#include "kerf/base/interrupt.h"

namespace kerf {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

}  // namespace

BlockWalk::BlockWalk(const BlockSetting& setting, const Cluster& cluster,
                     const std::vector<Block>& blocks, const std::vector<bool>& wanted, bool joined)
    : setting_(setting),
      values_(setting.graph.num_values()),
      readers_left_(setting.graph.num_values(), 0) {
  Plan plan;
  plan.graph_hash = setting.graph.hash();
  plan.cluster = cluster;
  for (const Node& node : setting.graph.nodes()) plan.node_names.push_back(node.name);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const bool goes_on = joined && b > 0 && !wanted[b] && !wanted[b - 1];
    if (!goes_on) {
      plan.stages.emplace_back().device = setting.device_id;
      block_of_.push_back(wanted[b] ? b : kNone);
    }
    std::vector<NodeId>& nodes = plan.stages.back().nodes;
    nodes.insert(nodes.end(), blocks[b].nodes.begin(), blocks[b].nodes.end());
    if (wanted[b]) num_steps_ = plan.stages.size();
  }
  for (Stage& stage : plan.stages) std::sort(stage.nodes.begin(), stage.nodes.end());
  programs_ = compile_programs(setting.graph, plan);
  for (std::size_t s = 0; s < num_steps_; ++s) {
    for (const ValueId id : programs_[s].received) ++readers_left_[id.index()];
  }
}

std::vector<TorchParcelPtr> BlockWalk::take(const Program& program) {
  std::vector<TorchParcelPtr> out;
  for (const ValueId id : program.received) {
    TorchParcelPtr& value = values_[id.index()];
    out.push_back(value);
    if (--readers_left_[id.index()] == 0) value.reset();
  }
  return out;
}

void BlockWalk::keep(const Program& program, const std::vector<ParcelPtr>& sends) {
  for (std::size_t i = 0; i < program.sends.size(); ++i) {
    const ValueId id = program.sends[i].value;
    if (readers_left_[id.index()] == 0) continue;
    const auto& made = static_cast<const TorchParcel&>(*sends[i]);
    c10::IValue value = made.value;
    if (value.isTensor()) value = value.toTensor().to(c10::kCPU);
    values_[id.index()] =
        std::make_shared<TorchParcel>(std::move(value), setting_.device_id, nullptr);
  }
}

void BlockWalk::run(TorchRun& run, const Look& look, const std::function<void(std::size_t)>& done) {
  for (std::size_t s = 0; s < num_steps_; ++s) {
    poll_interrupt();
    BlockRun block(setting_, programs_[s], take(programs_[s]), run);
    if (block_of_[s] != kNone) look(block_of_[s], block);
    if (s + 1 < num_steps_) {
      block.prepare();
      keep(programs_[s], block.forward());
    }
    done(s + 1);
  }
}

}  // namespace kerf
