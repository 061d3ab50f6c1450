// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Contraction before a search: three questions to minimum cuts for each neighbouring pair, repeated
// to a fixed point. Valid for every split below the limit.
#include "kerf/place/mincut/fuse.h"

#include <utility>

#include "kerf/base/union_find.h"

namespace kerf::place {
namespace {

class Fuser {
 public:
  Fuser(const CutProblem& problem, Flow limit, FlowScratch& scratch)
      : problem_(&problem), limit_(limit), scratch_(&scratch), together_(problem.num_classes()) {
    for (const DeviceKind& kind : problem.kinds) networks_.push_back(load_network(problem, kind));
  }

  // Which classes stay together.
  UnionFind run() {
    for (const CutProblem::Net& net : problem_->nets) fuse_net(net);
    return std::move(together_);
  }

 private:
  // Each class with the one before it and with the first. The budget is asked for each of them: a
  // single net may hold all classes.
  void fuse_net(const CutProblem::Net& net) {
    for (std::size_t i = 1; i < net.classes.size() && !scratch_->out_of_budget(); ++i) {
      fuse(net.classes[i - 1], net.classes[i]);
      if (i > 1) fuse(net.classes[0], net.classes[i]);
    }
  }

  void fuse(std::uint32_t a, std::uint32_t b) {
    if (together_.find(a) != together_.find(b) && !can_part(a, b)) together_.join_to(a, b);
  }

  // Can a device of this kind hold `in` and not `out`, below the limit?
  bool can_hold(std::size_t k, std::uint32_t in, std::uint32_t out) {
    const DeviceKind& kind = problem_->kinds[k];
    if (kind.holds[in] == 0 || kind.time[in] >= limit_) return false;
    if (!kind.pays) return true;
    MaxFlow& network = networks_[k];
    network.mark();
    network.add_source(in, kEndless / 4);
    network.add_sink(out, kEndless / 4);
    const bool reached = network.augment(*scratch_, limit_);
    network.undo();
    return !reached;
  }

  // Are there two devices, one for each? Every kind is asked once.
  bool can_part(std::uint32_t a, std::uint32_t b) {
    std::vector<std::size_t> for_a;
    for (std::size_t k = problem_->kinds.size(); k-- > 0;) {
      if (can_hold(k, a, b)) for_a.push_back(k);
    }
    if (for_a.empty()) return false;
    for (std::size_t k = problem_->kinds.size(); k-- > 0;) {
      const bool other = for_a.size() > 1 || for_a.front() != k;
      if ((other || problem_->kinds[k].devices.size() > 1) && can_hold(k, b, a)) return true;
    }
    return false;
  }

  const CutProblem* problem_;
  Flow limit_;
  FlowScratch* scratch_;
  std::vector<MaxFlow> networks_;  // by kind
  UnionFind together_;
};

// group[unit] through `joined` (by class), numbered from 0 in order of first use.
std::size_t renumber(std::vector<std::uint32_t>& group, UnionFind joined) {
  std::vector<std::uint32_t> number(joined.size(), static_cast<std::uint32_t>(-1));
  std::uint32_t next = 0;
  for (std::uint32_t& g : group) {
    std::uint32_t& known = number[joined.find(g)];
    if (known == static_cast<std::uint32_t>(-1)) known = next++;
    g = known;
  }
  return next;
}

}  // namespace

std::vector<std::uint32_t> fuse_units(const Instance& problem, double limit, double per_one,
                                      FlowScratch& scratch) {
  std::vector<std::uint32_t> group = single_groups(problem);
  for (std::size_t before = group.size(); before > 0;) {
    scratch.steps += building_steps(problem);
    if (scratch.out_of_budget()) break;
    const CutProblem cuts(problem, group, per_one);
    Fuser fuser(cuts, cuts.to_limit(limit), scratch);
    const std::size_t after = renumber(group, fuser.run());
    if (after == before) break;
    before = after;
  }
  return group;
}

}  // namespace kerf::place
