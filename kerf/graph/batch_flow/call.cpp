// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/call.h"

#include <algorithm>

namespace kerf {
namespace {

bool holds_batch(const Argument& argument) {
  if (const auto* size = argument.find<Expr>()) return !size->is_constant();
  if (const auto* list = argument.find<Argument::List>()) {
    return std::any_of(list->begin(), list->end(), holds_batch);
  }
  return false;
}

}  // namespace

std::string_view operator_name(std::string_view op) {
  if (!op.starts_with("aten.")) return op;
  op.remove_prefix(5);
  op = op.substr(0, op.find('.'));
  if (op.ends_with("_") && !op.ends_with("__")) op.remove_suffix(1);
  return op;
}

std::string_view overload_name(std::string_view op) {
  const std::size_t dot = op.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : op.substr(dot + 1);
}

const Argument* Call::argument(std::size_t position, std::string_view name) const {
  const auto& args = node().args;
  const Argument* found = nullptr;
  if (position < args.size() && args[position].name.empty()) {
    found = &args[position].value;
  } else {
    for (const NamedArgument& argument : args) {
      if (!argument.name.empty() && argument.name == name) found = &argument.value;
    }
  }
  return found == nullptr || found->is_none() ? nullptr : found;
}

std::optional<ValueId> Call::tensor(std::size_t position, std::string_view name) const {
  const Argument* found = argument(position, name);
  const auto* id = found == nullptr ? nullptr : found->find<ValueId>();
  if (id == nullptr) return std::nullopt;
  return *id;
}

std::optional<std::vector<ValueId>> Call::tensors(std::size_t position,
                                                  std::string_view name) const {
  const Argument* found = argument(position, name);
  const auto* list = found == nullptr ? nullptr : found->find<Argument::List>();
  if (list == nullptr) return std::nullopt;
  std::vector<ValueId> out;
  for (const Argument& element : *list) {
    const auto* id = element.find<ValueId>();
    if (id == nullptr && !element.is_none()) return std::nullopt;
    out.push_back(id == nullptr ? ValueId() : *id);
  }
  return out;
}

std::optional<Expr> Call::size(std::size_t position, std::string_view name) const {
  const Argument* found = argument(position, name);
  const auto* size = found == nullptr ? nullptr : found->find<Expr>();
  if (size == nullptr) return std::nullopt;
  return *size;
}

std::optional<std::vector<Expr>> Call::sizes(std::size_t position, std::string_view name) const {
  const Argument* found = argument(position, name);
  if (found == nullptr) return std::nullopt;
  if (const auto* one = found->find<Expr>()) return std::vector<Expr>{*one};
  const auto* list = found->find<Argument::List>();
  if (list == nullptr) return std::nullopt;
  std::vector<Expr> out;
  for (const Argument& element : *list) {
    const auto* size = element.find<Expr>();
    if (size == nullptr) return std::nullopt;
    out.push_back(*size);
  }
  return out;
}

std::optional<std::int64_t> Call::integer(std::size_t position, std::string_view name) const {
  const auto found = size(position, name);
  if (!found || !found->is_constant()) return std::nullopt;
  return found->constant();
}

std::optional<std::vector<std::int64_t>> Call::integers(std::size_t position,
                                                        std::string_view name) const {
  const auto found = sizes(position, name);
  if (!found) return std::nullopt;
  std::vector<std::int64_t> out;
  for (const Expr& size : *found) {
    if (!size.is_constant()) return std::nullopt;
    out.push_back(size.constant());
  }
  return out;
}

bool Call::flag(std::size_t position, std::string_view name, bool otherwise) const {
  const Argument* found = argument(position, name);
  const auto* flag = found == nullptr ? nullptr : found->find<bool>();
  return flag == nullptr ? otherwise : *flag;
}

bool Call::has_batch_number() const {
  const auto& args = node().args;
  return std::any_of(args.begin(), args.end(),
                     [](const NamedArgument& argument) { return holds_batch(argument.value); });
}

std::optional<int> Call::dimension(std::int64_t dim, int rank) {
  if (dim < -rank || dim >= rank) return std::nullopt;
  return static_cast<int>(dim < 0 ? dim + rank : dim);
}

}  // namespace kerf
