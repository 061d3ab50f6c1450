// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of a pretend device: a generator of its own, of the CPU's kind.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

namespace pretend {

at::Generator new_generator(c10::DeviceIndex device);
const at::Generator& default_generator(c10::DeviceIndex device);
// The CPU generator inside, which CPU kernels draw from.
at::Generator cpu_generator(const at::Generator& generator);

}  // namespace pretend
