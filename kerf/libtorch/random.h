// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace kerf {

// A fresh seed drawn from PyTorch's default generator, so that torch.manual_seed decides it.
std::uint64_t draw_seed();

// The stream of random numbers that belongs to one node of one micro-batch of one run.
std::uint64_t stream_seed(std::uint64_t run_seed, int microbatch, std::string_view node);

// A generator of the device's kind that nobody else uses: for operators that take one.
at::Generator make_generator(c10::Device device);

// While it lives, the device's default generator starts from `seed`; then it is put back. For what
// takes its numbers from there and nowhere else: operators such as dropout, and opaque blocks,
// which may draw on the host too. The generator is shared by all threads: scopes wait for each
// other, and poll meanwhile. One inside another, as in a block that calls a pipeline, does not wait
// for it.
class RandomScope {
 public:
  RandomScope(c10::Device device, std::uint64_t seed, bool host_too = false);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kerf
