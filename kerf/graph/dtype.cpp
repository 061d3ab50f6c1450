// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/dtype.h"

#include <array>

#include "kerf/base/error.h"

namespace kerf {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::string_view torch;
  std::int64_t bytes;
  bool floating;
};

constexpr std::array kTable{
    Row{DType::f64, "f64", "float64", 8, true},
    Row{DType::f32, "f32", "float32", 4, true},
    Row{DType::f16, "f16", "float16", 2, true},
    Row{DType::bf16, "bf16", "bfloat16", 2, true},
    Row{DType::f8e4m3fn, "f8e4m3fn", "float8_e4m3fn", 1, true},
    Row{DType::f8e5m2, "f8e5m2", "float8_e5m2", 1, true},
    Row{DType::f8e4m3fnuz, "f8e4m3fnuz", "float8_e4m3fnuz", 1, true},
    Row{DType::f8e5m2fnuz, "f8e5m2fnuz", "float8_e5m2fnuz", 1, true},
    Row{DType::f8e8m0fnu, "f8e8m0fnu", "float8_e8m0fnu", 1, true},
    Row{DType::i64, "i64", "int64", 8, false},
    Row{DType::i32, "i32", "int32", 4, false},
    Row{DType::i16, "i16", "int16", 2, false},
    Row{DType::i8, "i8", "int8", 1, false},
    Row{DType::u64, "u64", "uint64", 8, false},
    Row{DType::u32, "u32", "uint32", 4, false},
    Row{DType::u16, "u16", "uint16", 2, false},
    Row{DType::u8, "u8", "uint8", 1, false},
    Row{DType::boolean, "bool", "bool", 1, false},
    Row{DType::c128, "c128", "complex128", 16, true},
    Row{DType::c64, "c64", "complex64", 8, true},
    Row{DType::c32, "c32", "complex32", 4, true},
};

const Row& row(DType dtype) {
  for (const Row& entry : kTable) {
    if (entry.dtype == dtype) return entry;
  }
  check_failed(__FILE__, __LINE__, "row", "a dtype without a table row");
}

}  // namespace

std::string_view to_string(DType dtype) { return row(dtype).name; }
std::string_view torch_name(DType dtype) { return row(dtype).torch; }
std::int64_t element_size(DType dtype) { return row(dtype).bytes; }
bool is_floating(DType dtype) { return row(dtype).floating; }

std::optional<DType> find_dtype(std::string_view name) {
  for (const Row& entry : kTable) {
    if (entry.name == name || entry.torch == name) return entry.dtype;
  }
  return std::nullopt;
}

}  // namespace kerf
