// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators of the pretend device: those without a kernel of their own take their turn in the
// current stream and run the CPU's kernel on the same memory.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace pretend {

// A boxed kernel: the CPU's, on the operator's arguments. Refuses tensors of other devices, but for
// numbers, as a device does that cannot reach their memory.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Operators with a kernel for the CPU and a general one made of other operators (layer_norm):
// PyTorch would choose the general one for the device, whose numbers are others; after this it does
// not. To be called once, after the device's own kernels are registered.
void prefer_kernels_of_the_cpu();

}  // namespace pretend
