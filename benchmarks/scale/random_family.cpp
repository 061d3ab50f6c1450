// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <deque>

#include "benchmarks/scale/recipes.h"

namespace kerf::families {
namespace {

constexpr std::size_t kNear = 24;         // most edges span fewer nodes
constexpr std::size_t kScopeNodes = 100;  // nodes of a module
constexpr std::uint64_t kLongOneIn = 50;  // edges from anywhere before

// A graph without rhyme: mostly local edges, some from far back, a few costs that dwarf the others.
class RandomModel {
 public:
  explicit RandomModel(const Size& size)
      : nodes_(size.nodes), model_("random", size.seed, size.noise) {}

  Model run() {
    made_.push_back(model_.input("x", {Expr::batch(), 256}));
    while (model_.num_nodes() < nodes_) add_node();
    return model_.finish({unused_.begin(), unused_.end()});
  }

 private:
  Rng& rng() { return model_.rng(); }

  void add_node() {
    const std::size_t number = model_.num_nodes();
    if (number % kScopeNodes == 0) {
      model_.enter(fmt::format("parts.{}", number / kScopeNodes), "Part");
    }
    Inputs inputs{first_input()};
    for (std::uint64_t extra = rng().below(3); extra > 0; --extra) inputs.push_back(any_input());
    const bool weighted = rng().below(3) == 0;
    const std::int64_t width = std::int64_t{64} << rng().below(8);
    if (weighted) inputs.push_back(model_.weight(fmt::format("weight{}", number), {width, 256}));
    const ValueId made = model_.add_timed(weighted ? "aten.linear.default" : "aten.add.Tensor",
                                          inputs, {Expr::batch(), width}, skewed_time());
    made_.push_back(made);
    unused_.push_back(made);
  }

  // What nobody used yet comes first, so that few ends stay loose.
  ValueId first_input() {
    if (unused_.empty()) return made_.front();
    const bool oldest = unused_.size() > kNear || rng().below(2) == 0;
    const ValueId id = oldest ? unused_.front() : unused_.back();
    if (oldest) {
      unused_.pop_front();
    } else {
      unused_.pop_back();
    }
    return id;
  }
  ValueId any_input() {
    if (rng().below(kLongOneIn) == 0) return made_[rng().below(made_.size())];
    return made_[made_.size() - 1 - rng().below(std::min(made_.size(), kNear))];
  }

  // Pareto's law, cut off: half below 20 microseconds, one in a thousand a hundred times that.
  Nanoseconds skewed_time() {
    return Nanoseconds{std::min(10e3 * std::pow(1 - rng().uniform(), -0.8), 2e6)};
  }

  std::size_t nodes_;
  ModelBuilder model_;
  Inputs made_;
  std::deque<ValueId> unused_;
};

}  // namespace

Model make_random(const Size& size) { return RandomModel(size).run(); }

}  // namespace kerf::families
