// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Small random graphs that hold everything a traced model can: views, in-place writes through them,
// results that may or may not alias, several or no outputs, scalars, tied weights, sizes in B,
// scopes, modes and regions. The same seed gives the same graph on every machine.
//
//   Graph graph = random_graph(seed, {.num_nodes = 40});
//
// All tensors are vectors of 4-byte elements; operators are named after what they do to memory and
// tests/graph/toy_run.h can run them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <complex>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/graph/graph.h"

namespace kerf {

struct RandomGraphOptions {
  std::size_t num_nodes = 24;
  bool batch = true;           // sizes depend on B
  bool writes = true;          // in-place operators
  bool outside_writes = true;  // in-place operators on inputs and weights, too
  bool may_alias = true;       // operators whose result may share memory
  bool decorate = true;        // scopes, sources, regions, modes, notes, odd names and constants
};

class RandomGraphMaker {
 public:
  RandomGraphMaker(std::uint64_t seed, RandomGraphOptions options)
      : rng_(seed * 0x9e3779b9U + 17), options_(options) {}

  GraphData run() {
    data_.name = fmt::format("random {}", rng_.below(1000));
    data_.training = chance(2);
    data_.example_batch = options_.batch ? static_cast<std::int64_t>(2 + rng_.below(3)) : 0;
    data_.scopes.push_back({});
    if (options_.decorate) add_scopes();
    add_inputs();
    add_weights();
    while (data_.nodes.size() < options_.num_nodes) add_node();
    add_outputs();
    return std::move(data_);
  }

 private:
  using Ids = std::vector<ValueId>;

  bool chance(std::uint64_t one_in) { return rng_.below(one_in) == 0; }

  void add_scopes() {
    data_.scopes[0].class_name = "Toy";
    const std::uint64_t count = 1 + rng_.below(4);
    for (std::uint64_t i = 0; i < count; ++i) {
      data_.scopes.push_back(
          {fmt::format("blocks.{}", i), i % 2 == 0 ? "Block" : "Odd \"Block\"\n"});
    }
    if (chance(2)) data_.notes.push_back("a note\twith \"quotes\" and \\ in it");
    add_conditions();
    add_attributes();
    if (chance(2)) data_.in_spec = R"({"type": "tuple"})";
    if (chance(2)) data_.out_spec = R"({"type": "dict"})";
  }

  // Of any form, turned so that it holds for the example.
  void add_conditions() {
    for (std::uint64_t left = options_.batch ? rng_.below(4) : 0; left > 0; --left) {
      Condition condition{random_size(), static_cast<Relation>(rng_.below(4)), random_size(), {}};
      if (!condition.holds(data_.example_batch)) {
        const bool strict = condition.relation == Relation::less;
        const bool order = strict || condition.relation == Relation::less_equal;
        if (order) std::swap(condition.left, condition.right);
        condition.relation = order ? (strict ? Relation::less_equal : Relation::less)
                             : condition.relation == Relation::equal ? Relation::not_equal
                                                                     : Relation::equal;
      }
      if (chance(2)) condition.source = fmt::format("model \"x\".py:{}", rng_.below(500));
      data_.conditions.push_back(std::move(condition));
    }
  }

  void add_attributes() {
    for (std::uint64_t left = rng_.below(4); left > 0; --left) {
      Argument value = constant(/*fixed=*/true);
      data_.attributes.push_back({chance(2) ? "" : "blocks.0", "odd \"name\"", std::move(value)});
    }
  }

  Expr random_length() {
    const auto constant = static_cast<std::int64_t>(rng_.below(6));
    const auto slope =
        options_.batch && chance(2) ? static_cast<std::int64_t>(1 + rng_.below(3)) : 0;
    return Expr::linear(slope == 0 ? constant + 2 : constant, slope);
  }

  // A value in storage of its own.
  ValueId fresh(std::string name, Expr length) {
    Value value;
    value.name = std::move(name);
    value.shape = {length};
    value.strides = {1};
    value.storage = StorageId(data_.storages.size());
    value.requires_grad = chance(3);
    data_.storages.push_back({length * Expr(4) + Expr(chance(5) ? 64 : 0)});
    return push(std::move(value));
  }

  ValueId push(Value value) {
    data_.values.push_back(std::move(value));
    return ValueId(data_.values.size() - 1);
  }

  // Another name for a part of a value: all of it, all but the first element, or every second one.
  ValueId view(std::string name, ValueId of, std::uint64_t kind) {
    Value value = data_.values[of.index()];
    value.name = std::move(name);
    const Expr length = value.shape[0];
    const auto set_first = [](Sizes& sizes, Expr first) {
      std::vector<Expr> list = sizes.list();
      list[0] = std::move(first);
      sizes = std::move(list);
    };
    if (kind == 1 && length.eval(1) >= 2) {
      value.offset = value.offset + value.strides[0] * Expr(4);
      set_first(value.shape, length - Expr(1));
    } else if (kind == 2 && length.is_constant() && length.constant() >= 2) {
      set_first(value.shape, Expr((length.constant() + 1) / 2));
      set_first(value.strides, value.strides[0] * Expr(2));
    } else if (kind == 3 && length.eval(1) >= 2) {
      set_first(value.shape, length - Expr(1));
    }
    return push(std::move(value));
  }

  void add_inputs() {
    const std::uint64_t count = 1 + rng_.below(3);
    for (std::uint64_t i = 0; i < count; ++i) {
      const ValueId id = fresh(fmt::format("x{}", i), random_length());
      data_.inputs.push_back({id, fmt::format("args.{}", i)});
      outside_.push_back(id);
    }
    if (chance(4)) {  // one tensor, passed twice
      const ValueId id = view("x_again", outside_[0], 0);
      data_.inputs.push_back({id, "kwargs.again"});
      outside_.push_back(id);
    }
  }

  void add_weights() {
    static constexpr WeightKind kKinds[] = {WeightKind::parameter, WeightKind::buffer,
                                            WeightKind::non_persistent_buffer,
                                            WeightKind::constant};
    const std::uint64_t count = rng_.below(4);
    for (std::uint64_t i = 0; i < count; ++i) {
      const ValueId id =
          fresh(fmt::format("w{}", i), Expr(static_cast<std::int64_t>(2 + rng_.below(4))));
      std::vector<std::string> names{fmt::format("layer.{}.weight", i)};
      if (chance(3)) names.push_back(fmt::format("head.{}.weight", i));
      data_.weights.push_back({id, kKinds[rng_.below(4)], names, {}});
      outside_.push_back(id);
    }
    if (!data_.weights.empty() && chance(3)) {  // two weights in one storage
      const ValueId id = view("w_part", data_.weights[0].value, 1);
      data_.weights.push_back({id, WeightKind::parameter, {"part.weight"}, {}});
      outside_.push_back(id);
    }
  }

  // Late values are likelier: graphs grow long rather than wide.
  ValueId pick() {
    if (made_.empty() || chance(6)) return outside_[rng_.below(outside_.size())];
    if (chance(2))
      return made_[made_.size() - 1 - rng_.below(std::min<std::size_t>(made_.size(), 5))];
    return made_[rng_.below(made_.size())];
  }
  ValueId pick_written() {
    if (options_.outside_writes && chance(12)) return outside_[rng_.below(outside_.size())];
    if (made_.empty()) return {};
    return made_[made_.size() - 1 - rng_.below(std::min<std::size_t>(made_.size(), 8))];
  }

  std::string next_name() {
    const std::size_t n = data_.nodes.size();
    if (options_.decorate && chance(20)) return fmt::format("odd name {}\"", n);
    return fmt::format("n{}", n);
  }

  static NamedArgument use(ValueId id) { return {"", {id}}; }

  void add_node() {
    Node node;
    node.name = next_name();
    const std::uint64_t kind = rng_.below(100);
    if (kind < 30) {
      make(node);
    } else if (kind < 55) {
      make_view(node);
    } else if (kind < 80 && options_.writes) {
      make_write(node);
    } else if (kind < 90 && options_.may_alias) {
      make_may_alias(node);
    } else if (kind < 95) {
      make_scalar(node);
    } else {
      make_several(node);
    }
    if (options_.decorate) decorate(node);
    data_.nodes.push_back(std::move(node));
  }

  void make(Node& node) {
    node.op = "toy.combine.default";
    node.args = {use(pick()), use(pick())};
    if (!scalars_.empty() && chance(4))
      node.args.push_back(use(scalars_[rng_.below(scalars_.size())]));
    output(node, fresh(node.name, random_length()));
  }

  void make_view(Node& node) {
    const ValueId of = pick();
    node.args = {use(of)};
    if (chance(5)) {
      node.op = "toy.split.default";
      output(node, view(node.name, of, 3));
      output(node, view(node.name + ".1", of, 1));
      return;
    }
    node.op = "toy.slice.default";
    output(node, view(node.name, of, rng_.below(4)));
  }

  void make_write(Node& node) {
    const ValueId target = pick_written();
    if (!target.valid() || made_.empty()) return make(node);
    node.written = {target};
    if (chance(6)) {  // several at once, no result
      node.op = "toy.add_each_.default";
      const ValueId other = pick_written();
      node.args = {{"", {Argument::List{{target}, {other}}}}, use(pick())};
      if (other != target) node.written.push_back(other);
      return;
    }
    node.args = {use(target), use(pick())};
    if (chance(5)) {
      node.op = "toy.accumulate_.default";  // no result
      return;
    }
    node.op = "toy.add_.default";
    output(node, view(node.name, target, 0));
  }

  void make_may_alias(Node& node) {
    const ValueId of = pick();
    node.op = "toy.reshape.default";
    node.args = {use(of)};
    node.may_alias = {of};
    output(node, chance(2) ? view(node.name, of, 0)
                           : fresh(node.name, data_.values[of.index()].shape[0]));
  }

  void make_scalar(Node& node) {
    node.op = "toy.item.default";
    node.args = {use(pick())};
    Value value;
    value.name = node.name;
    value.scalar = true;
    value.dtype = chance(2) ? DType::i64 : DType::f64;
    const ValueId id = push(std::move(value));
    node.outputs.push_back(id);
    scalars_.push_back(id);
  }

  void make_several(Node& node) {
    node.op = "toy.several.default";
    node.args = {use(pick())};
    if (chance(2)) node.outputs.push_back({});
    output(node, fresh(node.name, random_length()));
    node.outputs.push_back({});
    output(node, fresh(node.name + ".1", random_length()));
  }

  void output(Node& node, ValueId id) {
    node.outputs.push_back(id);
    made_.push_back(id);
  }

  void decorate(Node& node) {
    node.scope = ScopeId(rng_.below(data_.scopes.size()));
    if (chance(2)) node.source = fmt::format("model \"x\".py:{}", rng_.below(500));
    if (chance(5)) node.region = fmt::format("{}/{}", rng_.below(3), rng_.below(3));
    node.grad_enabled = !chance(5);
    node.random = chance(8);
    if (chance(6)) node.autocast.push_back({"cpu", DType::bf16, true});
    if (chance(12)) node.autocast.push_back({"cuda", DType::f16, false});
    if (chance(2)) node.args.push_back({chance(2) ? "" : "extra", constant()});
    if (chance(3)) node.args.push_back({"alpha", constant()});
  }

  Argument constant(bool fixed = false) {
    static constexpr double kNumbers[] = {0.0, -0.0, 1.0, 0.1, -2.5e-30, 1e300, 5e-324, 1e16};
    switch (rng_.below(12)) {
      case 0: return {};
      case 1: return {chance(2)};
      case 2: return {Expr(static_cast<std::int64_t>(rng_.next()))};
      case 3: return {options_.batch && !fixed ? random_size() : Expr(7)};
      case 4: return {kNumbers[rng_.below(8)]};
      case 5: return {std::numeric_limits<double>::infinity()};
      case 6: return {std::complex<double>(kNumbers[rng_.below(8)], -1.5)};
      case 7: return {std::string("text, with (brackets] and \"quotes\"\x01\n")};
      case 8: return {DType::bf16};
      case 9: return {DeviceName{chance(2) ? "" : "cuda:1"}};
      case 10: return {EnumName{"memory_format", "channels_last"}};
      default: return {Argument::List{constant(fixed), constant(fixed), {Argument::List{}}}};
    }
  }

  Expr random_size() {
    const Expr a = random_length();
    const Expr b = random_length();
    switch (rng_.below(7)) {
      case 0: return a * b;
      case 1: return floor_div(a, b);
      case 2: return modulo(a, b);
      case 3: return max(a, b);
      case 4: return min(a, b) + b;
      case 5: return power(a, 2) - b;
      default: return a * b + a;
    }
  }

  // The last values, some older ones, something that is no tensor, and sometimes an input.
  void add_outputs() {
    for (std::size_t i = 0; i < made_.size(); ++i) {
      if (i + 3 < made_.size() && !chance(5)) continue;
      data_.outputs.push_back({{made_[i]}, fmt::format("out.{}", i)});
    }
    if (chance(3)) data_.outputs.push_back({{outside_[0]}, "passed through"});
    if (!scalars_.empty()) data_.outputs.push_back({{scalars_.back()}, "scalar"});
    if (chance(2)) data_.outputs.push_back({{}, "nothing"});
    if (chance(3))
      data_.outputs.push_back({{Argument::List{{std::string("s")}, {Expr(3)}}}, "list"});
  }

  Rng rng_;
  RandomGraphOptions options_;
  GraphData data_;
  Ids outside_;  // inputs and weights
  Ids made_;     // tensors made by nodes
  Ids scalars_;
};

inline GraphData random_graph_data(std::uint64_t seed, RandomGraphOptions options = {}) {
  return RandomGraphMaker(seed, options).run();
}

inline Graph random_graph(std::uint64_t seed, RandomGraphOptions options = {}) {
  return Graph::freeze(random_graph_data(seed, options));
}

}  // namespace kerf
