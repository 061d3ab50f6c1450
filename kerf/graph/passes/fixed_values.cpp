// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/fixed_values.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "kerf/graph/arguments.h"

namespace kerf {
namespace {

bool is_batch(const Expr& size) { return size == Expr::batch(); }
bool is_one(const Expr& size) { return size == Expr(1); }

std::size_t num_batch_dims(const Sizes& shape) {
  return static_cast<std::size_t>(std::count_if(shape.begin(), shape.end(), is_batch));
}

bool is_whole(DType dtype) { return dtype == DType::i64 || dtype == DType::i32; }

// "aten.add.Tensor" -> "add"
std::string_view base_name(std::string_view op) {
  constexpr std::string_view kOwn = "aten.";
  if (!op.starts_with(kOwn)) return {};
  op.remove_prefix(kOwn.size());
  return op.substr(0, op.find('.'));
}

// One node with the facts about what it takes.
class Step {
 public:
  Step(const Graph& graph, NodeId id, const std::vector<Fixed>& fixed)
      : graph_(graph), node_(graph.node(id)), inputs_(graph.inputs_of(id)), fixed_(fixed) {}

  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  std::span<const ValueId> inputs() const { return inputs_; }
  const Value& output() const { return graph_.value(node_.outputs.front()); }
  const Value& value(ValueId id) const { return graph_.value(id); }
  const Value& first() const { return value(inputs_.front()); }
  Fixed fixed(ValueId id) const { return fixed_[id.index()]; }
  Fixed fixed_first() const { return fixed(inputs_.front()); }

  const Argument* argument(std::size_t position, std::string_view name) const {
    return find_argument(node_, position, name);
  }
  bool all_repeated() const {
    return std::all_of(inputs_.begin(), inputs_.end(),
                       [&](ValueId id) { return fixed(id) == Fixed::repeated; });
  }
  // Is there a B among the arguments, those at `but` left out?
  bool batch_in_arguments(std::size_t but = ~std::size_t{0}, std::string_view name = {}) const {
    const Argument* const excepted = argument(but, name);
    return std::any_of(node_.args.begin(), node_.args.end(), [&](const NamedArgument& given) {
      return &given.value != excepted && depends_on_batch(given.value);
    });
  }
  // A dimension given as an argument, counted from the front; -1 when it is no plain number.
  int dim(std::size_t position, std::size_t rank, std::int64_t fallback) const {
    const Argument* const given = argument(position, "dim");
    const Expr* const number = given == nullptr ? nullptr : given->find<Expr>();
    if (given != nullptr && (number == nullptr || !number->is_constant())) return -1;
    const std::int64_t found = number == nullptr ? fallback : number->constant();
    const auto limit = static_cast<std::int64_t>(rank);
    if (found < -limit || found >= limit) return -1;
    return static_cast<int>(found < 0 ? found + limit : found);
  }

 private:
  const Graph& graph_;
  const Node& node_;
  std::span<const ValueId> inputs_;
  const std::vector<Fixed>& fixed_;
};

Fixed repeated_if(bool proved) { return proved ? Fixed::repeated : Fixed::no; }

// Counted from the last dimension: is `from` the size of `to`, or one?
bool broadcasts(const Sizes& from, const Sizes& to) {
  if (from.size() > to.size()) return false;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    const Expr& size = from[from.size() - i];
    if (!is_one(size) && !(size == to[to.size() - i])) return false;
  }
  return true;
}

// Same dimensions of size B in both, counted from the last.
bool same_batch_dims(const Sizes& a, const Sizes& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (is_batch(a[i]) != is_batch(b[i])) return false;
  }
  return true;
}

// Element by element: equal rows in, equal rows out.
Fixed elementwise(const Step& step) {
  if (!step.all_repeated() || step.batch_in_arguments()) return Fixed::no;
  const auto fits = [&](ValueId id) {
    return broadcasts(step.value(id).shape, step.output().shape);
  };
  return repeated_if(std::all_of(step.inputs().begin(), step.inputs().end(), fits));
}

// The same elements in a tensor of their own: a count of whole numbers stays one.
Fixed copy(const Step& step) {
  if (step.inputs().size() == 1 && step.fixed_first() == Fixed::counting &&
      is_whole(step.output().dtype)) {
    return Fixed::counting;
  }
  return elementwise(step);
}

// x + 0 is how positions without an offset are made.
Fixed add(const Step& step) {
  const Argument* const other = step.argument(1, "other");
  const Expr* const number = other == nullptr ? nullptr : other->find<Expr>();
  const bool nothing = number != nullptr && *number == Expr(0);
  return nothing && !step.batch_in_arguments() ? copy(step) : elementwise(step);
}

// Dimensions exchanged, added, or taken away where they are one for every batch.
Fixed same_elements(const Step& step) {
  if (step.inputs().size() != 1 || step.batch_in_arguments()) return Fixed::no;
  const bool all_there = num_batch_dims(step.first().shape) == num_batch_dims(step.output().shape);
  return all_there ? step.fixed_first() : Fixed::no;
}

Fixed expand(const Step& step) {
  const Sizes& from = step.first().shape;
  const Sizes& to = step.output().shape;
  if (!broadcasts(from, to)) return Fixed::no;
  if (step.fixed_first() == Fixed::counting && num_batch_dims(to) != 1) return Fixed::no;
  return step.fixed_first();
}

Fixed repeat(const Step& step) {
  const Sizes& from = step.first().shape;
  const Sizes& to = step.output().shape;
  if (step.fixed_first() != Fixed::repeated || from.size() > to.size()) return Fixed::no;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    const Expr& before = from[from.size() - i];
    const Expr& after = to[to.size() - i];
    const bool proved = is_batch(after) ? is_batch(before) || is_one(before) : !is_batch(before);
    if (!proved) return Fixed::no;
  }
  return Fixed::repeated;
}

// Elements in the same order under another shape: the batch stays where it was when there is one
// dimension of size B and as much stands before it.
Fixed reshape(const Step& step) {
  const Sizes& from = step.first().shape;
  const Sizes& to = step.output().shape;
  if (num_batch_dims(from) != 1 || num_batch_dims(to) != 1) return Fixed::no;
  const auto before_batch = [](const Sizes& shape) {
    Expr product = 1;
    for (std::size_t d = 0; !is_batch(shape[d]); ++d) product = product * shape[d];
    return product;
  };
  return before_batch(from) == before_batch(to) ? step.fixed_first() : Fixed::no;
}

// Along B only the whole of it, or its first element.
Fixed slice(const Step& step) {
  const Sizes& from = step.first().shape;
  const int dim = step.dim(1, from.size(), 0);
  if (dim < 0) return Fixed::no;
  const auto d = static_cast<std::size_t>(dim);
  if (!is_batch(from[d])) return step.batch_in_arguments() ? Fixed::no : step.fixed_first();
  if (is_batch(step.output().shape[d])) return step.fixed_first();
  return repeated_if(step.fixed_first() == Fixed::repeated && is_one(step.output().shape[d]) &&
                     !step.batch_in_arguments());
}

Fixed select(const Step& step) {
  const Sizes& from = step.first().shape;
  const int dim = step.dim(1, from.size(), 0);
  if (dim < 0 || step.batch_in_arguments()) return Fixed::no;
  if (!is_batch(from[static_cast<std::size_t>(dim)])) return step.fixed_first();
  return repeated_if(step.fixed_first() == Fixed::repeated);
}

bool along_constant_dim(const Step& step, int dim, const Sizes& shape) {
  return dim >= 0 && !is_batch(shape[static_cast<std::size_t>(dim)]) && step.all_repeated() &&
         !step.batch_in_arguments();
}

template <std::size_t Position>
Fixed scan(const Step& step) {
  const Sizes& shape = step.first().shape;
  const bool proved = along_constant_dim(step, step.dim(Position, shape.size(), -1), shape) &&
                      std::all_of(step.inputs().begin(), step.inputs().end(), [&](ValueId id) {
                        return same_batch_dims(step.value(id).shape, step.output().shape);
                      });
  return repeated_if(proved);
}

Fixed concatenate(const Step& step) {
  const Sizes& shape = step.output().shape;
  const bool proved = along_constant_dim(step, step.dim(1, shape.size(), 0), shape) &&
                      std::all_of(step.inputs().begin(), step.inputs().end(), [&](ValueId id) {
                        return same_batch_dims(step.value(id).shape, shape);
                      });
  return repeated_if(proved);
}

Fixed triangle(const Step& step) {
  const Sizes& shape = step.first().shape;
  return repeated_if(shape.size() >= 2 && !is_batch(shape[shape.size() - 1]) &&
                     !is_batch(shape[shape.size() - 2]) && step.all_repeated() &&
                     !step.batch_in_arguments());
}

// Rows that are equal may be picked by any index that is there at every batch: by one that counts
// the batch, or by one that was there at batch one.
Fixed index(const Step& step) {
  const Argument* const given = step.argument(1, "indices");
  const auto* const indices = given == nullptr ? nullptr : given->find<Argument::List>();
  if (indices == nullptr || step.fixed_first() != Fixed::repeated) return Fixed::no;
  const Sizes& source = step.first().shape;
  if (indices->size() > source.size()) return Fixed::no;
  for (std::size_t d = 0; d < indices->size(); ++d) {
    if ((*indices)[d].is_none()) continue;
    const auto* const id = (*indices)[d].find<ValueId>();
    if (id == nullptr || !is_whole(step.value(*id).dtype)) return Fixed::no;
    if (step.fixed(*id) == Fixed::counting && !is_batch(source[d])) return Fixed::no;
  }
  return Fixed::repeated;
}

// A size may hold B; what is filled in may not.
template <std::size_t Size>
Fixed filled(const Step& step) {
  return repeated_if(!step.batch_in_arguments(Size, "size"));
}

Fixed filled_like(const Step& step) { return repeated_if(!step.batch_in_arguments()); }

Fixed arange(const Step& step) {
  if (!is_whole(step.output().dtype)) return Fixed::no;
  std::vector<const Expr*> numbers;
  for (const NamedArgument& given : step.node().args) {
    const Expr* const number = given.value.find<Expr>();
    if (number != nullptr) numbers.push_back(number);
  }
  // end; start, end; start, end, step
  if (numbers.size() == 1) return is_batch(*numbers[0]) ? Fixed::counting : Fixed::no;
  const bool counts = (numbers.size() == 2 || (numbers.size() == 3 && is_one(*numbers[2]))) &&
                      *numbers[0] == Expr(0) && is_batch(*numbers[1]);
  return counts ? Fixed::counting : Fixed::no;
}

using Rule = Fixed (*)(const Step&);
using Rules = std::unordered_map<std::string_view, Rule>;

Rules make_rules() {
  Rules rules;
  const auto add_all = [&](Rule rule, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) rules.emplace(name, rule);
  };
  add_all(elementwise,
          {"mul",         "div",         "neg",         "abs",        "eq",          "ne",
           "lt",          "le",          "gt",          "ge",         "logical_and", "logical_or",
           "logical_not", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor",
           "__and__",     "__or__",      "__xor__",     "where",      "masked_fill", "maximum",
           "minimum",     "clamp",       "clamp_min",   "clamp_max",  "rsub",        "floor_divide",
           "remainder",   "isinf",       "isnan",       "sign"});
  add_all(add, {"add", "sub"});
  add_all(copy, {"to", "_to_copy", "type_as", "clone", "contiguous", "detach", "alias",
                 "lift_fresh_copy", "lift_fresh"});
  add_all(same_elements, {"unsqueeze", "squeeze", "transpose", "permute", "t", "movedim"});
  add_all(expand, {"expand", "expand_as", "broadcast_to"});
  add_all(repeat, {"repeat"});
  add_all(reshape, {"view", "reshape", "_unsafe_view", "flatten", "unflatten"});
  add_all(slice, {"slice", "narrow"});
  add_all(select, {"select"});
  add_all(scan<1>, {"cumsum", "cumprod"});
  add_all(scan<2>, {"diff"});
  add_all(concatenate, {"cat"});
  add_all(triangle, {"tril", "triu"});
  add_all(index, {"index"});
  add_all(filled<0>, {"full", "ones", "zeros"});
  add_all(filled<1>, {"new_full", "new_ones", "new_zeros"});
  add_all(filled_like, {"full_like", "ones_like", "zeros_like", "scalar_tensor", "eye"});
  add_all(arange, {"arange"});
  return rules;
}

bool is_plain(const Value& value) {
  return !value.scalar && std::all_of(value.shape.begin(), value.shape.end(), [](const Expr& size) {
    return size.is_constant() || is_batch(size);
  });
}

// What was computed elsewhere may differ from what the host would compute.
bool names_other_device(const Argument& argument) {
  const auto* const device = argument.find<DeviceName>();
  return device != nullptr && !device->name.empty() && device->name != "cpu";
}

class Analysis {
 public:
  explicit Analysis(const Graph& graph) : graph_(graph), fixed_(graph.num_values(), Fixed::no) {}

  std::vector<Fixed> run() {
    for (const Weight& weight : graph_.weights()) {
      // Constants of the model's code, which no module holds.
      if (!weight.data.empty() && is_usable(weight.value)) note(weight.value, Fixed::repeated);
    }
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      const Node& node = graph_.node(NodeId(n));
      if (is_followed(NodeId(n))) note(node.outputs.front(), judge(NodeId(n)));
    }
    return std::move(fixed_);
  }

 private:
  void note(ValueId id, Fixed fixed) { fixed_[id.index()] = fixed; }

  bool is_usable(ValueId id) const {
    const Value& value = graph_.value(id);
    return is_plain(value) && !graph_.is_written(value.storage);
  }

  bool is_followed(NodeId id) const {
    const Node& node = graph_.node(id);
    if (node.random || !node.written.empty() || node.outputs.size() != 1) return false;
    if (!node.outputs.front().valid() || !is_usable(node.outputs.front())) return false;
    for (const NamedArgument& given : node.args) {
      if (names_other_device(given.value)) return false;
    }
    const std::span<const ValueId> inputs = graph_.inputs_of(id);
    const bool any = ignores_elements(node);
    return std::all_of(inputs.begin(), inputs.end(), [&](ValueId input) {
      return any ? is_plain(graph_.value(input)) : fixed_[input.index()] != Fixed::no;
    });
  }

  Fixed judge(NodeId id) const {
    static const Rules kRules = make_rules();
    const auto rule = kRules.find(base_name(graph_.node(id).op));
    if (rule == kRules.end()) return Fixed::no;
    const Step step(graph_, id, fixed_);
    return involves_batch(step) ? rule->second(step) : Fixed::repeated;
  }

  static bool involves_batch(const Step& step) {
    return step.batch_in_arguments() || num_batch_dims(step.output().shape) != 0 ||
           std::any_of(step.inputs().begin(), step.inputs().end(),
                       [&](ValueId id) { return num_batch_dims(step.value(id).shape) != 0; });
  }

  const Graph& graph_;
  std::vector<Fixed> fixed_;
};

}  // namespace

bool ignores_elements(const Node& node) {
  static constexpr std::string_view kNames[] = {"full_like", "ones_like", "zeros_like",
                                                "new_full",  "new_ones",  "new_zeros"};
  return std::find(std::begin(kNames), std::end(kNames), base_name(node.op)) != std::end(kNames);
}

std::vector<Fixed> fixed_values(const Graph& graph) { return Analysis(graph).run(); }

}  // namespace kerf
