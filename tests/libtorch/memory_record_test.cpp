// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/memory_record.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

namespace kerf {
namespace {

constexpr std::int64_t kKilo = 1024;

at::Tensor bytes_of(std::int64_t count) { return at::empty({count}, at::kByte); }

std::shared_ptr<MemoryRecord> on_hosts(std::size_t num_devices) {
  return MemoryRecord::start(std::vector<c10::Device>(num_devices, at::kCPU),
                             MemoryRecord::Clock::now());
}

Bytes last(const MemoryCurve& curve, MemoryKind kind) {
  return of(curve.points.back().by_kind, kind);
}

TEST(AMemoryRecord, KnowsWhatAThreadAllocates) {
  const auto record = on_hosts(1);
  record->add(DeviceId{0}, MemoryKind::weights, {kKilo});
  const at::Tensor before = bytes_of(64 * kKilo);
  {
    const MemoryRecord::Scope scope(record, DeviceId{0});
    const at::Tensor a = bytes_of(2 * kKilo);
    { const at::Tensor b = bytes_of(3 * kKilo); }
  }
  const at::Tensor after = bytes_of(64 * kKilo);
  const std::vector<MemoryCurve> curves = record->curves();
  ASSERT_EQ(curves.size(), 1U);
  EXPECT_EQ(curves[0].peak(), Bytes{6 * kKilo});
  EXPECT_EQ(curves[0].points.front().time, Nanoseconds{0});
  EXPECT_EQ(curves[0].points.front().bytes, Bytes{kKilo});
  EXPECT_EQ(curves[0].points.back().bytes, Bytes{kKilo});
  for (const MemoryPoint& point : curves[0].points) EXPECT_EQ(sum(point.by_kind), point.bytes);
}

TEST(AMemoryRecord, TakesBackFromADeviceWhatAnotherFrees) {
  const auto record = on_hosts(2);
  at::Tensor made;
  std::thread([&] {
    const MemoryRecord::Scope scope(record, DeviceId{0});
    made = bytes_of(5 * kKilo);
  }).join();
  std::thread([&] {
    const MemoryRecord::Scope scope(record, DeviceId{1});
    made.reset();
    made = bytes_of(kKilo);
  }).join();
  const std::vector<MemoryCurve> curves = record->curves();
  ASSERT_EQ(curves.size(), 2U);
  EXPECT_EQ(curves[0].peak(), Bytes{5 * kKilo});
  EXPECT_EQ(curves[0].points.back().bytes, Bytes{0});
  EXPECT_EQ(curves[1].peak(), Bytes{kKilo});
}

// PyTorch reports a free with the size that the address had when somebody last listened.
TEST(AMemoryRecord, DoesNotBelieveSizesOfBlocksThatItHasNotSeen) {
  at::Tensor block;
  {
    const auto first = on_hosts(1);
    const MemoryRecord::Scope scope(first, DeviceId{0});
    block = bytes_of(7 * kKilo);
  }
  const auto second = on_hosts(1);
  const MemoryRecord::Scope scope(second, DeviceId{0});
  const at::Tensor own = bytes_of(kKilo);
  block.reset();
  ASSERT_EQ(second->curves().size(), 1U);
  EXPECT_EQ(second->curves()[0].points.back().bytes, Bytes{kKilo});
}

TEST(AMemoryRecord, TellsResultsFromTheRest) {
  const auto record = on_hosts(1);
  const MemoryRecord::Scope scope(record, DeviceId{0});
  const at::Tensor a = bytes_of(kKilo);
  const at::Tensor b = bytes_of(2 * kKilo);
  record->recount(b.storage().data(), MemoryKind::results);
  const MemoryCurve curve = record->curves()[0];
  EXPECT_EQ(last(curve, MemoryKind::temporaries), Bytes{kKilo});
  EXPECT_EQ(last(curve, MemoryKind::results), Bytes{2 * kKilo});
  EXPECT_EQ(curve.peak(), Bytes{3 * kKilo});
}

TEST(AMemoryRecord, KeepsThePeakOfVeryManyPoints) {
  const auto record = on_hosts(1);
  const MemoryRecord::Scope scope(record, DeviceId{0});
  for (int i = 0; i < 20000; ++i) {
    const at::Tensor small = bytes_of(i == 7777 ? 9 * kKilo : kKilo);
  }
  const MemoryCurve curve = record->curves()[0];
  EXPECT_LT(curve.points.size(), 5000U);
  EXPECT_GT(curve.points.size(), 100U);
  EXPECT_EQ(curve.peak(), Bytes{9 * kKilo});
  EXPECT_EQ(curve.points.back().bytes, Bytes{0});
  for (std::size_t i = 1; i < curve.points.size(); ++i) {
    EXPECT_LE(curve.points[i - 1].time, curve.points[i].time);
  }
}

TEST(AMemoryRecord, LeavesAProfilersPlaceAlone) {
  const auto outer = on_hosts(1);
  const MemoryRecord::Scope scope(outer, DeviceId{0});
  EXPECT_EQ(on_hosts(1), nullptr);
  const MemoryRecord::Scope nothing(nullptr, DeviceId{0});
  const at::Tensor a = bytes_of(kKilo);
  EXPECT_EQ(outer->curves()[0].peak(), Bytes{kKilo});
  EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
}

}  // namespace
}  // namespace kerf
