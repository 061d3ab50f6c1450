// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace kerf {

// A fresh seed drawn from PyTorch's default generator, so that torch.manual_seed decides it.
std::uint64_t draw_seed();

// The stream of random numbers that belongs to one node of one micro-batch of one run.
std::uint64_t stream_seed(std::uint64_t run_seed, int microbatch, std::string_view node);

// While it lives, the device's default generator starts from `seed`; then it is put back. Operators
// such as dropout take their numbers from there and nowhere else, and the generator is shared by
// all threads: scopes wait for each other.
class RandomScope {
 public:
  RandomScope(c10::Device device, std::uint64_t seed);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kerf
