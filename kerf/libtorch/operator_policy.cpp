// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/operator_policy.h"

#include <ATen/core/jit_type.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace kerf {
namespace {

// Namespaces that PyTorch itself or its companions register, whose operators have effects beside
// their results, work on packed objects, or are for tests.
constexpr std::array<std::string_view, 31> kRefusedNamespaces{
    "_c10d_functional",
    "_c10d_functional_autograd",
    "_dtensor",
    "_native",
    "_test",
    "c10d",
    "cuda",
    "debug_mode_ops",
    "debugprims",
    "export",
    "image",
    "inductor",
    "inductor_prims",
    "kerf",
    "mkl",
    "mkldnn",
    "mkldnn_prepacked",
    "onednn",
    "prim",
    "prepacked",
    "profiler",
    "rpc",
    "sparse",
    "static_runtime",
    "streams",
    "symm_mem",
    "torchaudio",
    "torchcodec_ns",
    "torio",
    "video_reader",
    "xnnpack",
};

// Operators of `aten` that do more than compute: they read a file, print, or put other memory under
// a tensor, which no plan knows of.
constexpr std::array<std::string_view, 8> kRefusedOperators{
    "aten::from_file", "aten::_print",        "aten::set_",           "aten::set",
    "aten::set_data",  "aten::record_stream", "aten::_resize_output", "aten::_resize_output_",
};

template <class Table>
bool holds(const Table& table, std::string_view name) {
  return std::find(table.begin(), table.end(), name) != table.end();
}

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
  const std::string& name = schema.name();
  const std::string space = name.substr(0, name.find("::"));
  if (holds(kRefusedNamespaces, space)) {
    return fmt::format("operators of '{}' act on more than tensors", space);
  }
  if (holds(kRefusedOperators, name)) return "it acts on more than tensors";
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
