// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/plan/plan.h"

namespace kerf {

// What recordings of stages take on an accelerator beside DeviceMemory::predicted, for one size of
// micro-batch and the device's whole memory group: for each stage the places its recording reads
// and the results it keeps until they are copied out, and once for each logical device what the
// largest needs in between. 0 for host devices, which record nothing.
Bytes recording_memory(const Plan& plan, DeviceId device);

}  // namespace kerf
