// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Contraction before a search: three questions to minimum cuts for each neighbouring pair, repeated
// to a fixed point. Valid for every split below the limit.
#include "kerf/partition/mincut/fuse.h"

#include <numeric>

namespace kerf::partition {
namespace {

class Fuser {
 public:
  Fuser(const CutProblem& problem, Flow limit)
      : problem_(&problem), limit_(limit), base_(load_network(problem)) {
    root_.resize(problem.num_classes());
    std::iota(root_.begin(), root_.end(), 0U);
  }

  // Class by class; equal for classes that stay together.
  std::vector<std::uint32_t> run() {
    for (const CutProblem::Net& net : problem_->nets) {
      for (std::size_t i = 1; i < net.classes.size(); ++i) {
        const std::uint32_t a = net.classes[i - 1];
        const std::uint32_t b = net.classes[i];
        if (find(a) != find(b) && !can_part(a, b)) root_[find(b)] = find(a);
        const std::uint32_t first = net.classes[0];
        if (i > 1 && find(first) != find(b) && !can_part(first, b)) root_[find(b)] = find(first);
      }
    }
    std::vector<std::uint32_t> out;
    for (std::uint32_t c = 0; c < root_.size(); ++c) out.push_back(find(c));
    return out;
  }

  std::int64_t steps() const { return scratch_.steps; }

 private:
  std::uint32_t find(std::uint32_t c) {
    while (root_[c] != c) c = root_[c] = root_[root_[c]];
    return c;
  }

  bool on_cpu(std::uint32_t c) const { return problem_->has_cpu && problem_->cpu[c] < limit_; }

  bool on_accelerator(std::uint32_t in, std::uint32_t out) {
    if (problem_->num_accelerators == 0 || problem_->accelerable[in] == 0) return false;
    base_.mark();
    base_.add_source(in, kEndless / 4);
    base_.add_sink(out, kEndless / 4);
    const bool reached = base_.augment(scratch_, limit_);
    base_.undo();
    return !reached;
  }

  bool can_part(std::uint32_t a, std::uint32_t b) {
    const bool with_a = on_accelerator(a, b);
    if (with_a && on_cpu(b)) return true;
    if (!with_a && !on_cpu(a)) return false;
    const bool with_b = on_accelerator(b, a);
    return with_b && ((with_a && problem_->num_accelerators > 1) || on_cpu(a));
  }

  const CutProblem* problem_;
  Flow limit_;
  MaxFlow base_;
  FlowScratch scratch_;
  std::vector<std::uint32_t> root_;
};

// group[unit] through `joined` (by class), numbered from 0 in order of first use.
std::size_t renumber(std::vector<std::uint32_t>& group, const std::vector<std::uint32_t>& joined) {
  std::vector<std::uint32_t> number(joined.size(), static_cast<std::uint32_t>(-1));
  std::uint32_t next = 0;
  for (std::uint32_t& g : group) {
    std::uint32_t& known = number[joined[g]];
    if (known == static_cast<std::uint32_t>(-1)) known = next++;
    g = known;
  }
  return next;
}

}  // namespace

std::vector<std::uint32_t> fuse_units(const UnitProblem& problem, double limit, double per_one,
                                      std::int64_t& steps) {
  std::vector<std::uint32_t> group = single_groups(problem);
  for (std::size_t before = group.size(); before > 0;) {
    const CutProblem cuts(problem, group, per_one);
    Fuser fuser(cuts, cuts.to_limit(limit));
    const std::size_t after = renumber(group, fuser.run());
    steps += fuser.steps();
    if (after == before) break;
    before = after;
  }
  return group;
}

}  // namespace kerf::partition
