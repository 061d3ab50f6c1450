// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Kinds of device: what the analytic estimator needs to know about hardware.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/units.h"

namespace kerf {

// Peak rates of one device; for "cpu" those of one core. A multiply-add counts as two operations.
struct DeviceKind {
  std::string name;       // "h200"
  std::string full_name;  // "NVIDIA H200 SXM"
  bool host = false;
  double flops_f64 = 0;
  double flops_f32 = 0;  // as PyTorch computes f32 by default: without TF32
  double flops_f16 = 0;  // and bf16; matrix units where there are any, dense
  double flops_f8 = 0;   // and 8-bit integers
  double memory_bytes_per_second = 0;
  Bytes memory;                  // 0: that of the machine
  Nanoseconds launch;            // what one operator costs however small: dispatch, kernel start
  double matrix_efficiency = 1;  // share of the peak that large matrix products reach
  Nanoseconds link_latency;      // to any other device
  double link_bytes_per_second = 0;  // to a device of this kind in the same machine, one direction
  double host_bytes_per_second = 0;  // to host memory, one direction
};

// nullptr when unknown. "cuda" is an accelerator of unknown make and has conservative figures.
const DeviceKind* find_device_kind(std::string_view name);
// Is it known to be none of the host's? What runs on an accelerator keeps other tensors.
bool is_accelerator_kind(std::string_view name);
// Throws Error(invalid_argument) that lists the known ones.
const DeviceKind& device_kind(std::string_view name);
std::vector<std::string> device_kind_names();

}  // namespace kerf
