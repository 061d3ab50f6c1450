// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/modes.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "kerf/libtorch/convert.h"

namespace kerf {

struct CallerState::State {
  at::ThreadLocalState state;
};

// In this order: the caller's state first, then what is never adopted.
struct CallerState::Adoption::Guards {
  explicit Guards(const at::ThreadLocalState& state) : adopted(state) {}
  at::ThreadLocalStateGuard adopted;
  c10::InferenceMode no_inference_mode{false};
  c10::AutoGradMode no_grad{false};
};

CallerState::CallerState() : state_(std::make_unique<State>()) {}
CallerState::~CallerState() = default;

CallerState::Adoption::Adoption(const CallerState& state)
    : guards_(std::make_unique<Guards>(state.state_->state)) {}
CallerState::Adoption::~Adoption() = default;

struct AutocastScope::Saved {
  c10::DeviceType type;
  bool enabled;
  c10::ScalarType dtype;
};

AutocastScope::AutocastScope(const std::vector<Autocast>& states, c10::Device device) {
  const auto set = [&](c10::DeviceType type, const Autocast& state) {
    saved_.push_back(
        {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)});
    at::autocast::set_autocast_enabled(type, state.enabled);
    at::autocast::set_autocast_dtype(type, to_scalar_type(state.dtype));
  };
  for (const Autocast& state : states) {
    const c10::DeviceType type = c10::Device(state.device_type).type();
    set(type, state);
    if (type == c10::DeviceType::CPU && device.type() != type) set(device.type(), state);
  }
}

AutocastScope::~AutocastScope() {
  for (auto saved = saved_.rbegin(); saved != saved_.rend(); ++saved) {
    at::autocast::set_autocast_enabled(saved->type, saved->enabled);
    at::autocast::set_autocast_dtype(saved->type, saved->dtype);
  }
}

bool autocast_enabled(c10::Device device) {
  return at::autocast::is_autocast_enabled(c10::DeviceType::CPU) ||
         at::autocast::is_autocast_enabled(device.type());
}

void clear_autocast_cache() { at::autocast::clear_cache(); }

}  // namespace kerf
