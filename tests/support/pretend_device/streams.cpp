// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/streams.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "tests/support/pretend_device/memory.h"

namespace pretend {

void join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

bool knows(const Clock& clock, std::size_t stream, std::uint64_t task) {
  return stream < clock.size() && clock[stream] >= task;
}

namespace {

// CUDA hands out 32 streams a device, round and round; so do we.
constexpr c10::StreamId kPoolSize = 32;

// Never destroyed: at the end of the process tensors are freed in any order.
struct Machine {
  std::recursive_mutex issue;
  Clock host;
  c10::DeviceIndex num_devices = 2;
  std::vector<std::unique_ptr<Stream>> streams;  // by number
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, Stream*> by_id;
  std::array<c10::StreamId, kMaxDevices> next_from_pool{};
};

Machine& machine() {
  static auto* it = new Machine;
  return *it;
}

thread_local c10::DeviceIndex this_device = 0;
thread_local std::array<c10::StreamId, kMaxDevices> this_stream{};

Stream& stream_at(c10::DeviceIndex device, c10::StreamId id) {
  TORCH_CHECK(device >= 0 && device < num_devices(), "pretend: there is no device ", int{device},
              "; there are ", int{num_devices()});
  std::lock_guard lock(issue_mutex());
  auto& found = machine().by_id[{device, id}];
  if (found == nullptr) {
    auto made = std::make_unique<Stream>(device, id, machine().streams.size());
    found = made.get();
    machine().streams.push_back(std::move(made));
  }
  return *found;
}

}  // namespace

std::recursive_mutex& issue_mutex() { return machine().issue; }

Stream::Stream(c10::DeviceIndex device_, c10::StreamId id_, std::size_t number_)
    : device(device_), id(id_), number(number_) {}

void Stream::enqueue(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (!started_) {
    started_ = true;
    std::thread([this] { work(); }).detach();
  }
  queue_.push_back(std::move(task));
  changed_.notify_all();
}

void Stream::work() {
  pthread_setname_np(pthread_self(), "pretend_stream");
  // Tasks compute on plain CPU tensors; nothing of them is to be recorded.
  at::AutoDispatchBelowADInplaceOrView below;
  this_device = device;
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() && !busy_; });
    auto task = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr failed;
    try {
      task();
    } catch (...) {
      failed = std::current_exception();
    }
    task = nullptr;  // frees what it held before anyone is told
    lock.lock();
    busy_ = false;
    if (failed && !failed_) failed_ = failed;
    changed_.notify_all();
  }
}

void Stream::rethrow(std::unique_lock<std::mutex>& lock) {
  if (!failed_) return;
  auto failed = std::exchange(failed_, nullptr);
  lock.unlock();
  std::rethrow_exception(failed);
}

void Stream::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  rethrow(lock);
}

bool Stream::idle() {
  std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

Stream::Turn::Turn(Stream& stream) : stream_(stream) {
  std::unique_lock lock(stream.mutex_);
  stream.changed_.wait(lock, [&] { return stream.queue_.empty() && !stream.busy_; });
  stream.rethrow(lock);
  stream.busy_ = true;
}

Stream::Turn::~Turn() {
  std::lock_guard lock(stream_.mutex_);
  stream_.busy_ = false;
  stream_.changed_.notify_all();
}

void Stream::run_soon(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    if (queue_.empty() && !busy_) return task();
  }
  enqueue(std::move(task));
}

void Recording::finish() {
  std::lock_guard lock(mutex);
  done = true;
  when = std::chrono::steady_clock::now();
  changed.notify_all();
}

void Recording::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

bool Recording::finished() {
  std::lock_guard lock(mutex);
  return done;
}

c10::DeviceIndex num_devices() { return machine().num_devices; }

void set_num_devices(c10::DeviceIndex count) {
  TORCH_CHECK(count > 0 && count <= kMaxDevices, "pretend: 1 to ", int{kMaxDevices}, " devices");
  std::lock_guard lock(issue_mutex());
  TORCH_CHECK(machine().streams.empty(), "pretend: the devices are in use already");
  machine().num_devices = count;
}

c10::DeviceIndex current_device() { return this_device; }

c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < num_devices(), "pretend: there is no device ", int{device},
              "; there are ", int{num_devices()});
  return std::exchange(this_device, device);
}

Stream& current_stream(c10::DeviceIndex device) {
  if (device < 0) device = this_device;
  TORCH_CHECK(device < num_devices(), "pretend: there is no device ", int{device}, "; there are ",
              int{num_devices()});
  return stream_at(device, this_stream[static_cast<std::size_t>(device)]);
}

Stream& find_stream(const c10::Stream& stream) {
  return stream_at(stream.device_index(), stream.id());
}

c10::Stream to_c10(const Stream& stream) {
  const c10::Device device(c10::kPrivateUse1, stream.device);
  return c10::Stream(c10::Stream::UNSAFE, device, stream.id);
}

std::vector<Stream*> streams_of(c10::DeviceIndex device) {
  std::lock_guard lock(issue_mutex());
  std::vector<Stream*> found;
  for (const auto& stream : machine().streams) {
    if (stream->device == device) found.push_back(stream.get());
  }
  return found;
}

std::uint64_t issue(Stream& stream) {
  std::lock_guard lock(issue_mutex());
  join(stream.clock, machine().host);
  if (stream.clock.size() <= stream.number) stream.clock.resize(stream.number + 1, 0);
  return ++stream.clock[stream.number];
}

void host_learns(const Clock& clock) {
  std::lock_guard lock(issue_mutex());
  join(machine().host, clock);
}

const Clock& host_clock() { return machine().host; }

namespace {

std::shared_ptr<Recording> record_on(Stream& stream) {
  auto recording = std::make_shared<Recording>();
  std::lock_guard lock(issue_mutex());
  issue(stream);
  recording->clock = stream.clock;
  stream.enqueue([recording] { recording->finish(); });
  return recording;
}

void wait_on(Stream& stream, const std::shared_ptr<Recording>& recording) {
  std::lock_guard lock(issue_mutex());
  join(stream.clock, recording->clock);
  issue(stream);
  stream.enqueue([recording] { recording->wait(); });
}

}  // namespace

void wait_for_stream(Stream& later, Stream& earlier) {
  if (&later == &earlier) return;
  std::lock_guard lock(issue_mutex());
  wait_on(later, record_on(earlier));
}

void synchronize(Stream& stream) {
  Clock issued;
  {
    std::lock_guard lock(issue_mutex());
    issued = stream.clock;
  }
  stream.wait();
  host_learns(issued);
}

namespace {

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device device_at(c10::DeviceIndex index) { return {c10::kPrivateUse1, index}; }

  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return device_at(exchange_device(device.has_index() ? device.index() : this_device));
  }
  c10::Device getDevice() const override { return device_at(this_device); }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) exchange_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) this_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return num_devices(); }

  c10::Stream getStream(c10::Device device) const override {
    return to_c10(current_stream(device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return to_c10(stream_at(device.has_index() ? device.index() : this_device, 0));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    const auto index = device.has_index() ? device.index() : this_device;
    TORCH_CHECK(index < num_devices(), "pretend: there is no device ", int{index});
    std::lock_guard lock(issue_mutex());
    auto& next = machine().next_from_pool[static_cast<std::size_t>(index)];
    const auto id = 1 + next;
    next = (next + 1) % kPoolSize;
    return to_c10(stream_at(index, id));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    Stream& before = current_stream(stream.device_index());
    this_stream[static_cast<std::size_t>(stream.device_index())] = stream.id();
    return to_c10(before);
  }
  bool queryStream(const c10::Stream& stream) const override {
    Stream& it = find_stream(stream);
    Clock issued;
    {
      std::lock_guard lock(issue_mutex());
      issued = it.clock;
    }
    if (!it.idle()) return false;
    host_learns(issued);
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize(find_stream(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    for (Stream* stream : streams_of(index < 0 ? this_device : index)) synchronize(*stream);
  }
  // Not in 2.11; without `override` it compiles there too.
  void* getStreamNativeHandle(const c10::Stream stream) const { return &find_stream(stream); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "pretend: an event of device ",
                int{device}, " was recorded on a stream of device ", int{stream.device_index()});
    if (*event == nullptr) *event = new Event;
    static_cast<Event*>(*event)->last = record_on(find_stream(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr || !static_cast<Event*>(event)->last) return;
    wait_on(find_stream(stream), static_cast<Event*>(event)->last);
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr || !static_cast<Event*>(event)->last) return true;
    auto& last = *static_cast<Event*>(event)->last;
    if (!last.finished()) return false;
    host_learns(last.clock);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr || !static_cast<Event*>(event)->last) return;
    const auto last = static_cast<Event*>(event)->last;
    last->wait();
    host_learns(last->clock);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    TORCH_CHECK(from != nullptr && to != nullptr, "pretend: both events must be recorded");
    const auto first = static_cast<Event*>(from)->last;
    const auto second = static_cast<Event*>(to)->last;
    TORCH_CHECK(first->finished() && second->finished(), "pretend: both events must be completed");
    return std::chrono::duration<double, std::milli>(second->when - first->when).count();
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer,
                             const c10::Stream& stream) const override {
    record_stream(pointer, find_stream(stream));
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

}  // namespace pretend
