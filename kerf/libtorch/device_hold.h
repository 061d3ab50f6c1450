// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// An accelerator kept behind its host, so that what is issued meanwhile runs without gaps.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace kerf {

// Queues on the current stream of `device`, which is the current device, a kernel that keeps it
// busy for about that long (twice as long at half the clock).
void hold_device(c10::Device device, double nanoseconds);

// Empty where `hold_device` works, else why not.
std::string why_no_hold(c10::Device device);

}  // namespace kerf
