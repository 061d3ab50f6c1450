// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kerf {

// Element types, named as in the text form. The torch name is in dtype.cpp's table.
enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8e4m3fn,
  f8e5m2,
  f8e4m3fnuz,
  f8e5m2fnuz,
  f8e8m0fnu,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
  c128,
  c64,
  c32,
};

std::string_view to_string(DType dtype);                 // "f32", "bool"
std::optional<DType> find_dtype(std::string_view name);  // by either name: "f32" or "float32"
std::string_view torch_name(DType dtype);                // "float32"
std::int64_t element_size(DType dtype);                  // bytes
bool is_floating(DType dtype);                           // floats and complex: can carry a gradient

}  // namespace kerf
