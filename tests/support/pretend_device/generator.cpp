// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/GeneratorForPrivateuseone.h>

#include <array>

#include "tests/support/pretend_device/streams.h"

namespace pretend {
namespace {

class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  GeneratorImpl(c10::DeviceIndex device, at::Generator cpu)
      : c10::GeneratorImpl(c10::Device(c10::kPrivateUse1, device),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu_(std::move(cpu)) {}

  const at::Generator& cpu() const { return cpu_; }
  static c10::DeviceType device_type() { return c10::kPrivateUse1; }

  void set_current_seed(std::uint64_t seed) override { cpu_.set_current_seed(seed); }
  std::uint64_t current_seed() const override { return cpu_.current_seed(); }
  std::uint64_t seed() override { return cpu_.seed(); }
  void set_offset(std::uint64_t) override { TORCH_CHECK(false, "pretend: there is no offset"); }
  std::uint64_t get_offset() const override { TORCH_CHECK(false, "pretend: there is no offset"); }
  void set_state(const c10::TensorImpl& state) override {
    cpu_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return cpu_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  GeneratorImpl* clone_impl() const override {
    return new GeneratorImpl(device().index(), cpu_.clone());
  }

  at::Generator cpu_;
};

}  // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<GeneratorImpl>(device < 0 ? current_device() : device,
                                           at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static auto* all = [] {
    auto* made = new std::array<at::Generator, kMaxDevices>;
    for (c10::DeviceIndex i = 0; i < kMaxDevices; ++i) {
      (*made)[static_cast<std::size_t>(i)] = new_generator(i);
    }
    return made;
  }();
  if (device < 0) device = current_device();
  TORCH_CHECK(device < num_devices(), "pretend: there is no device ", int{device}, "; there are ",
              int{num_devices()});
  return (*all)[static_cast<std::size_t>(device)];
}

at::Generator cpu_generator(const at::Generator& generator) {
  const auto* ours = dynamic_cast<const GeneratorImpl*>(generator.unsafeGetGeneratorImpl());
  TORCH_CHECK(ours != nullptr, "Expected a 'pretend' device type for generator but found '",
              generator.device(), "'");
  return ours->cpu();
}

}  // namespace pretend
