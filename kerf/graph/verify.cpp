// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "kerf/base/error.h"
#include "kerf/graph/name_index.h"
#include "kerf/graph/total_bytes.h"

namespace kerf {
namespace {

constexpr int kMaxArgumentDepth = 64;  // what the parser takes

bool is_plain(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
}

// Words that mean something else before an opening parenthesis.
bool is_reserved(std::string_view type) {
  static constexpr std::string_view kWords[] = {"dtype", "device", "complex", "max",
                                                "min",   "none",   "true",    "false"};
  return std::find(std::begin(kWords), std::end(kWords), type) != std::end(kWords);
}

bool is_operator_name(std::string_view op) {
  return !op.empty() && std::all_of(op.begin(), op.end(), [](char c) {
    return c > ' ' && c < 0x7f && std::string_view("()\",;=").find(c) == std::string_view::npos;
  });
}

[[noreturn]] void fail(const std::string& found, std::string_view expected) {
  throw Error(ErrorKind::invalid_graph,
              fmt::format("[graph.verify] {}; expected {}; fix the graph or trace the model again",
                          found, expected));
}

class Verifier {
 public:
  explicit Verifier(const GraphData& data)
      : data_(data), batch_(std::max<std::int64_t>(data.example_batch, 1)) {}

  void run() {
    check_counts();
    for (const Condition& condition : data_.conditions) check_condition(condition);
    for (const Attribute& attribute : data_.attributes) check_attribute(attribute);
    for (const Value& value : data_.values) check_value(value);
    check_total();
    check_definitions();
    for (const Weight& weight : data_.weights) check_weight(weight);
    check_nodes();
    for (const GraphOutput& output : data_.outputs) {
      check_argument(output.leaf, "an output of the graph", 0);
      for_each_value(output.leaf, [&](ValueId id) { check_defined(id, "an output of the graph"); });
    }
  }

 private:
  void check_counts() const {
    if (data_.scopes.empty()) fail("a graph without scopes", "scope 0, the model itself");
    if (data_.example_batch < 0) fail("a negative example batch", "a positive batch");
    constexpr std::size_t kLimit = std::numeric_limits<std::uint32_t>::max() / 2;
    if (data_.nodes.size() > kLimit || data_.values.size() > kLimit) {
      fail("more than 2^31 nodes or values", "a smaller graph");
    }
  }

  void check_condition(const Condition& condition) const {
    if (data_.example_batch == 0) {
      fail(fmt::format("the condition {} in a static graph", condition.str()),
           "no conditions, or a 'batch' line");
    }
    if (!condition.holds(batch_)) {
      fail(fmt::format("the condition {} and an example of batch {}", condition.str(), batch_),
           "conditions that hold for the example");
    }
  }

  void check_attribute(const Attribute& attribute) const {
    const std::string user =
        fmt::format("attribute '{}' of module '{}'", attribute.name, attribute.path);
    if (attribute.name.empty()) fail("an attribute without a name", "a name");
    check_argument(attribute.value, user, 0);
    check_plain_data(attribute.value, user);
  }

  static void check_plain_data(const Argument& argument, const std::string& user) {
    const auto* size = argument.find<Expr>();
    if (argument.find<ValueId>() != nullptr || (size != nullptr && !size->is_constant())) {
      fail(user + " is a value of the graph or holds B", "plain data");
    }
    if (const auto* list = argument.find<Argument::List>()) {
      for (const Argument& element : *list) check_plain_data(element, user);
    }
  }

  void check_size(const Expr& size, const Value& value, std::string_view what) const {
    if (data_.example_batch == 0 && !size.is_constant()) {
      fail(fmt::format("value '{}' has {} {} in a static graph", value.name, what, size.str()),
           "no B, or a 'batch' line");
    }
    if (size.eval(batch_) < 0) {
      fail(fmt::format("value '{}' has {} {}", value.name, what, size.str()), "no negative sizes");
    }
  }

  void check_value(const Value& value) const {
    if (value.name.empty()) fail("a value without a name", "a name");
    if (value.scalar) {
      if (value.storage.valid() || !value.shape.empty() || !value.strides.empty() ||
          !(value.offset == Expr(0)) || value.requires_grad) {
        fail(fmt::format("scalar '{}' has a layout, a storage or a gradient", value.name),
             "a name and a dtype");
      }
      return;
    }
    if (value.shape.size() != value.strides.size()) {
      fail(fmt::format("value '{}' has {} sizes and {} strides", value.name, value.shape.size(),
                       value.strides.size()),
           "as many strides as sizes");
    }
    for (const Expr& size : value.shape) check_size(size, value, "size");
    for (const Expr& stride : value.strides) check_size(stride, value, "stride");
    check_size(value.offset, value, "offset");
    if (value.storage.index() >= data_.storages.size()) {
      fail(fmt::format("value '{}' has no storage", value.name), "a storage of the graph");
    }
    check_size(data_.storages[value.storage.index()].bytes, value, "storage bytes");
    check_inside_storage(value);
  }

  // Sums of sizes are made everywhere: none may pass what a number holds.
  void check_total() const {
    const double total = total_bytes(data_.storages, data_.values, batch_);
    if (total > kMostTotalBytes) {
      fail(fmt::format("tensors of {:.3g} bytes together", total), "at most 2^60 bytes");
    }
  }

  void check_inside_storage(const Value& value) const {
    Expr last = 0;
    for (std::size_t d = 0; d < value.shape.size(); ++d) {
      const std::int64_t size = value.shape[d].eval(batch_);
      if (size == 0) return;  // no elements: nothing to be outside
      last = last + Expr(size - 1) * Expr(value.strides[d].eval(batch_));
    }
    const Expr end = Expr(value.offset.eval(batch_)) + (last + 1) * Expr(element_size(value.dtype));
    const std::int64_t available = data_.storages[value.storage.index()].bytes.eval(batch_);
    if (end.constant() > available) {
      fail(fmt::format("value '{}' ends at byte {} of a storage of {} bytes", value.name,
                       end.constant(), available),
           "a view inside its storage");
    }
  }

  // Every value is defined exactly once: by an input, a weight or one node output.
  void check_definitions() {
    defined_.assign(data_.values.size(), false);
    NameIndex names;
    const auto name_of = [&](std::uint32_t i) -> std::string_view { return data_.values[i].name; };
    for (std::uint32_t i = 0; i < data_.values.size(); ++i) {
      if (!names.add(name_of(i), i, name_of)) {
        fail(fmt::format("two values are called '{}'", name_of(i)), "unique names");
      }
    }
    for (const GraphInput& input : data_.inputs) define(input.value, "an input");
    for (const Weight& weight : data_.weights) define(weight.value, "a weight");
  }

  void define(ValueId id, std::string_view what) {
    if (id.index() >= data_.values.size()) {
      fail(fmt::format("{} names value number {}", what, id.index()), "a value of the graph");
    }
    if (defined_[id.index()]) {
      fail(fmt::format("value '{}' is defined twice", data_.values[id.index()].name),
           "one definition");
    }
    defined_[id.index()] = true;
  }

  void check_defined(ValueId id, std::string_view user) const {
    if (id.index() >= data_.values.size()) {
      fail(fmt::format("{} uses value number {}", user, id.index()), "a value of the graph");
    }
    if (!defined_[id.index()]) {
      fail(fmt::format("{} uses '{}' before it is made", user, data_.values[id.index()].name),
           "nodes in an order in which they can run");
    }
  }

  bool is_fixed(const Value& value) const {
    const auto fixed = [](const Expr& size) { return size.is_constant(); };
    return std::all_of(value.shape.begin(), value.shape.end(), fixed) &&
           std::all_of(value.strides.begin(), value.strides.end(), fixed) && fixed(value.offset) &&
           fixed(data_.storages[value.storage.index()].bytes);
  }

  void check_weight(const Weight& weight) const {
    const Value& value = data_.values[weight.value.index()];
    if (weight.names.empty()) {
      fail(fmt::format("weight '{}' has no names", value.name), "at least one of the user's names");
    }
    if (value.scalar || !is_fixed(value)) {
      fail(fmt::format("weight '{}' is a scalar or depends on B", value.name), "a fixed shape");
    }
    if (!weight.data.empty() &&
        static_cast<std::int64_t>(weight.data.size()) != value.bytes(1).count) {
      fail(fmt::format("constant '{}' has {} bytes of data", value.name, weight.data.size()),
           fmt::format("{}", value.bytes(1).count));
    }
  }

  void check_nodes() {
    NameIndex names;
    const auto name_of = [&](std::uint32_t i) -> std::string_view { return data_.nodes[i].name; };
    std::uint32_t number = 0;
    storages_.assign(data_.storages.size(), false);
    taken_by_.assign(data_.values.size(), nullptr);
    for (const GraphInput& input : data_.inputs) mark_storage(input.value);
    for (const Weight& weight : data_.weights) mark_storage(weight.value);
    for (const Node& node : data_.nodes) {
      if (node.name.empty() || !names.add(node.name, number++, name_of)) {
        fail(fmt::format("node name '{}' is empty or used twice", node.name), "unique names");
      }
      if (!is_operator_name(node.op)) {
        fail(fmt::format("node '{}' has the operator '{}'", node.name, node.op),
             "an operator's name such as aten.linear.default");
      }
      if (node.scope.index() >= data_.scopes.size()) {
        fail(fmt::format("node '{}' is in scope {}", node.name, node.scope.index()),
             fmt::format("a scope below {}", data_.scopes.size()));
      }
      for (const Autocast& state : node.autocast) {
        if (!is_plain(state.device_type)) {
          fail(fmt::format("node '{}' has autocast for '{}'", node.name, state.device_type),
               "a device type such as cpu");
        }
      }
      const std::string user = "node '" + node.name + "'";
      check_arguments(node, user);
      for (const ValueId output : node.outputs) {
        if (!output.valid()) continue;
        define(output, user);
        check_output_storage(node, data_.values[output.index()]);
      }
      for (const ValueId output : node.outputs) {
        if (output.valid()) mark_storage(output);
      }
    }
    for (std::size_t i = 0; i < defined_.size(); ++i) {
      if (!defined_[i]) {
        fail(fmt::format("value '{}' is never made", data_.values[i].name),
             "every value to be an input, a weight or a node's output");
      }
    }
  }

  void mark_storage(ValueId id) {
    const StorageId storage = data_.values[id.index()].storage;
    if (storage.valid()) storages_[storage.index()] = true;
  }

  // A result is new memory or a view of an argument: anything else would be a use of memory that no
  // edge shows. A block that runs as Python may hand out what its module holds.
  void check_output_storage(const Node& node, const Value& output) const {
    if (!output.storage.valid() || node.op == "opaque") return;
    if (!storages_[output.storage.index()]) return;
    bool taken = false;
    for (const NamedArgument& argument : node.args) {
      for_each_value(argument.value, [&](ValueId id) {
        taken = taken || data_.values[id.index()].storage == output.storage;
      });
    }
    if (!taken) {
      fail(fmt::format("node '{}' makes '{}' in the storage of a value it does not take", node.name,
                       output.name),
           "new memory, or a view of an argument");
    }
  }

  void check_argument(const Argument& argument, std::string_view user, int depth) const {
    if (depth > kMaxArgumentDepth) {
      fail(fmt::format("{} has lists nested deeper than {}", user, kMaxArgumentDepth), "fewer");
    }
    if (const auto* size = argument.find<Expr>()) {
      if (data_.example_batch == 0 && !size->is_constant()) {
        fail(fmt::format("{} has {} in a static graph", user, size->str()),
             "no B, or a 'batch' line");
      }
    }
    if (const auto* name = argument.find<EnumName>()) {
      if (!is_plain(name->type) || !is_plain(name->name) || is_reserved(name->type)) {
        fail(fmt::format("{} has the constant {}({})", user, name->type, name->name),
             "a plain name such as memory_format(channels_last)");
      }
    }
    if (const auto* list = argument.find<Argument::List>()) {
      for (const Argument& element : *list) check_argument(element, user, depth + 1);
    }
  }

  void check_arguments(const Node& node, const std::string& user) {
    bool named = false;
    for (const NamedArgument& argument : node.args) {
      if (named && argument.name.empty()) {
        fail(user + " has a positional argument after a named one", "positional ones first");
      }
      named = !argument.name.empty();
      if (named && !is_plain(argument.name)) {
        fail(fmt::format("{} has an argument called '{}'", user, argument.name), "a plain name");
      }
      check_argument(argument.value, user, 0);
      for_each_value(argument.value, [&](ValueId id) {
        check_defined(id, user);
        taken_by_[id.index()] = &node;
      });
    }
    const auto own = [&](ValueId id) {
      return id.index() < taken_by_.size() && taken_by_[id.index()] == &node;
    };
    for (const ValueId id : node.written) {
      if (!own(id)) fail(user + " writes a value it does not take", "a value among its arguments");
    }
    for (const ValueId id : node.may_alias) {
      if (!own(id)) fail(user + " aliases a value it does not take", "a value among its arguments");
    }
  }

  const GraphData& data_;
  std::int64_t batch_;
  std::vector<bool> defined_;
  std::vector<const Node*> taken_by_;  // the last node that took each value
  std::vector<bool> storages_;         // made so far
};

}  // namespace

void verify_graph(const GraphData& data) { Verifier(data).run(); }

}  // namespace kerf
