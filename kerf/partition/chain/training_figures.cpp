// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/training_figures.h"

#include <algorithm>
#include <utility>

#include "kerf/base/stop_clock.h"
#include "kerf/device/kind.h"
#include "kerf/graph/has_backward.h"
#include "kerf/plan/loss_memory.h"
#include "kerf/plan/recompute.h"
#include "kerf/plan/schedule/schedule.h"
#include "kerf/profile/saved/saved.h"

namespace kerf::partition {
namespace {

std::int32_t place_of(NodeId node) { return static_cast<std::int32_t>(node.index()); }

// For intervals that start at i with low < i <= high (intervals.h): a figure changes.
struct Change {
  std::int32_t low;
  std::int32_t high;
  std::int64_t TrainingFigures::*figure;
  std::int64_t bytes;
};

// A node that keeps a value of a storage for backward; inside a block that is computed again only
// where the interval starts after `made`.
struct Keeper {
  std::int32_t node;
  std::int32_t made = kBefore;
};

struct StorageFacts {
  bool given = false;  // weight or input of the graph
  bool weight = false;
  bool result = false;
  std::int32_t maker = kBefore;   // the first node that makes a value of it
  std::int32_t last = kBefore;    // use
  std::vector<ValueId> values;    // but weights
  std::vector<Keeper> keepers;    // ascending
  std::int32_t keeper = kAlways;  // the first that keeps it where the interval has the maker
};

// What each node changes, found once.
class Collector {
 public:
  explicit Collector(const Problem& problem)
      : problem_(problem),
        graph_(problem.graph),
        batch_(problem.micro_batch()),
        storages_(graph_.storages().size()),
        is_result_(graph_.num_values()),
        before(graph_.num_nodes()),
        after(graph_.num_nodes()),
        allocated(graph_.num_nodes()),
        own(graph_.num_nodes()),
        released(graph_.num_nodes()),
        again(graph_.num_nodes()),
        kept_again(graph_.num_nodes()),
        made_again(graph_.num_nodes()),
        waiting(graph_.num_nodes()),
        making(graph_.num_nodes()) {
    for (const GraphOutput& output : graph_.outputs()) {
      for_each_value(output.leaf, [&](ValueId id) { is_result_[id.index()] = true; });
    }
    for (std::size_t i = 0; i < graph_.num_values(); ++i) note_value(ValueId{i});
    find_keepers();
    for (std::size_t s = 0; s < storages_.size(); ++s) collect_storage(s);
    collect_gradients();
    collect_trained();
    collect_waiting();
  }

 private:
  const Problem& problem_;
  const Graph& graph_;
  std::int64_t batch_;
  std::vector<StorageFacts> storages_;
  std::vector<bool> is_result_;

 public:
  // By node.
  std::vector<std::vector<Change>> before;  // the peak is read
  std::vector<std::vector<Change>> after;
  std::vector<std::int64_t> allocated;  // that stays or is released by a change
  std::vector<std::int64_t> own;        // kept, and known to the node alone

  // What a backward that runs down to a node has released: for ends beyond `used`.
  struct Release {
    std::int32_t used;
    std::int64_t bytes;
  };
  std::vector<std::vector<Release>> released;
  // By node of a block that is computed again: its own tensors, storages that it keeps then, and
  // those that it makes. A block has what it both makes and keeps.
  std::vector<std::int64_t> again;
  std::vector<std::vector<std::uint32_t>> kept_again;
  std::vector<std::vector<std::uint32_t>> made_again;
  // Of nodes with weights, where their gradients are apart: what the backward was given, and what
  // making those gradients takes.
  std::vector<std::int64_t> waiting;
  std::vector<std::int64_t> making;

 private:
  std::int64_t storage_bytes(std::size_t s) const {
    return graph_.storages()[s].bytes.eval(batch_);
  }
  std::uint32_t block_of(std::size_t node) const {
    return problem_.recompute_block.empty() ? 0 : problem_.recompute_block[node];
  }

  void note_value(ValueId id) {
    const Value& value = graph_.value(id);
    if (value.scalar) return;
    StorageFacts& facts = storages_[value.storage.index()];
    for (const NodeId user : graph_.consumers(id)) {
      facts.last = std::max(facts.last, place_of(user));
    }
    facts.weight |= value.origin == Origin::weight;
    facts.given |= value.origin != Origin::node;
    facts.result |= is_result_[id.index()];
    if (value.origin != Origin::weight) facts.values.push_back(id);
    if (value.origin != Origin::node) return;
    const std::int32_t maker = place_of(value.producer);
    facts.maker = facts.maker == kBefore ? maker : std::min(facts.maker, maker);
    facts.last = std::max(facts.last, maker);
  }

  void find_keepers() {
    const SavedSets saved =
        find_saved(graph_, batch_, is_accelerator_kind(problem_.profile.device_kind),
                   std::vector<RegionNumber>(graph_.num_nodes(), kNoRegion));
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (!has_backward(graph_, NodeId{n})) continue;
      const bool in_block = block_of(n) != 0;
      for (const SavedTensor& tensor : saved.of(NodeId{n})) {
        if (!tensor.value.valid()) {
          (in_block ? again : own)[n] += tensor.bytes.count;
        } else if (!in_block) {
          add_keeper(graph_.value(tensor.value), {static_cast<std::int32_t>(n)});
        } else {
          note_again(n, tensor.value);
        }
      }
      if (!in_block) continue;
      for (const ValueId id : graph_.inputs_of(NodeId{n})) {
        const Value& value = graph_.value(id);
        if (value.scalar) continue;
        const bool inside =
            value.origin == Origin::node && block_of(value.producer.index()) == block_of(n);
        add_keeper(value,
                   {static_cast<std::int32_t>(n), inside ? place_of(value.producer) : kBefore});
      }
    }
  }

  // A value that a block keeps while it runs again.
  void note_again(std::size_t node, ValueId id) {
    const Value& value = graph_.value(id);
    if (value.origin != Origin::node || !value.storage.valid()) return;
    if (block_of(value.producer.index()) != block_of(node)) return;
    const auto storage = static_cast<std::uint32_t>(value.storage.index());
    kept_again[node].push_back(storage);
    std::vector<std::uint32_t>& made = made_again[value.producer.index()];
    if (std::find(made.begin(), made.end(), storage) == made.end()) made.push_back(storage);
  }

  void add_keeper(const Value& value, const Keeper& keeper) {
    if (!value.storage.valid()) return;
    StorageFacts& facts = storages_[value.storage.index()];
    if (!facts.weight) facts.keepers.push_back(keeper);
  }

  void collect_storage(std::size_t s) {
    StorageFacts& facts = storages_[s];
    if (facts.weight) return;
    collect_received(facts);
    if (facts.given || facts.maker == kBefore) return;
    const std::int64_t bytes = storage_bytes(s);
    for (const Keeper& keeper : facts.keepers) {
      if (keeper.made == kBefore) facts.keeper = std::min(facts.keeper, keeper.node);
    }
    const auto add = [&](std::int32_t node, std::int64_t TrainingFigures::*figure,
                         std::int64_t change) {
      after[static_cast<std::size_t>(node)].push_back({kBefore, facts.maker, figure, change});
    };
    allocated[static_cast<std::size_t>(facts.maker)] += bytes;
    if (facts.result) return add(facts.maker, &TrainingFigures::results, bytes);
    // Made for later stages until the interval takes in the last use, or keeps it itself.
    const std::int32_t end = std::min(facts.last, facts.keeper);
    if (end > facts.maker) {
      add(facts.maker, &TrainingFigures::outputs, bytes);
      add(end, &TrainingFigures::outputs, -bytes);
    }
    if (facts.keeper != kAlways) {
      add(facts.keeper, &TrainingFigures::kept, bytes);
      released[static_cast<std::size_t>(facts.keeper)].push_back({facts.last, bytes});
    } else {
      add(facts.last, &TrainingFigures::live, -bytes);
    }
  }

  // Values from before the interval whose storage a node of it keeps, from when on the interval has
  // both a use of the value and the keeper.
  void collect_received(const StorageFacts& facts) {
    for (const ValueId id : facts.values) {
      const Value& value = graph_.value(id);
      const auto users = graph_.consumers(id);
      const std::int32_t made = value.origin == Origin::node ? place_of(value.producer) : kBefore;
      const auto last_use = [&](std::int32_t until) {
        std::int32_t last = kBefore;
        for (const NodeId user : users) {
          if (place_of(user) <= until) last = std::max(last, place_of(user));
        }
        return last;
      };
      std::int32_t counted = kBefore;
      for (const Keeper& keeper : facts.keepers) {
        const std::int32_t use = last_use(keeper.node);
        const std::int32_t low = std::max({made, counted, keeper.made});
        if (use > low) {
          before[static_cast<std::size_t>(keeper.node)].push_back(
              {low, use, &TrainingFigures::received, value.bytes(batch_).count});
        }
        counted = std::max(counted, use);
      }
    }
  }

  void collect_gradients() {
    for (std::size_t i = 0; i < graph_.num_values(); ++i) {
      const Value& value = graph_.values()[i];
      if (value.scalar || value.origin != Origin::node || !value.requires_grad) continue;
      const std::int64_t bytes = value.bytes(batch_).count;
      std::int32_t previous = place_of(value.producer);
      for (const NodeId user : graph_.consumers(ValueId{i})) {
        if (!has_backward(graph_, user)) continue;
        before[user.index()].push_back({previous, kAlways, &TrainingFigures::grad_out, bytes});
        previous = place_of(user);
      }
      if (previous == place_of(value.producer)) continue;
      const std::int32_t maker = place_of(value.producer);
      after[value.producer.index()].push_back({kBefore, maker, &TrainingFigures::grad_in, bytes});
      after[static_cast<std::size_t>(previous)].push_back(
          {kBefore, maker, &TrainingFigures::grad_in, -bytes});
    }
  }

  // What waits for gradients of weights, where these are apart.
  void collect_waiting() {
    if (!schedule_kind(problem_.schedule).apart) return;
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      const std::int64_t weights = trained_weights(NodeId{n});
      if (weights == 0) continue;
      making[n] = weights + problem_.profile.node(NodeId{n}).backward_workspace.count;
      for (const ValueId id : graph_.node(NodeId{n}).outputs) {
        if (!id.valid() || graph_.value(id).scalar || !graph_.value(id).requires_grad) continue;
        waiting[n] += graph_.value(id).bytes(batch_).count;
      }
    }
  }

  std::int64_t trained_weights(NodeId node) const {
    std::int64_t sum = 0;
    for (const ValueId id : graph_.inputs_of(node)) {
      const Value& value = graph_.value(id);
      const bool trained = !value.scalar && value.requires_grad && value.origin == Origin::weight;
      if (trained && has_backward(graph_, node)) sum += value.bytes(batch_).count;
    }
    return sum;
  }

  void collect_trained() {
    const std::vector<bool> trained = trained_storages(graph_);
    std::vector<std::int32_t> previous(storages_.size(), kBefore);
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      for (const ValueId id : graph_.inputs_of(NodeId{n})) {
        const Value& value = graph_.value(id);
        if (value.scalar || value.origin != Origin::weight) continue;
        const std::size_t s = value.storage.index();
        if (!trained[s] || previous[s] == static_cast<std::int32_t>(n)) continue;
        before[n].push_back({previous[s], kAlways, &TrainingFigures::trained, storage_bytes(s)});
        previous[s] = static_cast<std::int32_t>(n);
      }
    }
  }
};

// Backwards from each of the positions down to each before it.
class BackwardWalk {
 public:
  BackwardWalk(const Problem& problem, const Collector& nodes)
      : problem_(problem),
        graph_(problem.graph),
        batch_(problem.micro_batch()),
        nodes_(nodes),
        apart_(schedule_kind(problem.schedule).apart),
        loss_(loss_memory(problem.graph, problem.micro_batch())),
        is_result_(graph_.num_values()),
        alive_in_(graph_.num_values(), 0),
        kept_in_(graph_.storages().size(), 0) {
    for (const GraphOutput& output : graph_.outputs()) {
      for_each_value(output.leaf, [&](ValueId id) { is_result_[id.index()] = true; });
    }
  }

  // Calls visit(i, peak) for i = end - 1, end - 2, ...: of the interval [i, end). `keeps`: what
  // operators with weights were given stays, where gradients of weights are apart.
  template <class Visit>
  void run(std::size_t end, bool keeps, Visit&& visit) {
    keeps_ = keeps;
    walk_ += 2;
    std::int64_t live = 0;
    std::int64_t most = 0;        // outside of the block under way
    std::int64_t block_most = 0;  // in it, but for what it makes again
    std::int64_t again = 0;
    std::uint32_t block = 0;
    for (std::size_t n = end; n-- > 0;) {
      const std::uint32_t own_block =
          problem_.recompute_block.empty() ? 0 : problem_.recompute_block[n];
      if (own_block != block) {
        if (block != 0) most = std::max(most, block_most + again);
        block = own_block;
        block_most = again = 0;
      }
      again += nodes_.again[n];
      for (const std::uint32_t storage : nodes_.kept_again[n]) {
        if (kept_in_[storage] != counted()) kept_in_[storage] = walk_;
      }
      for (const std::uint32_t storage : nodes_.made_again[n]) {
        if (kept_in_[storage] != walk_) continue;
        kept_in_[storage] = counted();
        again += graph_.storages()[storage].bytes.eval(batch_);
      }
      if (NodeId{n} == loss_.node) most = std::max(most, loss_.bytes.count);
      const std::int64_t here = has_backward(graph_, NodeId{n}) ? step(NodeId{n}, live) : 0;
      (block == 0 ? most : block_most) = std::max(block == 0 ? most : block_most, here);
      if (!apart_) {
        live -= nodes_.own[n];
        for (const Collector::Release& release : nodes_.released[n]) {
          if (release.used < static_cast<std::int32_t>(end)) live -= release.bytes;
        }
      }
      visit(n, std::max(most, block == 0 ? 0 : block_most + again));
    }
  }

 private:
  bool has_gradient(ValueId id) const {
    const Value& value = graph_.value(id);
    return !value.scalar && value.requires_grad;
  }
  std::int64_t bytes(ValueId id) const { return graph_.value(id).bytes(batch_).count; }
  bool revive(ValueId id) {
    if (alive_in_[id.index()] == walk_) return false;
    alive_in_[id.index()] = walk_;
    return true;
  }

  // What there is while the node's backward runs; `live` without its results' gradients after it.
  std::int64_t step(NodeId node, std::int64_t& live) {
    std::int64_t passing = problem_.profile.node(node).backward_workspace.count;
    for (const ValueId id : graph_.node(node).outputs) {
      if (!id.valid() || !is_result_[id.index()] || !has_gradient(id)) continue;
      if (revive(id)) live += bytes(id);
    }
    for (const ValueId id : graph_.inputs_of(node)) {
      if (!has_gradient(id)) continue;
      if (graph_.value(id).origin == Origin::weight) {
        if (problem_.n_microbatches > 1) passing += bytes(id);
      } else if (revive(id)) {
        live += bytes(id);
      } else {
        passing += bytes(id);
      }
    }
    const std::int64_t here = live + passing;
    for (const ValueId id : graph_.node(node).outputs) {
      if (!id.valid() || alive_in_[id.index()] != walk_) continue;
      alive_in_[id.index()] = 0;
      if (!keeps_ || nodes_.waiting[node.index()] == 0) live -= bytes(id);
    }
    return here;
  }

  const Problem& problem_;
  const Graph& graph_;
  std::int64_t batch_;
  const Collector& nodes_;
  bool apart_;
  bool keeps_ = false;
  LossMemory loss_;
  std::vector<bool> is_result_;
  std::vector<std::uint32_t> alive_in_;  // by value: the walk in which its gradient is there
  // By storage: the walk in which a block keeps it when it runs again, or has made it, too.
  std::vector<std::uint32_t> kept_in_;
  std::uint32_t walk_ = 0;  // even
  std::uint32_t counted() const { return walk_ + 1; }
};

void apply(const std::vector<Change>& changes, std::size_t start, TrainingFigures& figures) {
  const auto i = static_cast<std::int32_t>(start);
  for (const Change& change : changes) {
    if (change.low < i && i <= change.high) figures.*change.figure += change.bytes;
  }
}

}  // namespace

std::int64_t TrainingFigures::activations(std::span<const Moment> moments) const {
  std::int64_t most = 0;
  for (const Moment& moment : moments) {
    std::int64_t sum = kept * moment.kept + received * moment.received + outputs * moment.outputs +
                       results * moment.results + grad_out * moment.gradients +
                       waiting * moment.waiting;
    if (moment.running == Moment::Running::forward) {
      sum += peak + forward.received + forward.inputs - received;
    } else if (moment.running == Moment::Running::backward) {
      sum += backward + grad_in;
    } else if (moment.running == Moment::Running::weights) {
      sum += weights;
    }
    most = std::max(most, sum);
  }
  return most;
}

TrainingTable::TrainingTable(const Problem& problem, const Intervals& intervals,
                             std::vector<std::size_t> positions)
    : positions_(std::move(positions)), figures_(positions_.size() * positions_.size()) {
  constexpr std::int64_t kStepsOfANode = 4;
  const Collector nodes(problem);
  std::vector<std::size_t> number(intervals.num_nodes() + 1, positions_.size());
  for (std::size_t p = 0; p < positions_.size(); ++p) number[positions_[p]] = p;
  for (std::size_t first = 0; first + 1 < positions_.size(); ++first) {
    TrainingFigures figures;
    intervals.scan(positions_[first], [&](std::size_t end, const IntervalFigures& forward) {
      const std::size_t n = end - 1;
      const std::int64_t extra = forward.peak;
      figures.live += nodes.allocated[n] + nodes.own[n];
      figures.kept += nodes.own[n];
      figures.waiting += nodes.waiting[n];
      apply(nodes.before[n], positions_[first], figures);
      figures.peak = std::max(
          {figures.peak, extra, figures.live + problem.profile.nodes[n].workspace().count});
      apply(nodes.after[n], positions_[first], figures);
      if (number[end] == positions_.size()) return true;
      TrainingFigures& out = figures_[first * positions_.size() + number[end]];
      out = figures;
      out.forward = forward;
      return true;
    });
  }
  BackwardWalk walk(problem, nodes);
  for (std::size_t last = 1; last < positions_.size(); ++last) {
    count_steps(kStepsOfANode * static_cast<std::int64_t>(positions_[last]));
    const auto for_each = [&](bool keeps, auto&& use) {
      walk.run(positions_[last], keeps, [&](std::size_t i, std::int64_t peak) {
        if (number[i] != positions_.size()) {
          use(figures_[number[i] * positions_.size() + last], i, peak);
        }
      });
    };
    for_each(false, [](TrainingFigures& figures, std::size_t, std::int64_t peak) {
      figures.backward = peak;
    });
    if (!schedule_kind(problem.schedule).apart) continue;
    // An interval that sends no gradient does all of its backward with its gradients of weights.
    std::int64_t most = 0;
    std::size_t first = positions_[last];
    for_each(true, [&](TrainingFigures& figures, std::size_t i, std::int64_t peak) {
      while (first > i) most = std::max(most, nodes.making[--first]);
      figures.weights = figures.grad_out == 0 ? figures.backward : most;
      if (figures.grad_out == 0) figures.waiting = figures.grad_in;
      if (figures.grad_out != 0) figures.backward = peak;
    });
  }
}

}  // namespace kerf::partition
