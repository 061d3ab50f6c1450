// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kerf/emit/codegen/code.h"
#include "kerf/graph/argument.h"

namespace kerf::codegen {

using NameValue = std::function<std::string(ValueId)>;

// An argument as Python: values by name, sizes in B, devices as `self.device`. Throws
// Error(unsupported_operator) for constants of the framework that PyTorch does not have.
Code argument_code(const Argument& argument, const NameValue& name);

// The same for plain data, with `what` for the message where there is a value in it.
std::string constant_text(const Argument& argument, std::string_view what);

// "torch.float32"
std::string dtype_text(DType dtype);

}  // namespace kerf::codegen
