// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Contraction before a search: three questions to minimum cuts for each neighbouring pair, repeated
// to a fixed point. Valid for every split below the limit.
#include "kerf/place/mincut/fuse.h"

#include <numeric>
#include <utility>

#include "kerf/base/count_up.h"
#include "kerf/base/union_find.h"
#include "kerf/place/mincut/cut_network.h"

namespace kerf::place {
namespace {

class Fuser {
 public:
  Fuser(const CutNetwork& network, Flow limit, FlowScratch& scratch)
      : network_(&network), limit_(limit), scratch_(&scratch), together_(network.num_units()) {
    for (const DeviceKind& kind : network.kinds) flows_.push_back(load_network(network, kind));
  }

  // Which units stay together.
  UnionFind run() {
    for (NetId net{0}; net < network_->cost.size(); ++net) {
      if (network_->cost[net] > 0) fuse_net(network_->instance->pins[net]);
    }
    return std::move(together_);
  }

 private:
  // Each unit with the one before it and with the first. The budget is asked for each of them: a
  // single net may hold all units.
  void fuse_net(std::span<const UnitId> pins) {
    for (std::size_t i = 1; i < pins.size() && !scratch_->out_of_budget(); ++i) {
      fuse(pins[i - 1], pins[i]);
      if (i > 1) fuse(pins[0], pins[i]);
    }
  }

  void fuse(UnitId a, UnitId b) {
    if (together_.find(a) != together_.find(b) && !can_part(a, b)) together_.join_to(a, b);
  }

  // Can a device of this kind hold `in` and not `out`, below the limit?
  bool can_hold(std::size_t k, UnitId in, UnitId out) {
    const DeviceKind& kind = network_->kinds[k];
    if (kind.holds[in] == 0 || kind.time[in] >= limit_) return false;
    if (!kind.pays) return true;
    MaxFlow& flow = flows_[k];
    flow.mark();
    flow.add_source(in, kEndless / 4);
    flow.add_sink(out, kEndless / 4);
    const bool reached = flow.augment(*scratch_, limit_);
    flow.undo();
    return !reached;
  }

  // Are there two devices, one for each? Every kind is asked once.
  bool can_part(UnitId a, UnitId b) {
    std::vector<std::size_t> for_a;
    for (std::size_t k = network_->kinds.size(); k-- > 0;) {
      if (can_hold(k, a, b)) for_a.push_back(k);
    }
    if (for_a.empty()) return false;
    for (std::size_t k = network_->kinds.size(); k-- > 0;) {
      const bool other = for_a.size() > 1 || for_a.front() != k;
      if ((other || network_->kinds[k].devices.size() > 1) && can_hold(k, b, a)) return true;
    }
    return false;
  }

  const CutNetwork* network_;
  Flow limit_;
  FlowScratch* scratch_;
  std::vector<MaxFlow> flows_;  // by kind
  UnionFind together_;
};

}  // namespace

Fused fuse(const Instance& instance, double limit, double per_one, FlowScratch& scratch) {
  Fused out{instance, count_up<UnitId>(instance.num_units())};
  while (out.instance.num_units() > 0) {
    scratch.steps += building_steps(instance);
    if (scratch.out_of_budget()) break;
    const CutNetwork network(out.instance, per_one);
    UnionFind together = Fuser(network, network.to_limit(limit), scratch).run();
    if (together.num_sets() == together.size()) break;
    const std::vector<UnitId> number = together.numbers<UnitId>();
    for (UnitId& group : out.group) group = number[group];
    // Of the instance itself: sums of sums would round otherwise.
    out.instance = merge(instance, out.group, together.num_sets());
  }
  return out;
}

}  // namespace kerf::place
