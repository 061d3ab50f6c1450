// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/memory_record.h"

#include <algorithm>

#include "kerf/base/error.h"

namespace kerf {
namespace {

// A call of a large model has a million allocations; a curve of some thousand points shows as much.
constexpr std::size_t kMostPoints = 4096;

void change(MemoryPoint& point, MemoryKind kind, Bytes bytes) {
  of(point.by_kind, kind) += bytes;
  point.bytes += bytes;
}

// Of each of kMostPoints spans of time the highest point, and the last of all. The peak stays.
std::vector<MemoryPoint> thinned(const std::vector<MemoryPoint>& points) {
  if (points.size() <= kMostPoints) return points;
  const Nanoseconds first = points.front().time;
  const double span = (points.back().time - first).count / kMostPoints;
  std::vector<MemoryPoint> out;
  std::size_t bucket = kMostPoints;  // of the last point that was kept
  for (const MemoryPoint& point : points) {
    const auto at =
        std::min(static_cast<std::size_t>((point.time - first).count / span), kMostPoints - 1);
    if (at != bucket) {
      out.push_back(point);
      bucket = at;
    } else if (out.back().bytes < point.bytes) {
      out.back() = point;
    }
  }
  if (!(out.back() == points.back())) out.push_back(points.back());
  return out;
}

}  // namespace

class MemoryRecord::Listener : public MemoryListener {
 public:
  Listener(std::shared_ptr<MemoryRecord> record, DeviceId device)
      : record_(std::move(record)), device_(device) {}

  void allocated(const void* block, Bytes bytes, c10::Device where) override {
    const DeviceId device = record_->owner(device_, where);
    if (device.valid()) record_->allocated(block, device, bytes);
  }
  void freed(const void* block) override { record_->freed(block); }

 private:
  std::shared_ptr<MemoryRecord> record_;
  DeviceId device_;
};

std::shared_ptr<MemoryRecord> MemoryRecord::start(std::vector<c10::Device> devices,
                                                  Clock::time_point start) {
  if (!MemoryListener::has_room()) return nullptr;
  return std::make_shared<MemoryRecord>(std::move(devices), start);
}

MemoryRecord::MemoryRecord(std::vector<c10::Device> devices, Clock::time_point start)
    : devices_(std::move(devices)), start_(start), points_(devices_.size()) {}

MemoryRecord::Scope::Scope(const std::shared_ptr<MemoryRecord>& record, DeviceId device) {
  if (!record) return;
  listening_.emplace(std::make_shared<Listener>(record, device));
}

// An accelerator that several of the plan's devices stand for counts for the thread's own.
DeviceId MemoryRecord::owner(DeviceId of_thread, c10::Device where) const {
  const auto is_there = [&](DeviceId id) {
    const c10::Device device = devices_[id.index()];
    return device.is_cpu() ? where.is_cpu() : device == where;
  };
  if (of_thread.valid() && is_there(of_thread)) return of_thread;
  if (where.is_cpu()) return {};  // of the host, while the thread works for an accelerator
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    if (is_there(DeviceId{d})) return DeviceId{d};
  }
  return {};
}

void MemoryRecord::add(DeviceId device, MemoryKind kind, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryPoint>& points = points_[device.index()];
  KERF_CHECK(points.size() <= 1, "what is there before the call is added first");
  if (points.empty()) points.emplace_back();
  change(points.front(), kind, bytes);
}

MemoryPoint& MemoryRecord::next_point(DeviceId device) {
  std::vector<MemoryPoint>& points = points_[device.index()];
  points.push_back(points.empty() ? MemoryPoint{} : points.back());
  points.back().time = {std::chrono::duration<double, std::nano>(Clock::now() - start_).count()};
  return points.back();
}

void MemoryRecord::recount(const void* block, MemoryKind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return;
  MemoryPoint& point = next_point(found->second.device);
  change(point, found->second.kind, Bytes{} - found->second.bytes);
  found->second.kind = kind;
  change(point, kind, found->second.bytes);
}

void MemoryRecord::allocated(const void* block, DeviceId device, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  // The address was freed where nobody listened.
  if (const auto found = blocks_.find(block); found != blocks_.end()) forget(found);
  blocks_[block] = {device, MemoryKind::temporaries, bytes};
  change(next_point(device), MemoryKind::temporaries, bytes);
}

void MemoryRecord::freed(const void* block) {
  const std::lock_guard lock(mutex_);
  if (const auto found = blocks_.find(block); found != blocks_.end()) forget(found);
}

void MemoryRecord::forget(Blocks::iterator block) {
  const auto& [device, kind, bytes] = block->second;
  change(next_point(device), kind, Bytes{} - bytes);
  blocks_.erase(block);
}

std::vector<MemoryCurve> MemoryRecord::curves() const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryCurve> out;
  for (std::size_t d = 0; d < points_.size(); ++d) {
    if (!points_[d].empty()) out.push_back({DeviceId{d}, thinned(points_[d])});
  }
  return out;
}

}  // namespace kerf
