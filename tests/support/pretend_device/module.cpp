// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// _pretend_device: registers the pretend accelerator when loaded. tests/python/pretend.py names it
// and is its torch.pretend.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "tests/support/pretend_device/aliases.h"
#include "tests/support/pretend_device/copies.h"
#include "tests/support/pretend_device/from_cpp.h"
#include "tests/support/pretend_device/generator.h"
#include "tests/support/pretend_device/kernels.h"
#include "tests/support/pretend_device/races.h"

namespace py = pybind11;

namespace pretend {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return num_devices(); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchange_device(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    const auto block = find_block(data);
    TORCH_CHECK(block && block->device >= 0, "pretend: the pointer is of no pretend device");
    return {c10::kPrivateUse1, block->device};
  }
  bool isPinnedPtr(const void* data) const override {
    const auto block = find_block(data);
    return block && block->device < 0;
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    Stream::Turn turn(current_stream(storage.device().index()));
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

struct HooksAtLoad {
  HooksAtLoad() { at::RegisterPrivateUse1HooksInterface(new Hooks); }
} hooks_at_load;

void synchronize_all() {
  for (c10::DeviceIndex device = 0; device < num_devices(); ++device) {
    for (Stream* stream : streams_of(device)) synchronize(*stream);
  }
}

void bind(py::module_& m) {
  const py::call_guard<py::gil_scoped_release> unlocked;
  m.def("device_count", [] { return int{num_devices()}; });
  m.def("set_device_count",
        [](int count) { set_num_devices(static_cast<c10::DeviceIndex>(count)); });
  m.def("current_device", [] { return int{current_device()}; });
  m.def("exchange_device",
        [](int device) { return int{exchange_device(static_cast<c10::DeviceIndex>(device))}; });
  m.def("usage", [](int device) {
    const auto usage = usage_of(static_cast<c10::DeviceIndex>(device));
    return std::make_tuple(usage.allocated, usage.peak, usage.limit, usage.num_allocations);
  });
  m.def("reset_peak", [](int device) { reset_peak(static_cast<c10::DeviceIndex>(device)); });
  m.def("set_limit", [](int device, std::optional<std::size_t> bytes) {
    set_limit(static_cast<c10::DeviceIndex>(device), bytes);
  });
  m.def("pinned_memory_allocated", &pinned_bytes);
  m.def("set_copy_delay", &set_copy_delay);
  m.def("hold_copies", &hold_copies);
  m.def("synchronize_all", &synchronize_all, unlocked);
  m.def("races", &races);
  m.def("clear_races", &clear_races);
  m.def(
      "double_in_slot",
      [](int device, const std::string& wait, bool new_stream) {
        auto slot = double_in_slot(static_cast<c10::DeviceIndex>(device), wait, new_stream);
        return std::make_tuple(slot.doubled, slot.pinned, slot.done_at_once);
      },
      unlocked);
  m.def("default_generator",
        [](int device) { return default_generator(static_cast<c10::DeviceIndex>(device)); });
}

}  // namespace
}  // namespace pretend

PYBIND11_MODULE(_pretend_device, m) {
  pretend::prefer_kernels_of_the_cpu();
  pretend::bind(m);
}
