// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/device_hold.h"

#ifdef KERF_WITH_CUDA
#include <ATen/cuda/Sleep.h>
#endif

#include <cstdint>

#include "kerf/base/error.h"

namespace kerf {

#ifdef KERF_WITH_CUDA

void hold_device(c10::Device device, double nanoseconds) {
  KERF_CHECK(device.is_cuda(), why_no_hold(device));
  constexpr double kCyclesPerNanosecond = 2;  // no card so far is faster
  at::cuda::sleep(static_cast<std::int64_t>(nanoseconds * kCyclesPerNanosecond));
}

std::string why_no_hold(c10::Device device) {
  return device.is_cuda() ? "" : "only CUDA devices have a kernel that waits";
}

#else

void hold_device(c10::Device device, double) { KERF_CHECK(false, why_no_hold(device)); }

std::string why_no_hold(c10::Device device) {
  return device.is_cuda() ? "Kerf was built without CUDA's headers"
                          : "only CUDA devices have a kernel that waits";
}

#endif

}  // namespace kerf
