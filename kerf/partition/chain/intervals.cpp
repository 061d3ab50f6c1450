// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/intervals.h"

#include "kerf/graph/has_backward.h"

namespace kerf::partition {
namespace {

std::int32_t position(NodeId node) { return static_cast<std::int32_t>(node.index()); }

// The positions j in (from, to] at which a storage is left behind.
struct Span {
  std::int32_t from;
  std::int32_t to;
};

}  // namespace

// Gathers each node's changes, then packs them. The rules are those of simulate/footprint.cpp, and
// a test holds the two together.
struct Intervals::Collector {
  struct StorageFacts {
    bool weight = false;
    bool given = false;
    std::int32_t maker = kBefore;  // kBefore: graph input or weight
    std::int32_t last = kBefore;
    bool result = false;
    std::vector<ValueId> values;
  };

  const Problem& problem;
  const Graph& graph;
  std::int64_t batch;
  std::vector<std::vector<Change>> before;
  std::vector<std::vector<Change>> after;
  std::vector<StorageFacts> storages;
  std::vector<bool> is_result;

  explicit Collector(const Problem& given)
      : problem(given),
        graph(given.graph),
        batch(given.micro_batch()),
        before(graph.num_nodes()),
        after(graph.num_nodes()),
        storages(graph.storages().size()),
        is_result(graph.num_values()) {
    for (const GraphOutput& output : graph.outputs()) {
      for_each_value(output.leaf, [&](ValueId id) { is_result[id.index()] = true; });
    }
    for (std::size_t i = 0; i < graph.num_values(); ++i) note_value(ValueId{i});
  }

  void note_value(ValueId id) {
    const Value& value = graph.value(id);
    if (value.scalar) return;
    StorageFacts& facts = storages[value.storage.index()];
    for (const NodeId user : graph.consumers(id)) facts.last = std::max(facts.last, position(user));
    if (value.origin != Origin::node) {
      facts.given = true;
      facts.weight |= value.origin == Origin::weight;
      return;
    }
    const std::int32_t maker = position(value.producer);
    facts.maker = facts.values.empty() ? maker : std::min(facts.maker, maker);
    facts.last = std::max(facts.last, maker);
    facts.result |= is_result[id.index()];
    facts.values.push_back(id);
  }

  std::int64_t storage_bytes(std::size_t storage) const {
    return graph.storages()[storage].bytes.eval(batch);
  }

  void collect_values(Intervals& intervals) {
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      const Value& value = graph.values()[i];
      if (value.scalar || value.origin == Origin::weight) continue;
      const bool made = value.origin == Origin::node;
      const std::int64_t bytes = value.bytes(batch).count;
      std::int32_t previous = made ? position(value.producer) : kBefore;
      for (const NodeId user : graph.consumers(ValueId{i})) {
        before[user.index()].push_back(
            {previous, kAlways, made ? Kind::received : Kind::input, bytes});
        if (made) {
          intervals.received_[user.index()].push_back(
              {previous, position(value.producer), ValueId{i}});
        }
        previous = position(user);
      }
    }
  }

  // Sent from the maker on, until the interval takes in the last use.
  void collect_sent() {
    // Under `link` only gradients that come back cost their maker anything.
    const bool gradients = problem.comm_model == CommModel::link;
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      const Value& value = graph.values()[i];
      std::vector<NodeId> users(graph.consumers(ValueId{i}).begin(),
                                graph.consumers(ValueId{i}).end());
      if (value.scalar || value.origin != Origin::node) continue;
      if (gradients) {
        std::erase_if(users, [&](NodeId user) { return !has_backward(graph, user); });
        if (!value.requires_grad) continue;
      }
      if (users.empty()) continue;
      const std::int64_t bytes = value.bytes(batch).count;
      after[value.producer.index()].push_back({kBefore, kAlways, Kind::sent, bytes});
      after[users.back().index()].push_back({kBefore, position(value.producer), Kind::kept, bytes});
    }
  }

  void collect_weights(Intervals& intervals) {
    intervals.weights_before_.resize(graph.num_nodes() + 1);
    intervals.weights_after_.resize(graph.num_nodes() + 1);
    const std::vector<std::int64_t> copies = problem.weight_copies();
    std::vector<std::vector<NodeId>> users(storages.size());
    for (const Weight& weight : graph.weights()) {
      const Value& value = graph.value(weight.value);
      if (value.scalar) continue;
      for (const NodeId user : graph.consumers(weight.value)) {
        users[value.storage.index()].push_back(user);
      }
    }
    for (std::size_t s = 0; s < users.size(); ++s) {
      if (users[s].empty()) continue;
      std::sort(users[s].begin(), users[s].end());
      const std::int64_t bytes = storage_bytes(s) * copies[s];
      intervals.weights_before_[users[s].front().index() + 1] += bytes;
      intervals.weights_after_[users[s].back().index()] += bytes;
      std::int32_t previous = kBefore;
      for (const NodeId user : users[s]) {
        if (position(user) == previous) continue;
        before[user.index()].push_back({previous, kAlways, Kind::weight, bytes});
        previous = position(user);
      }
    }
    for (std::size_t p = 1; p <= graph.num_nodes(); ++p) {
      intervals.weights_before_[p] += intervals.weights_before_[p - 1];
    }
    for (std::size_t p = graph.num_nodes(); p-- > 0;) {
      intervals.weights_after_[p] += intervals.weights_after_[p + 1];
    }
  }

  // Allocated by the maker, released after the last use unless the caller gets it.
  void collect_lifetimes(Intervals& intervals) {
    for (std::size_t s = 0; s < storages.size(); ++s) {
      StorageFacts& facts = storages[s];
      if (facts.given) facts.maker = kBefore;
      if (facts.maker == kBefore) continue;
      intervals.nodes_[static_cast<std::size_t>(facts.maker)].allocated += storage_bytes(s);
      if (facts.result) continue;
      after[static_cast<std::size_t>(facts.last)].push_back(
          {kBefore, facts.maker, Kind::release, -storage_bytes(s)});
    }
    // The first write to a storage of an earlier stage clones it.
    std::vector<std::int32_t> previous(storages.size(), kBefore);
    for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
      for (const ValueId id : graph.nodes()[n].written) {
        const StorageId storage = graph.value(id).storage;
        if (!storage.valid() || storages[storage.index()].maker == kBefore) continue;
        std::int32_t& writer = previous[storage.index()];
        if (writer == static_cast<std::int32_t>(n)) continue;
        before[n].push_back({std::max(writer, storages[storage.index()].maker), kAlways,
                             Kind::allocate, storage_bytes(storage.index())});
        writer = static_cast<std::int32_t>(n);
      }
    }
  }

  // Where a value is left behind: from its maker to its last use, or to the end for a result.
  Span held_span(ValueId id) const {
    const auto users = graph.consumers(id);
    const std::int32_t maker = position(graph.value(id).producer);
    if (is_result[id.index()]) return {maker, kAlways};
    return {maker, users.empty() ? maker : position(users.back())};
  }

  void add_held(Span span, std::int32_t low, std::int32_t high, std::int64_t bytes) {
    if (span.from >= span.to) return;
    after[static_cast<std::size_t>(span.from)].push_back({low, high, Kind::held, bytes});
    if (span.to == kAlways) return;
    after[static_cast<std::size_t>(span.to)].push_back({low, high, Kind::held, -bytes});
  }

  void collect_held() {
    for (std::size_t s = 0; s < storages.size(); ++s) {
      const StorageFacts& facts = storages[s];
      if (facts.weight || facts.values.empty()) continue;
      // Allocated inside: the storage is left behind wherever one of its values is.
      if (facts.maker != kBefore) {
        for (const Span& span : joined_spans(facts)) {
          add_held(span, kBefore, facts.maker, storage_bytes(s));
        }
      }
      // Allocated before: each view made inside counts by itself.
      for (const ValueId id : facts.values) {
        const std::int64_t bytes = std::min(graph.value(id).bytes(batch).count, storage_bytes(s));
        const std::int32_t maker = position(graph.value(id).producer);
        if (maker > facts.maker) add_held(held_span(id), facts.maker, maker, bytes);
      }
    }
  }

  std::vector<Span> joined_spans(const StorageFacts& facts) const {
    std::vector<Span> spans;
    for (const ValueId id : facts.values) spans.push_back(held_span(id));
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.from < b.from; });
    std::vector<Span> joined;
    for (const Span& span : spans) {
      if (span.from >= span.to) continue;
      if (!joined.empty() && span.from <= joined.back().to) {
        joined.back().to = std::max(joined.back().to, span.to);
      } else {
        joined.push_back(span);
      }
    }
    return joined;
  }

  void collect_crossings(Intervals& intervals) const {
    std::vector<Crossing>& crossing = intervals.crossing_;
    crossing.resize(graph.num_nodes() + 2);
    for (std::size_t i = 0; i < graph.num_values(); ++i) {
      const Value& value = graph.values()[i];
      const auto users = graph.consumers(ValueId{i});
      if (value.scalar || value.origin != Origin::node || users.empty()) continue;
      const std::int64_t bytes = value.bytes(batch).count;
      Crossing& first = crossing[value.producer.index() + 1];
      Crossing& past = crossing[users.back().index() + 1];
      first = {first.count + 1, first.bytes + bytes};
      past = {past.count - 1, past.bytes - bytes};
    }
    for (std::size_t p = 1; p < crossing.size(); ++p) {
      crossing[p].count += crossing[p - 1].count;
      crossing[p].bytes += crossing[p - 1].bytes;
    }
  }

  void pack(Intervals& intervals) const {
    const auto size = [&] { return static_cast<std::uint32_t>(intervals.changes_.size()); };
    for (std::size_t n = 0; n < intervals.nodes_.size(); ++n) {
      intervals.nodes_[n].first = size();
      intervals.changes_.insert(intervals.changes_.end(), before[n].begin(), before[n].end());
      intervals.nodes_[n].after = size();
      intervals.changes_.insert(intervals.changes_.end(), after[n].begin(), after[n].end());
      intervals.nodes_[n].end = size();
    }
  }
};

Intervals::Intervals(const Problem& problem)
    : nodes_(problem.graph.num_nodes()), received_(problem.graph.num_nodes()) {
  work_before_.push_back(0);
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    nodes_[n].time = problem.node_time(NodeId{n}).count;
    nodes_[n].workspace = problem.profile.nodes[n].workspace().count;
    work_before_.push_back(work_before_.back() + nodes_[n].time);
  }
  Collector collector(problem);
  collector.collect_values(*this);
  collector.collect_weights(*this);
  collector.collect_lifetimes(*this);
  collector.collect_held();
  if (problem.training || problem.comm_model != CommModel::link) collector.collect_sent();
  collector.collect_crossings(*this);
  collector.pack(*this);
}

}  // namespace kerf::partition
