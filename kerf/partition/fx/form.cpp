// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "kerf/base/infinity.h"
#include "kerf/base/rows.h"
#include "kerf/base/sort_unique.h"
#include "kerf/base/topological_order.h"
#include "kerf/base/union_find.h"
#include "kerf/partition/fx/search.h"

namespace kerf::partition::fx {
namespace {

using Label = std::uint32_t;

class Former {
 public:
  Former(const Request& request, const OpTable& table, const Placement& placement)
      : request_(request), table_(table), placement_(placement), label_(table.size()) {
    for (Label op = 0; op < table.size(); ++op) label_[op] = op;
    limit_ = CriticalPath(table).update(placement.devices()) * (1 + 1e-12);
  }

  std::vector<Partition> run() {
    if (request_.cost_model == CostModel::serial) {
      divide();
    } else {
      for (const std::vector<std::uint32_t>& group : groups()) merge(group);
      join_pairs();
    }
    std::vector<Partition> formed = partitions();
    for (Partition& partition : formed) {
      partition.used_bytes = used_bytes(request_.graph, partition.nodes);
    }
    return formed;
  }

 private:
  // By device and by how often a path to the op has changed devices at most.
  std::vector<std::vector<std::uint32_t>> groups() const {
    std::vector<std::uint32_t> level(table_.size(), 0);
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::uint32_t>> by_level;
    for (std::uint32_t op = 0; op < table_.size(); ++op) {
      for (const OpTable::Edge& edge : table_.in(op)) {
        const bool crosses = placement_.device(edge.op) != placement_.device(op);
        level[op] = std::max(level[op], level[edge.op] + (crosses ? 1U : 0U));
      }
      by_level[{level[op], placement_.device(op)}].push_back(op);
    }
    std::vector<std::vector<std::uint32_t>> out;
    for (auto& [key, ops] : by_level) out.push_back(std::move(ops));
    return out;
  }

  // Intervals of a group, or unions of parts of it that do not touch, cannot close a cycle.
  void merge(const std::vector<std::uint32_t>& ops) {
    if (ops.size() < 2 || try_label(ops)) return;
    std::vector<std::vector<std::uint32_t>> parts = components(ops);
    if (parts.size() == 1) parts = halves(ops);
    for (const std::vector<std::uint32_t>& part : parts) merge(part);
  }

  bool try_label(const std::vector<std::uint32_t>& ops) {
    std::vector<Label> before;
    for (const std::uint32_t op : ops) before.push_back(label_[op]);
    for (const std::uint32_t op : ops) label_[op] = before.front();
    if (cost() <= limit_) return true;
    for (std::size_t i = 0; i < ops.size(); ++i) label_[ops[i]] = before[i];
    return false;
  }

  std::vector<std::vector<std::uint32_t>> components(const std::vector<std::uint32_t>& ops) const {
    std::vector<bool> inside(table_.size());
    for (const std::uint32_t op : ops) inside[op] = true;
    UnionFind joined(table_.size());
    for (const std::uint32_t op : ops) {
      for (const OpTable::Edge& edge : table_.in(op)) {
        if (inside[edge.op]) joined.join(edge.op, op);
      }
    }
    std::map<std::uint32_t, std::vector<std::uint32_t>> parts;
    for (const std::uint32_t op : ops) parts[joined.find(op)].push_back(op);
    std::vector<std::vector<std::uint32_t>> out;
    for (auto& [key, part] : parts) out.push_back(std::move(part));
    return out;
  }

  // The serial model waits for whole partitions, and its times are estimates: groups stay whole and
  // are halved only where that gains more than a little.
  void divide() {
    constexpr double kGain = 0.995;
    std::vector<std::vector<std::uint32_t>> waiting = groups();
    for (const auto& group : waiting) relabel(group, group.front());
    double now = cost();
    while (!waiting.empty() && work_ > 0) {
      const std::vector<std::uint32_t> group = std::move(waiting.back());
      waiting.pop_back();
      if (group.size() < 2) continue;
      std::vector<std::vector<std::uint32_t>> parts = components(group);
      if (parts.size() == 1) parts = halves(group);
      for (const auto& part : parts) relabel(part, part.front());
      const double after = cost();
      if (after > now * kGain) {
        relabel(group, group.front());
        continue;
      }
      now = after;
      for (auto& part : parts) waiting.push_back(std::move(part));
    }
  }
  void relabel(const std::vector<std::uint32_t>& ops, Label label) {
    for (const std::uint32_t op : ops) label_[op] = label;
  }
  static std::vector<std::vector<std::uint32_t>> halves(const std::vector<std::uint32_t>& ops) {
    const auto middle = ops.begin() + static_cast<std::ptrdiff_t>(ops.size() / 2);
    return {{ops.begin(), middle}, {middle, ops.end()}};
  }

  // Last, any two partitions of one device, as long as the work allows.
  void join_pairs() {
    std::vector<Label> labels = label_;
    sort_unique(labels);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      for (std::size_t j = i + 1; j < labels.size() && work_ > 0;) {
        const bool together = placement_.device(labels[i]) == placement_.device(labels[j]);
        if (together && try_join(labels[i], labels[j])) {
          labels.erase(labels.begin() + static_cast<std::ptrdiff_t>(j));
        } else {
          ++j;
        }
      }
    }
  }
  bool try_join(Label a, Label b) {
    std::vector<std::uint32_t> moved;
    for (std::uint32_t op = 0; op < table_.size(); ++op) {
      if (label_[op] == b) moved.push_back(op);
    }
    for (const std::uint32_t op : moved) label_[op] = a;
    if (cost() <= limit_) return true;
    for (const std::uint32_t op : moved) label_[op] = b;
    return false;
  }

  // Of the present labels; infinity when they wait for each other.
  double cost() {
    const auto ops = static_cast<std::int64_t>(table_.size());
    if (request_.cost_model == CostModel::critical_path) {
      work_ -= ops;
      return critical_path();
    }
    work_ -= 10 * ops;  // what building and simulating take
    return serial_latency(request_, partitions());
  }

  // graph_latency of the partitions without building them, which takes three times as long. A label
  // is the number of an op that has it, so arrays by op serve for labels too.
  double critical_path() {
    const auto count = static_cast<std::uint32_t>(table_.size());
    Rows label_of;
    std::vector<double> inside(count);      // the longest path within the label that ends here
    std::vector<double> overall(count, 0);  // by label
    for (std::uint32_t op = 0; op < count; ++op) {
      for (const OpTable::Edge& edge : table_.in(op)) {
        if (label_[edge.op] == label_[op]) inside[op] = std::max(inside[op], inside[edge.op]);
      }
      inside[op] += table_.time[op];
      overall[label_[op]] = std::max(overall[label_[op]], inside[op]);
      label_of.append({&label_[op], 1});
    }
    members_ = transpose(label_of, count);
    const auto order = first_come_order(count, [&](Label from, const auto& visit) {
      for (const std::uint32_t op : members_[from]) {
        for (const OpTable::Edge& edge : table_.out(op)) {
          if (label_[edge.op] != from) visit(label_[edge.op]);
        }
      }
    });
    if (order.size() < count) return kInfinity;
    double length = 0;
    arrival_.assign(count, 0);
    for (const Label from : order) {
      const double end = arrival_[from] + overall[from];
      length = std::max(length, end);
      send(from, end);
    }
    return length;
  }

  // Bytes to each reader count every tensor once, and the leaves that both hold.
  void send(Label from, double end) {
    sent_.clear();
    for (const std::uint32_t op : members_[from]) {
      for (const OpTable::Edge& edge : table_.out(op)) {
        const Label to = label_[edge.op];
        if (to == from) continue;
        arrival_[to] = std::max(arrival_[to], end);
        if (placement_.device(edge.op) != placement_.device(op)) sent_.emplace_back(to, op);
      }
    }
    if (!(request_.rate > 0)) return;
    sort_unique(sent_);
    for (std::size_t i = 0; i < sent_.size();) {
      const Label to = sent_[i].first;
      std::int64_t bytes = common_leaf_bytes(from, to);
      for (; i < sent_.size() && sent_[i].first == to; ++i) {
        bytes += table_.output_bytes[sent_[i].second];
      }
      arrival_[to] = std::max(arrival_[to], end + static_cast<double>(bytes) / request_.rate);
    }
  }
  std::int64_t common_leaf_bytes(Label a, Label b) const {
    const auto leaves_of = [&](Label label) {
      std::vector<OpIndex> leaves;
      for (const std::uint32_t op : members_[label]) {
        for (const OpIndex input : request_.graph.inputs(table_.node[op])) {
          if (request_.graph.node(input).leaf) leaves.push_back(input);
        }
      }
      sort_unique(leaves);
      return leaves;
    };
    std::int64_t bytes = 0;
    const std::vector<OpIndex> others = leaves_of(b);
    for (const OpIndex leaf : leaves_of(a)) {
      const bool common = std::binary_search(others.begin(), others.end(), leaf);
      if (common) bytes += request_.graph.node(leaf).output_size;
    }
    return bytes;
  }

  // Numbered by their first op; without bytes.
  std::vector<Partition> partitions() const {
    std::vector<Partition> out;
    std::vector<std::size_t> number(table_.size(), table_.size());
    std::vector<std::vector<OpIndex>> ops;
    for (std::uint32_t op = 0; op < table_.size(); ++op) {
      std::size_t& at = number[label_[op]];
      if (at == table_.size()) {
        at = out.size();
        out.emplace_back().device_ids = {request_.devices[placement_.device(op)].id};
        ops.emplace_back();
      }
      ops[at].push_back(table_.node[op]);
    }
    for (std::size_t p = 0; p < out.size(); ++p) {
      out[p].nodes = with_leaves(request_.graph, ops[p]);
    }
    reorganize(request_.graph, out);
    return out;
  }

  const Request& request_;
  const OpTable& table_;
  const Placement& placement_;
  std::vector<Label> label_;
  double limit_ = 0;
  std::int64_t work_ = 10'000'000;  // visits of ops

  Rows members_;  // ops of each label
  std::vector<double> arrival_;
  std::vector<std::pair<Label, std::uint32_t>> sent_;  // reader, tensor
};

}  // namespace

std::vector<Partition> form_partitions(const Request& request, const OpTable& table,
                                       const Placement& placement) {
  return Former(request, table, placement).run();
}

}  // namespace kerf::partition::fx
