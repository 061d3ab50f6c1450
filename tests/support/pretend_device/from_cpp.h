// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Uses of the device as C++ makes them that knows devices by PyTorch's general interfaces alone:
// what tests of the pretend device cannot say in Python.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>

namespace pretend {

struct Slot {
  at::Tensor doubled;  // the slot's contents times two
  bool pinned;         // the source
  bool done_at_once;   // the copy, when it had been issued
};

// Copies ones from pinned memory, on a stream of its own, into a slot over raw memory of the
// device's allocator, and doubles the slot on the current stream. `wait`: "block" the stream,
// "synchronize" or "query" by the host, or "forget".
Slot double_in_slot(c10::DeviceIndex device, const std::string& wait, bool new_stream);

}  // namespace pretend
