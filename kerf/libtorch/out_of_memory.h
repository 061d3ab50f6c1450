// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>

#include "kerf/base/error.h"
#include "kerf/base/id.h"

namespace kerf {

// A stage did not get the memory it asked for. Whoever knows the plan says what would fit
// (driver/memory_advice.h).
class OutOfMemory : public Error {
 public:
  OutOfMemory(DeviceId device, std::int64_t batch, const std::string& message)
      : Error(ErrorKind::run_failed, message), device_(device), batch_(batch) {}
  DeviceId device() const { return device_; }
  std::int64_t batch() const { return batch_; }  // of the call; 0: static

 private:
  DeviceId device_;
  std::int64_t batch_;
};

// Does what PyTorch threw mean that?
bool is_out_of_memory(const std::exception& error);

}  // namespace kerf
