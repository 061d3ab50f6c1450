// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies from, to and between pretend devices. The rules are CUDA's: a copy is a task of the
// current stream (between two devices, the source's, and the streams of both wait for each other);
// the host waits for it unless told not to, and always where its side of the copy is not pinned.
#include "tests/support/pretend_device/copies.h"

#include <ATen/ops/copy.h>
#include <ATen/ops/expand.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/support/pretend_device/aliases.h"

namespace pretend {
namespace {

std::atomic<double> copy_delay_seconds{0};

// Never destroyed: streams' threads may still wait at the end of the process.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool closed = false;
};

Gate& gate() {
  static auto* it = new Gate;
  return *it;
}

void pass_gate() {
  std::unique_lock lock(gate().mutex);
  gate().changed.wait(lock, [] { return !gate().closed; });
}

bool same_bytes(const at::Tensor& to, const at::Tensor& from) {
  return to.dtype() == from.dtype() && to.sizes() == from.sizes() &&
         to.strides() == from.strides() && to.is_non_overlapping_and_dense() &&
         to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg();
}

// On CPU tensors; runs on the stream's thread.
void copy_now(const at::Tensor& to, const at::Tensor& from) {
  const double delay = copy_delay_seconds;
  if (delay > 0) std::this_thread::sleep_for(std::chrono::duration<double>(delay));
  pass_gate();
  if (same_bytes(to, from)) {
    std::memmove(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes());
  } else {
    at::Tensor(to).copy_(from);
  }
}

void enqueue_copy(Stream& stream, const at::Tensor& to, const at::Tensor& from) {
  // A task holds memory and no tensors of others: those may belong to Python, whose lock a stream's
  // thread must not wait for.
  to.storage().mutable_data();  // before it is borrowed: it may be copy-on-write
  const auto to_cpu = borrow(to);
  const auto from_cpu = borrow(from);
  auto to_block = find_block(to.const_data_ptr());
  auto from_block = find_block(from.const_data_ptr());
  std::lock_guard lock(issue_mutex());
  issue(stream);
  note_use(from, false, stream, "a copy");
  note_use(to, true, stream, "a copy");
  stream.enqueue([to_cpu, from_cpu, to_block, from_block] { copy_now(to_cpu, from_cpu); });
}

bool is_pinned(const at::Tensor& host) {
  const auto block = find_block(host.const_data_ptr());
  return block && block->device < 0;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.is_same(from)) return to;
  const auto source = from.sizes() == to.sizes() ? from : from.expand(to.sizes());
  if (to.numel() == 0) return to;
  if (source.is_privateuseone() && to.is_privateuseone()) {
    Stream& here = current_stream(source.get_device());
    Stream& there = current_stream(to.get_device());
    wait_for_stream(here, there);
    enqueue_copy(here, to, source);
    wait_for_stream(there, here);
    return to;
  }
  const auto& host = source.is_privateuseone() ? to : source;
  const auto& device = source.is_privateuseone() ? source : to;
  TORCH_CHECK(host.is_cpu(), "pretend: cannot copy between ", host.device(), " and ",
              device.device());
  Stream& stream = current_stream(device.get_device());
  enqueue_copy(stream, to, source);
  if (!non_blocking || !is_pinned(host)) synchronize(stream);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

}  // namespace

void set_copy_delay(double seconds) { copy_delay_seconds = seconds; }

void hold_copies(bool hold) {
  std::lock_guard lock(gate().mutex);
  gate().closed = hold;
  gate().changed.notify_all();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
}

}  // namespace pretend
