// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/convert.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <fmt/format.h>

#include <array>
#include <utility>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr std::array<std::pair<DType, c10::ScalarType>, 21> kScalarTypes{{
    {DType::f64, c10::ScalarType::Double},
    {DType::f32, c10::ScalarType::Float},
    {DType::f16, c10::ScalarType::Half},
    {DType::bf16, c10::ScalarType::BFloat16},
    {DType::f8e4m3fn, c10::ScalarType::Float8_e4m3fn},
    {DType::f8e5m2, c10::ScalarType::Float8_e5m2},
    {DType::f8e4m3fnuz, c10::ScalarType::Float8_e4m3fnuz},
    {DType::f8e5m2fnuz, c10::ScalarType::Float8_e5m2fnuz},
    {DType::f8e8m0fnu, c10::ScalarType::Float8_e8m0fnu},
    {DType::i64, c10::ScalarType::Long},
    {DType::i32, c10::ScalarType::Int},
    {DType::i16, c10::ScalarType::Short},
    {DType::i8, c10::ScalarType::Char},
    {DType::u64, c10::ScalarType::UInt64},
    {DType::u32, c10::ScalarType::UInt32},
    {DType::u16, c10::ScalarType::UInt16},
    {DType::u8, c10::ScalarType::Byte},
    {DType::boolean, c10::ScalarType::Bool},
    {DType::c128, c10::ScalarType::ComplexDouble},
    {DType::c64, c10::ScalarType::ComplexFloat},
    {DType::c32, c10::ScalarType::ComplexHalf},
}};

[[noreturn]] void misfit(std::string_view what, const c10::TypePtr& type) {
  throw Error(
      ErrorKind::unsupported_operator,
      fmt::format("[libtorch.convert] {} for a parameter of type {}; expected a value of that "
                  "type; trace the model again with this PyTorch",
                  what, type->str()));
}

c10::IValue to_enum(const EnumName& name, const c10::TypePtr& type) {
  if (name.type == "layout") {
    if (name.name == "strided") return c10::IValue(c10::Layout::Strided);
    if (name.name == "sparse_coo") return c10::IValue(c10::Layout::Sparse);
  }
  if (name.type == "memory_format") {
    if (name.name == "contiguous") return c10::IValue(c10::MemoryFormat::Contiguous);
    if (name.name == "preserve") return c10::IValue(c10::MemoryFormat::Preserve);
    if (name.name == "channels_last") return c10::IValue(c10::MemoryFormat::ChannelsLast);
    if (name.name == "channels_last_3d") return c10::IValue(c10::MemoryFormat::ChannelsLast3d);
  }
  misfit(fmt::format("{}({})", name.type, name.name), type);
}

// A number where the schema wants a tensor: as Python's x + 1, a number that does not decide
// dtypes.
c10::IValue to_wrapped_number(const c10::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

c10::IValue to_integer(std::int64_t value, const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::FloatType: return static_cast<double>(value);
    case c10::TypeKind::BoolType: return value != 0;
    default: return value;
  }
}

// A list of constants with the element type the schema names.
c10::IValue to_list(const Argument::List& list, const c10::TypePtr& element, std::int64_t batch,
                    c10::Device device) {
  const auto fill = [&](auto out) {
    using T = typename decltype(out)::value_type;
    for (const Argument& item : list)
      out.push_back(to_ivalue(item, element, batch, device).to<T>());
    return c10::IValue(std::move(out));
  };
  switch (element->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return fill(c10::List<std::int64_t>());
    case c10::TypeKind::FloatType: return fill(c10::List<double>());
    case c10::TypeKind::BoolType: return fill(c10::List<bool>());
    case c10::TypeKind::StringType: return fill(c10::List<std::string>());
    case c10::TypeKind::TensorType:
      if (list.empty()) return c10::IValue(c10::List<at::Tensor>());
      [[fallthrough]];
    default: {
      c10::impl::GenericList out(element);
      for (const Argument& item : list) out.push_back(to_ivalue(item, element, batch, device));
      return c10::IValue(std::move(out));
    }
  }
}

}  // namespace

c10::ScalarType to_scalar_type(DType dtype) {
  for (const auto& [ours, theirs] : kScalarTypes) {
    if (ours == dtype) return theirs;
  }
  check_failed(__FILE__, __LINE__, "dtype", "a dtype without a table row");
}

std::optional<DType> find_dtype(c10::ScalarType type) {
  for (const auto& [ours, theirs] : kScalarTypes) {
    if (theirs == type) return ours;
  }
  return std::nullopt;
}

c10::Device to_torch_device(const Device& device) {
  if (device.host) return c10::Device(c10::DeviceType::CPU);
  try {
    // Presets of other machines ("h200") plan but do not run: PyTorch does not know their names.
    return c10::Device(device.kind + ":" + std::to_string(device.ordinal));
  } catch (const c10::Error&) {
    throw Error(
        ErrorKind::missing_backend,
        fmt::format(
            "[libtorch.device] device '{}' is of kind '{}', which PyTorch cannot run; expected cpu "
            "or an accelerator of this machine such as cuda:0; plan for devices of this machine",
            device.name, device.kind));
  }
}

c10::IValue to_ivalue(const Argument& argument, const c10::TypePtr& type, std::int64_t batch,
                      c10::Device device) {
  if (argument.is_none()) return {};
  if (const auto* optional = type->castRaw<c10::OptionalType>()) {
    return to_ivalue(argument, optional->getElementType(), batch, device);
  }
  const auto* list_type = type->castRaw<c10::ListType>();
  if (const auto* list = argument.find<Argument::List>()) {
    if (list_type == nullptr) misfit("a list", type);
    return to_list(*list, list_type->getElementType(), batch, device);
  }
  if (list_type != nullptr) {
    // int[2] may be written as one number.
    return to_list({argument}, list_type->getElementType(), batch, device);
  }
  const bool wants_tensor = type->kind() == c10::TypeKind::TensorType;
  if (const auto* flag = argument.find<bool>()) {
    if (wants_tensor) return to_wrapped_number(*flag);
    if (type->kind() == c10::TypeKind::IntType) return static_cast<std::int64_t>(*flag);
    if (type->kind() == c10::TypeKind::FloatType) return *flag ? 1.0 : 0.0;
    return *flag;
  }
  if (const auto* size = argument.find<Expr>()) {
    const std::int64_t number = size->eval(batch);
    return wants_tensor ? to_wrapped_number(number) : to_integer(number, type);
  }
  if (const auto* number = argument.find<double>()) {
    return wants_tensor ? to_wrapped_number(*number) : c10::IValue(*number);
  }
  if (const auto* number = argument.find<std::complex<double>>()) {
    const c10::complex<double> value(number->real(), number->imag());
    return wants_tensor ? to_wrapped_number(value) : c10::IValue(value);
  }
  if (const auto* text = argument.find<std::string>()) return *text;
  if (const auto* dtype = argument.find<DType>()) return c10::IValue(to_scalar_type(*dtype));
  if (const auto* name = argument.find<DeviceName>()) {
    return c10::IValue(name->name.empty() ? device : c10::Device(name->name));
  }
  if (const auto* name = argument.find<EnumName>()) return to_enum(*name, type);
  misfit("a value of the graph", type);
}

std::string describe(const Value& value) {
  std::string sizes;
  for (const Expr& size : value.shape) sizes += (sizes.empty() ? "" : ", ") + size.str();
  return fmt::format("{}[{}]", to_string(value.dtype), sizes);
}

std::string describe(const c10::IValue& value) {
  if (value.isTensorList()) {
    std::string out;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      out += (out.empty() ? "" : ", ") + describe(c10::IValue(tensor));
    }
    return "[" + out + "]";
  }
  if (!value.isTensor()) return value.isNone() ? "none" : std::string(value.tagKind());
  const at::Tensor& tensor = value.toTensor();
  if (!tensor.defined()) return "undefined";
  std::string sizes;
  for (const std::int64_t size : tensor.sizes()) {
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  }
  std::string dtype = c10::toString(tensor.scalar_type());
  if (const auto ours = find_dtype(tensor.scalar_type())) dtype = to_string(*ours);
  return fmt::format("{}[{}] on {}", dtype, sizes, tensor.device().str());
}

}  // namespace kerf
