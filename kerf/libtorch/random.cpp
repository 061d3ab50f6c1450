// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <mutex>

#include "kerf/base/rng.h"

namespace kerf {
namespace {

std::mutex& generator_mutex() {
  static std::mutex mutex;
  return mutex;
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

struct RandomScope::State {
  std::unique_lock<std::mutex> lock;
  at::Generator generator;
  at::Tensor saved;
};

RandomScope::RandomScope(c10::Device device, std::uint64_t seed)
    : state_(new State{std::unique_lock(generator_mutex()), default_generator(device), {}}) {
  const std::lock_guard lock(state_->generator.mutex());
  state_->saved = state_->generator.get_state();
  state_->generator.set_current_seed(seed);
}

RandomScope::~RandomScope() {
  const std::lock_guard lock(state_->generator.mutex());
  state_->generator.set_state(state_->saved);
}

}  // namespace kerf
