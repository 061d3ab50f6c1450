// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/runtime/turn.h"

namespace kerf {
namespace {

Turns& generator_turns() {
  static Turns turns;
  return turns;
}

at::Generator default_generator(c10::Device device) {
  if (device.is_cpu()) return at::detail::getDefaultCPUGenerator();
  return at::globalContext().defaultGenerator(device);
}

}  // namespace

std::uint64_t draw_seed() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get<at::CPUGeneratorImpl>()->random64();
}

std::uint64_t stream_seed(std::uint64_t run_seed, int microbatch, std::string_view node) {
  std::uint64_t mixed = Rng(run_seed).next() ^ (static_cast<std::uint64_t>(microbatch) << 32);
  for (const char c : node) mixed = Rng(mixed ^ static_cast<unsigned char>(c)).next();
  return mixed;
}

at::Generator make_generator(c10::Device device) {
  at::Generator generator = default_generator(device);
  const std::lock_guard lock(generator.mutex());
  return generator.clone();
}

struct RandomScope::State {
  struct Saved {
    at::Generator generator;
    at::Tensor state;
  };
  void seed(c10::Device device, std::uint64_t seed) {
    at::Generator generator = default_generator(device);
    const std::lock_guard lock(generator.mutex());
    saved.push_back({generator, generator.get_state()});
    generator.set_current_seed(seed);
  }

  Turn turn{generator_turns(), Turn::Cycle::go_on};
  std::vector<Saved> saved;
};

RandomScope::RandomScope(c10::Device device, std::uint64_t seed, bool host_too)
    : state_(std::make_unique<State>()) {
  state_->seed(device, seed);
  if (host_too && !device.is_cpu()) state_->seed(c10::kCPU, seed);
}

RandomScope::~RandomScope() {
  for (State::Saved& saved : state_->saved) {
    const std::lock_guard lock(saved.generator.mutex());
    saved.generator.set_state(saved.state);
  }
}

}  // namespace kerf
