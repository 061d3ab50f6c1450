// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/operator_policy.h"

#include <ATen/core/jit_type.h>
#include <fmt/format.h>

#include <string_view>

#include "kerf/graph/refused_operators.h"

namespace kerf {
namespace {

bool is_plain(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::GeneratorType: return true;
    case c10::TypeKind::OptionalType:
      return is_plain(*type.expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType:
      return is_plain(*type.expectRef<c10::ListType>().getElementType());
    default: return false;
  }
}

bool names_a_file(const c10::Argument& argument) {
  const auto has = [&](std::string_view word) {
    return argument.name().find(word) != std::string::npos;
  };
  const bool text = argument.type()->str().find("str") != std::string::npos;
  return text && (has("file") || has("path") || has("url"));
}

}  // namespace

std::string why_refused(const c10::FunctionSchema& schema) {
  std::string name = schema.name();
  name.replace(name.find("::"), 2, ".");
  if (std::string reason = why_name_refused(name); !reason.empty()) return reason;
  for (const c10::Argument& argument : schema.arguments()) {
    if (names_a_file(argument)) return fmt::format("its '{}' names a file", argument.name());
    if (!is_plain(*argument.real_type())) {
      return fmt::format("its '{}' is a {}, which is not plain data", argument.name(),
                         argument.real_type()->str());
    }
  }
  for (const c10::Argument& result : schema.returns()) {
    if (!is_plain(*result.real_type())) {
      return fmt::format("it gives a {}, which is not plain data", result.real_type()->str());
    }
  }
  return {};
}

}  // namespace kerf
