// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/refused_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

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
    "aten.from_file", "aten._print",        "aten.set_",           "aten.set",
    "aten.set_data",  "aten.record_stream", "aten._resize_output", "aten._resize_output_",
};

template <class Table>
bool holds(const Table& table, std::string_view name) {
  return std::find(table.begin(), table.end(), name) != table.end();
}

}  // namespace

std::string why_name_refused(std::string_view op) {
  const std::size_t dot = op.find('.');
  const std::string_view space = op.substr(0, dot);
  if (holds(kRefusedNamespaces, space)) {
    return fmt::format("operators of '{}' act on more than tensors", space);
  }
  const std::size_t overload = dot == std::string_view::npos ? dot : op.find('.', dot + 1);
  if (holds(kRefusedOperators, op.substr(0, overload))) return "it acts on more than tensors";
  return {};
}

}  // namespace kerf
