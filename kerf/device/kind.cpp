// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/device/kind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

// PCIe, one direction, after encoding: gen 3 x16 15.75 GB/s, gen 4 x16 31.5 GB/s, gen 5 x16 63 GB/s
// (PCI-SIG base specifications 3.0, 4.0, 5.0). Pinned copies reach about four fifths of that.
constexpr double kPcie3 = 0.8 * 15.75 * kGiga;
constexpr double kPcie4 = 0.8 * 31.5 * kGiga;
constexpr double kPcie5 = 0.8 * 63.0 * kGiga;

// Launch and latency of accelerators: about 5 us for PyTorch to dispatch an eager operator and
// start its kernel, about 10 us for a copy between devices to start. Rules of thumb; a measured
// profile replaces the first.
constexpr Nanoseconds kLaunch{5e3};
constexpr Nanoseconds kCopy{10e3};

DeviceKind accelerator(std::string name, std::string full_name, double f64, double f32, double f16,
                       double f8, double memory_gb_s, double memory_gb, double link, double host) {
  return {.name = std::move(name),
          .full_name = std::move(full_name),
          .host = false,
          .flops_f64 = f64 * kTera,
          .flops_f32 = f32 * kTera,
          .flops_f16 = f16 * kTera,
          .flops_f8 = f8 * kTera,
          .memory_bytes_per_second = memory_gb_s * kGiga,
          .memory = Bytes{static_cast<std::int64_t>(memory_gb * kGiga)},
          .launch = kLaunch,
          .matrix_efficiency = 0.7,
          .link_latency = kCopy,
          .link_bytes_per_second = link,
          .host_bytes_per_second = host};
}

// One core with two 256-bit fused multiply-add units at 3 GHz (AVX2: 2 x 8 x 2 x 3e9), a tenth of a
// server's eight-channel DDR4-3200 bandwidth (8 x 25.6 GB/s, shared by the cores), and
// half-precision done in f32. Links: threads of one process hand tensors over by pointer; the
// receiver waits for a wake-up and reads cold lines from the other core's cache.
DeviceKind cpu_core() {
  return {.name = "cpu",
          .full_name = "one CPU core",
          .host = true,
          .flops_f64 = 48 * kGiga,
          .flops_f32 = 96 * kGiga,
          .flops_f16 = 48 * kGiga,
          .flops_f8 = 48 * kGiga,
          .memory_bytes_per_second = 12 * kGiga,
          .memory = Bytes{0},
          .launch = Nanoseconds{2e3},
          .matrix_efficiency = 0.8,
          .link_latency = Nanoseconds{10e3},
          .link_bytes_per_second = 10 * kGiga,
          .host_bytes_per_second = 10 * kGiga};
}

std::vector<DeviceKind> make_kinds() {
  std::vector<DeviceKind> kinds;
  kinds.push_back(cpu_core());
  // An accelerator nobody described: the figures of a T4, the slowest below, and no memory limit.
  kinds.push_back(accelerator("cuda", "a CUDA device", 0.25, 8.1, 65, 130, 320, 0, kPcie3, kPcie3));
  // NVIDIA H200 Tensor Core GPU datasheet: FP64 34, FP32 67, BF16 989 and FP8 1979 TFLOPS dense,
  // 141 GB HBM3e at 4.8 TB/s, NVLink 900 GB/s both directions together, PCIe gen 5.
  kinds.push_back(
      accelerator("h200", "NVIDIA H200 SXM", 34, 67, 989, 1979, 4800, 141, 450 * kGiga, kPcie5));
  // NVIDIA H100 Tensor Core GPU datasheet (SXM): 34, 67, 989, 1979; 80 GB at 3.35 TB/s; NVLink 900.
  kinds.push_back(
      accelerator("h100", "NVIDIA H100 SXM", 34, 67, 989, 1979, 3350, 80, 450 * kGiga, kPcie5));
  // NVIDIA A100 datasheet (SXM): 9.7, 19.5, 312, INT8 624; 80 GB at 2,039 GB/s or 40 GB at
  // 1,555 GB/s; NVLink 600 GB/s; PCIe gen 4.
  kinds.push_back(accelerator("a100", "NVIDIA A100 80GB SXM", 9.7, 19.5, 312, 624, 2039, 80,
                              300 * kGiga, kPcie4));
  kinds.push_back(accelerator("a100_40gb", "NVIDIA A100 40GB SXM", 9.7, 19.5, 312, 624, 1555, 40,
                              300 * kGiga, kPcie4));
  // NVIDIA V100 datasheet (SXM2, 32 GB): 7.8, 15.7, 125 TFLOPS, 900 GB/s, NVLink 300 GB/s; no
  // faster 8-bit path. PCIe gen 3.
  kinds.push_back(accelerator("v100", "NVIDIA V100 32GB SXM2", 7.8, 15.7, 125, 125, 900, 32,
                              150 * kGiga, kPcie3));
  // NVIDIA L40S datasheet: FP32 91.6, BF16 362 and FP8 733 TFLOPS dense, 48 GB at 864 GB/s, PCIe
  // gen 4. FP64 at 1/64 of FP32 (Ada architecture whitepaper).
  kinds.push_back(accelerator("l40s", "NVIDIA L40S", 1.4, 91.6, 362, 733, 864, 48, kPcie4, kPcie4));
  // NVIDIA L4 datasheet: FP32 30.3, BF16 121 and FP8 242 TFLOPS dense, 24 GB at 300 GB/s.
  kinds.push_back(accelerator("l4", "NVIDIA L4", 0.5, 30.3, 121, 242, 300, 24, kPcie4, kPcie4));
  // NVIDIA A10 datasheet: FP32 31.2, BF16 125 TFLOPS, INT8 250 TOPS dense, 24 GB at 600 GB/s.
  kinds.push_back(accelerator("a10", "NVIDIA A10", 0.5, 31.2, 125, 250, 600, 24, kPcie4, kPcie4));
  // NVIDIA T4 datasheet: FP32 8.1, FP16 65 TFLOPS, INT8 130 TOPS, 16 GB at 320 GB/s, PCIe gen 3.
  kinds.push_back(accelerator("t4", "NVIDIA T4", 0.25, 8.1, 65, 130, 320, 16, kPcie3, kPcie3));
  // NVIDIA Ada GPU architecture whitepaper, table of the RTX 4090: FP32 82.6, FP16 with FP32
  // accumulation 165.2, FP8 with FP32 accumulation 330.3 TFLOPS dense, 24 GB at 1,008 GB/s.
  kinds.push_back(accelerator("rtx4090", "NVIDIA GeForce RTX 4090", 1.3, 82.6, 165.2, 330.3, 1008,
                              24, kPcie4, kPcie4));
  // NVIDIA Ampere GA102 whitepaper, RTX 3090: FP32 35.6, FP16 with FP32 accumulation 71, INT8 284,
  // 24 GB at 936 GB/s.
  kinds.push_back(accelerator("rtx3090", "NVIDIA GeForce RTX 3090", 0.56, 35.6, 71, 284, 936, 24,
                              kPcie4, kPcie4));
  return kinds;
}

std::span<const DeviceKind> kinds() {
  static const std::vector<DeviceKind> all = make_kinds();
  return all;
}

}  // namespace

const DeviceKind* find_device_kind(std::string_view name) {
  for (const DeviceKind& kind : kinds()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

bool is_accelerator_kind(std::string_view name) {
  const DeviceKind* const kind = find_device_kind(name);
  return kind != nullptr && !kind->host;
}

const DeviceKind& device_kind(std::string_view name) {
  if (const DeviceKind* kind = find_device_kind(name)) return *kind;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[device.kind] unknown kind of device '{}'; expected one of {}", name,
                          fmt::join(device_kind_names(), ", ")));
}

std::vector<std::string> device_kind_names() {
  std::vector<std::string> names;
  for (const DeviceKind& kind : kinds()) names.push_back(kind.name);
  return names;
}

}  // namespace kerf
