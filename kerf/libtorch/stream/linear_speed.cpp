// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/linear_speed.h"

#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>

#include "kerf/libtorch/samples.h"
#include "kerf/libtorch/streams.h"
#include "kerf/libtorch/threads.h"

namespace kerf {
namespace {

constexpr std::int64_t kInputs = 4096;  // of a weight
constexpr std::int64_t kOutputs = 2048;
constexpr std::size_t kMoreThanCaches = std::size_t{256} << 20;  // bytes
constexpr double kSecondsEach = 0.05;
constexpr double kVeryLong = 16;  // times what one row takes

double seconds_of(const at::Tensor& x, const std::vector<at::Tensor>& weights) {
  using Clock = std::chrono::steady_clock;
  wait_for(x.device());
  const auto start = Clock::now();
  for (const at::Tensor& weight : weights) at::linear(x, weight);
  wait_for(x.device());
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::vector<double> linear_seconds_per_byte(at::ScalarType type, at::Device device,
                                            const std::vector<std::int64_t>& rows) {
  const c10::InferenceMode quick;
  const BesideDevice fewer_threads;
  const auto options = at::TensorOptions(type).device(device);
  std::vector<at::Tensor> weights = {at::full({kOutputs, kInputs}, 0.01, options)};
  const std::size_t bytes = weights[0].nbytes();
  const std::size_t copies = device.is_cpu() ? kMoreThanCaches / bytes : 1;
  while (weights.size() < copies) weights.push_back(weights[0].clone());
  std::vector<double> out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (r > 0 && out.back() > kVeryLong * out[0]) {
      out.push_back(out.back() * static_cast<double>(rows[r]) / static_cast<double>(rows[r - 1]));
      continue;
    }
    const at::Tensor x = at::full({rows[r], kInputs}, 0.5, options);
    const SampleLimits limits{1, 3, 9, kSecondsEach, 0.05};
    const Samples samples =
        Samples::take([&] { return std::vector<double>{seconds_of(x, weights)}; }, limits);
    out.push_back(samples.medians(0, 1)[0] / static_cast<double>(bytes * weights.size()));
  }
  return out;
}

}  // namespace kerf
