// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/schema_check.h"

#include <ATen/core/jit_type.h>
#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/graph/operator_effects.h"
#include "kerf/libtorch/convert.h"

namespace kerf {
namespace {

bool contains(const std::vector<ValueId>& ids, ValueId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

class CallChecker {
 public:
  CallChecker(const Graph& graph, NodeId node, const c10::FunctionSchema& schema)
      : graph_(graph), id_(node), node_(graph.node(node)), schema_(schema) {}

  void check_argument(const c10::Argument& parameter, const Argument& argument) {
    parameter_ = &parameter;
    check(argument, parameter.real_type(), /*in_list=*/false);
    if (parameter.alias_info() != nullptr) check_memory(parameter, argument);
  }

  // What the schema calls read-only and the operator changes all the same.
  void check_hidden_writes(const std::vector<const Argument*>& given) const {
    const HiddenWrites* const hidden = find_hidden_writes(packet_of(node_.op));
    if (hidden == nullptr || !is_set(given, hidden->flag)) return;
    for (const std::string_view name : hidden->parameters) {
      const Argument* const argument = find(given, name);
      if (argument != nullptr) check_written(name, *argument);
    }
  }

  void check_results() const {
    const auto& returns = schema_.returns();
    const bool any_list = std::any_of(returns.begin(), returns.end(), [](const c10::Argument& r) {
      return r.type()->kind() == c10::TypeKind::ListType;
    });
    // Nobody may want any of them; lists have as many as they have when they are made.
    if (any_list || node_.outputs.empty()) return;
    if (node_.outputs.size() != returns.size()) {
      fail(fmt::format("{} results", node_.outputs.size()), fmt::format("{}", returns.size()));
    }
    for (std::size_t i = 0; i < returns.size(); ++i) {
      const ValueId out = node_.outputs[i];
      const bool tensor = returns[i].type()->kind() == c10::TypeKind::TensorType;
      if (out.valid() && graph_.value(out).scalar == tensor) {
        fail(fmt::format("result {} as a {}", i, tensor ? "scalar" : "tensor"),
             returns[i].type()->str());
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& found, const std::string& expected) const {
    throw Error(ErrorKind::unsupported_operator,
                fmt::format("[libtorch.load] {} calls {} with {}; expected {}; trace the model "
                            "again with this PyTorch",
                            graph_.describe(id_), node_.op, found, expected));
  }
  [[noreturn]] void misfit(std::string_view found, const c10::TypePtr& type) const {
    fail(fmt::format("{} as '{}'", found, parameter_->name()), type->str());
  }

  void check(const Argument& argument, const c10::TypePtr& type, bool in_list) const {
    if (const auto* optional = type->castRaw<c10::OptionalType>()) {
      if (argument.is_none()) return;
      return check(argument, optional->getElementType(), in_list);
    }
    if (argument.is_none()) misfit("none", type);
    const auto* list_type = type->castRaw<c10::ListType>();
    if (const auto* list = argument.find<Argument::List>()) {
      if (list_type == nullptr || in_list) misfit("a list", type);
      for (const Argument& item : *list) check(item, list_type->getElementType(), true);
      return;
    }
    // One item may stand for a list of it.
    if (list_type != nullptr) return check(argument, list_type->getElementType(), true);
    if (const auto* id = argument.find<ValueId>()) return check_value(*id, type, in_list);
    check_constant(argument, type, in_list);
  }

  void check_value(ValueId id, const c10::TypePtr& type, bool in_list) const {
    const Value& value = graph_.value(id);
    if (!value.scalar) {
      if (type->kind() != c10::TypeKind::TensorType) misfit("tensor '" + value.name + "'", type);
      return;
    }
    const c10::TypeKind kind = type->kind();
    const bool number = kind == c10::TypeKind::NumberType || kind == c10::TypeKind::IntType ||
                        kind == c10::TypeKind::SymIntType || kind == c10::TypeKind::FloatType ||
                        kind == c10::TypeKind::SymFloatType || kind == c10::TypeKind::BoolType ||
                        kind == c10::TypeKind::SymBoolType;
    if (!number || in_list) misfit("scalar '" + value.name + "'", type);
  }

  void check_constant(const Argument& argument, const c10::TypePtr& type, bool in_list) const {
    const bool flag = argument.find<bool>() != nullptr;
    const bool whole = flag || argument.find<Expr>() != nullptr;
    const bool real = whole || argument.find<double>() != nullptr;
    const bool number = real || argument.find<std::complex<double>>() != nullptr;
    const auto* name = argument.find<EnumName>();
    const auto is_enum = [&](std::string_view kind) {
      return name != nullptr && name->type == kind;
    };
    bool fits = false;
    switch (type->kind()) {
      // A number that stands for a tensor by itself; kernels follow lists of real tensors.
      case c10::TypeKind::TensorType: fits = number && !in_list; break;
      case c10::TypeKind::NumberType: fits = number; break;
      case c10::TypeKind::ComplexType: fits = number; break;
      case c10::TypeKind::FloatType:
      case c10::TypeKind::SymFloatType: fits = real; break;
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType: fits = whole; break;
      case c10::TypeKind::BoolType:
      case c10::TypeKind::SymBoolType: fits = whole; break;
      case c10::TypeKind::StringType: fits = argument.find<std::string>() != nullptr; break;
      case c10::TypeKind::DeviceObjType: fits = argument.find<DeviceName>() != nullptr; break;
      case c10::TypeKind::ScalarTypeType: fits = argument.find<DType>() != nullptr; break;
      case c10::TypeKind::LayoutType: fits = is_enum("layout"); break;
      case c10::TypeKind::MemoryFormatType: fits = is_enum("memory_format"); break;
      default: break;
    }
    if (!fits) misfit("a value of another kind", type);
  }

  const Argument* find(const std::vector<const Argument*>& given, std::string_view name) const {
    const std::optional<int> position = schema_.argumentIndexWithName(name);
    return position ? given[static_cast<std::size_t>(*position)] : nullptr;
  }

  bool is_set(const std::vector<const Argument*>& given, std::string_view flag) const {
    const Argument* const argument = find(given, flag);
    const auto* const set = argument == nullptr ? nullptr : argument->find<bool>();
    return set != nullptr && *set;
  }

  void check_written(std::string_view parameter, const Argument& argument) const {
    for_each_value(argument, [&](ValueId id) {
      if (contains(node_.written, id)) return;
      fail(fmt::format("'{}' as '{}' without saying that it changes", graph_.value(id).name,
                       parameter),
           "'&' before it");
    });
  }

  // What the operator changes must be known to be changed, and what its results may share must be
  // known to be shared: plans keep such nodes in order.
  void check_memory(const c10::Argument& parameter, const Argument& argument) const {
    if (parameter.alias_info()->isWrite()) check_written(parameter.name(), argument);
    const bool shared = is_shared(*parameter.alias_info());
    for_each_value(argument, [&](ValueId id) {
      if (shared && !contains(node_.may_alias, id) && !contains(node_.written, id) &&
          !lies_in(id)) {
        fail(fmt::format("'{}' as '{}' without saying that results may share its memory",
                         graph_.value(id).name, parameter.name()),
             "'~' before it");
      }
    });
  }

  bool is_shared(const c10::AliasInfo& info) const {
    return std::any_of(
        schema_.returns().begin(), schema_.returns().end(), [&](const c10::Argument& result) {
          return result.alias_info() != nullptr &&
                 std::any_of(info.beforeSets().begin(), info.beforeSets().end(),
                             [&](const c10::Symbol& set) {
                               return result.alias_info()->beforeSets().contains(set);
                             });
        });
  }

  // Are all the results known to lie in the memory of this value?
  bool lies_in(ValueId id) const {
    return std::all_of(node_.outputs.begin(), node_.outputs.end(), [&](ValueId out) {
      return !out.valid() || graph_.value(out).storage == graph_.value(id).storage;
    });
  }

  const Graph& graph_;
  NodeId id_;
  const Node& node_;
  const c10::FunctionSchema& schema_;
  const c10::Argument* parameter_ = nullptr;
};

}  // namespace

std::vector<const Argument*> match_arguments(const Graph& graph, NodeId id,
                                             const c10::FunctionSchema& schema) {
  const Node& node = graph.node(id);
  const auto fail = [&](const std::string& found) {
    throw Error(ErrorKind::unsupported_operator,
                fmt::format("[libtorch.load] {} {}; expected the arguments of {}; trace the model "
                            "again with this PyTorch",
                            graph.describe(id), found, node.op));
  };
  std::vector<const Argument*> given(schema.arguments().size(), nullptr);
  for (std::size_t i = 0; i < node.args.size(); ++i) {
    const NamedArgument& argument = node.args[i];
    const std::optional<int> position = argument.name.empty()
                                            ? std::optional<int>(static_cast<int>(i))
                                            : schema.argumentIndexWithName(argument.name);
    if (!position || *position >= static_cast<int>(given.size())) {
      fail(fmt::format("has an argument '{}' that {} does not take",
                       argument.name.empty() ? std::to_string(i) : argument.name, node.op));
    }
    const Argument*& place = given[static_cast<std::size_t>(*position)];
    if (place != nullptr) fail(fmt::format("gives '{}' twice", argument.name));
    place = &argument.value;
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    const c10::Argument& parameter = schema.arguments()[i];
    if (given[i] == nullptr && !parameter.default_value()) {
      fail(fmt::format("does not give '{}', which {} needs", parameter.name(), node.op));
    }
  }
  return given;
}

void check_call(const Graph& graph, NodeId node, const c10::FunctionSchema& schema,
                const std::vector<const Argument*>& given) {
  CallChecker checker(graph, node, schema);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i] != nullptr) checker.check_argument(schema.arguments()[i], *given[i]);
  }
  checker.check_hidden_writes(given);
  checker.check_results();
}

const Argument::List& check_opaque_call(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const auto fail = [&](const std::string& found) {
    throw Error(ErrorKind::invalid_graph,
                fmt::format("[libtorch.load] {} is an opaque block with {}; expected one list of "
                            "tensors; trace the model again",
                            graph.describe(id), found));
  };
  const bool listed = !node.args.empty() && node.args[0].name.empty() &&
                      node.args[0].value.find<Argument::List>() != nullptr;
  if (!listed) fail("another first argument");
  const auto& list = *node.args[0].value.find<Argument::List>();
  for (const Argument& item : list) {
    const auto* id_of_item = item.find<ValueId>();
    if (id_of_item == nullptr) fail("something else among its tensors");
    if (graph.value(*id_of_item).scalar) fail("a scalar among its tensors");
  }
  for (const ValueId out : node.outputs) {
    if (!out.valid() || graph.value(out).scalar) fail("a result that is not a tensor");
  }
  return list;
}

}  // namespace kerf
