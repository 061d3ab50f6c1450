// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/value_text.h"

#include <fmt/format.h>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/python_text.h"

namespace kerf::codegen {
namespace {

std::string enum_text(const EnumName& name) {
  const bool format = name.type == "memory_format";
  if (is_identifier(name.name) && (format || name.type == "layout")) {
    const bool suffix = format && (name.name == "contiguous" || name.name == "preserve");
    return "torch." + name.name + (suffix ? "_format" : "");
  }
  throw Error(ErrorKind::unsupported_operator,
              fmt::format("[emit.stages] an argument is {}({}); expected a layout or a memory "
                          "format; trace the model again",
                          name.type, name.name));
}

std::string device_text(const DeviceName& device) {
  if (device.name.empty()) return "self.device";
  return "torch.device(" + string_literal(device.name) + ")";
}

}  // namespace

std::string dtype_text(DType dtype) { return "torch." + std::string(torch_name(dtype)); }

Code argument_code(const Argument& argument, const NameValue& name) {
  if (const auto* id = argument.find<ValueId>()) return name(*id);
  if (const auto* list = argument.find<Argument::List>()) {
    std::vector<Code> items;
    for (const Argument& item : *list) items.push_back(argument_code(item, name));
    return {"", Bracket::list, std::move(items)};
  }
  if (const auto* flag = argument.find<bool>()) return *flag ? "True" : "False";
  if (const auto* size = argument.find<Expr>()) return size_text(*size);
  if (const auto* number = argument.find<double>()) return number_literal(*number);
  if (const auto* number = argument.find<std::complex<double>>()) return number_literal(*number);
  if (const auto* text = argument.find<std::string>()) return string_literal(*text);
  if (const auto* dtype = argument.find<DType>()) return dtype_text(*dtype);
  if (const auto* device = argument.find<DeviceName>()) return device_text(*device);
  if (const auto* constant = argument.find<EnumName>()) return enum_text(*constant);
  return "None";
}

std::string constant_text(const Argument& argument, std::string_view what) {
  return flat(argument_code(argument, [&](ValueId) -> std::string {
    throw Error(ErrorKind::unsupported_operator,
                fmt::format("[emit.stages] {} holds a list of values; expected values one by one; "
                            "trace the model again",
                            what));
  }));
}

}  // namespace kerf::codegen
