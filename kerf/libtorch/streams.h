// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace kerf {

inline bool has_streams(c10::Device device) { return !device.is_cpu(); }

// The calling thread's, of a device that has streams.
inline c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// Waits for what is queued on the current stream of `device`; nothing to do on the host.
inline void wait_for(c10::Device device) {
  if (has_streams(device)) current_stream(device).synchronize();
}

}  // namespace kerf
