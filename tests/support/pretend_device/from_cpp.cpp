// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/from_cpp.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>

namespace pretend {
namespace {

void wait_for(c10::Event& event, const c10::Stream& stream, const std::string& how) {
  if (how == "block") {
    event.block(stream);
  } else if (how == "synchronize") {
    event.synchronize();
  } else if (how == "query") {
    while (!event.query()) std::this_thread::yield();
  } else {
    TORCH_CHECK(how == "forget", "pretend: wait how? ", how);
  }
}

}  // namespace

Slot double_in_slot(c10::DeviceIndex device, const std::string& wait, bool new_stream) {
  constexpr std::int64_t kSize = 100;
  const c10::Device where(c10::kPrivateUse1, device);
  const c10::DeviceGuard guard(where);
  const c10::impl::VirtualGuardImpl impl(c10::kPrivateUse1);
  const auto options = at::TensorOptions().dtype(at::kFloat);
  auto source = at::empty({kSize}, options.pinned_memory(true)).fill_(1);

  // The slot outlives its memory's last use: the streams are waited for below.
  const auto memory = c10::GetAllocator(c10::kPrivateUse1)->allocate(kSize * sizeof(float));
  auto slot = at::from_blob(memory.get(), {kSize}, options.device(where));
  const auto compute = impl.getStream(where);
  const auto side = new_stream ? impl.getNewStream(where) : impl.getStreamFromGlobalPool(where);
  c10::Event fresh(c10::kPrivateUse1);
  fresh.record(compute);
  fresh.block(side);

  TORCH_CHECK(impl.exchangeStream(side) == compute);
  slot.copy_(source, /*non_blocking=*/true);
  c10::Event copied(c10::kPrivateUse1);
  copied.record(side);
  TORCH_CHECK(impl.exchangeStream(compute) == side);
  const bool done = copied.query();
  wait_for(copied, compute, wait);
  Slot made{slot * 2, source.is_pinned(), done};
  impl.synchronizeStream(compute);
  impl.synchronizeStream(side);
  return made;
}

}  // namespace pretend
