// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/symbolic/to_argument.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <fmt/format.h>

#include "kerf/base/error.h"
#include "kerf/libtorch/convert.h"

namespace kerf {
namespace {

Argument to_named_constant(std::int64_t number, ArgumentForm form) {
  switch (form) {
    case ArgumentForm::dtype: return {to_dtype(static_cast<c10::ScalarType>(number))};
    case ArgumentForm::layout: {
      const bool is_strided = static_cast<c10::Layout>(number) == c10::Layout::Strided;
      return {BoxedEnumName({"layout", is_strided ? "strided" : "sparse_coo"})};
    }
    case ArgumentForm::memory_format: {
      static constexpr const char* kNames[] = {"contiguous", "preserve", "channels_last",
                                               "channels_last_3d"};
      if (number < 0 || number > 3) return {};
      return {BoxedEnumName({"memory_format", kNames[number]})};
    }
    case ArgumentForm::plain: break;
  }
  return {Expr(number)};
}

template <class Items, class Convert>
Argument to_list(const Items& items, Convert&& convert) {
  Argument::List list;
  for (const auto& item : items) list.push_back(convert(item));
  return {std::move(list)};
}

// A number of Python's that was made a tensor on its way: `x + 1`. It has data, whatever x has; it
// is read past the dispatcher, whose calls are being watched.
bool is_plain_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.is_cpu();
}

Argument to_number(const at::Tensor& tensor) {
  const void* const data = tensor.unsafeGetTensorImpl()->data();
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Long: return {Expr(*static_cast<const std::int64_t*>(data))};
    case c10::ScalarType::Double: return {*static_cast<const double*>(data)};
    case c10::ScalarType::Bool: return {*static_cast<const bool*>(data)};
    case c10::ScalarType::ComplexDouble: return {*static_cast<const std::complex<double>*>(data)};
    default: return {};
  }
}

Argument to_value(const at::Tensor& tensor, const ValueOf& value_of) {
  if (!tensor.defined()) return {};
  return is_plain_number(tensor) ? to_number(tensor) : Argument{value_of(tensor)};
}

}  // namespace

ArgumentForm form_of(const c10::Argument& parameter) {
  c10::TypePtr type = parameter.real_type();
  if (const auto* optional = type->castRaw<c10::OptionalType>()) type = optional->getElementType();
  switch (type->kind()) {
    case c10::TypeKind::ScalarTypeType: return ArgumentForm::dtype;
    case c10::TypeKind::LayoutType: return ArgumentForm::layout;
    case c10::TypeKind::MemoryFormatType: return ArgumentForm::memory_format;
    default: return ArgumentForm::plain;
  }
}

DType to_dtype(c10::ScalarType type) {
  if (const auto found = find_dtype(type)) return *found;
  throw Error(ErrorKind::unsupported_operator,
              fmt::format("[symbolic.profile] a tensor of dtype {}; expected a dtype with elements "
                          "of whole bytes; convert it first",
                          c10::toString(type)));
}

Argument to_argument(const c10::IValue& value, ArgumentForm form, const ValueOf& value_of) {
  if (value.isTensor()) return to_value(value.toTensor(), value_of);
  if (value.isBool()) return {value.toBool()};
  if (value.isInt()) return to_named_constant(value.toInt(), form);
  if (value.isSymInt()) return {Expr(value.toSymInt().guard_int(__FILE__, __LINE__))};
  if (value.isDouble()) return {value.toDouble()};
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    return {std::complex<double>(number.real(), number.imag())};
  }
  if (value.isString()) return {value.toStringRef()};
  if (value.isDevice()) return {DeviceName{}};
  if (value.isIntList()) {
    return to_list(value.toIntVector(), [](std::int64_t i) { return Argument{Expr(i)}; });
  }
  if (value.isTensorList()) {
    return to_list(value.toTensorVector(),
                   [&](const at::Tensor& tensor) { return to_value(tensor, value_of); });
  }
  if (!value.isList()) return {};
  return to_list(value.toList().vec(),
                 [&](const c10::IValue& item) { return to_argument(item, form, value_of); });
}

}  // namespace kerf
