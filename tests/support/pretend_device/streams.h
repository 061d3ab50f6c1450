// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Streams of the pretend accelerator: each is a thread with a queue, so that work really is
// asynchronous, and a forgotten wait gives wrong numbers as it would on a GPU.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace pretend {

// What an actor knows to be finished: for each stream, how many of its tasks. Order is decided when
// work is issued, not when it runs: a race is found even on the day on which luck hides it.
using Clock = std::vector<std::uint64_t>;
void join(Clock& into, const Clock& other);
bool knows(const Clock& clock, std::size_t stream, std::uint64_t task);

// The lock under which work is issued: clocks, queues and the accesses of races.h agree on one
// order. Workers never take it, so it may be held while one waits for nobody.
std::recursive_mutex& issue_mutex();

class Stream {
 public:
  Stream(c10::DeviceIndex device, c10::StreamId id, std::size_t number);

  const c10::DeviceIndex device;
  const c10::StreamId id;
  const std::size_t number;  // among all streams of all devices: the index in a Clock
  Clock clock;               // guarded by issue_mutex()

  // Runs the task after all earlier ones, on the stream's thread. What it throws is thrown by the
  // next wait() for the stream.
  void enqueue(std::function<void()> task);
  void wait();
  bool idle();

  // The stream's turn, taken by a thread that computes itself: begins after all queued tasks, and
  // holds back later ones.
  class Turn {
   public:
    explicit Turn(Stream& stream);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Stream& stream_;
  };
  // Runs the task at once where the stream has nothing to do, else queues it.
  void run_soon(std::function<void()> task);

 private:
  void work();
  void rethrow(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool started_ = false;
  std::exception_ptr failed_;
};

// One recording of an event. An event recorded again leaves those who wait for the earlier
// recording waiting for that one.
struct Recording {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point when;
  Clock clock;

  void finish();
  void wait();
  bool finished();
};

struct Event {
  std::shared_ptr<Recording> last;  // null until recorded
};

constexpr c10::DeviceIndex kMaxDevices = 16;
c10::DeviceIndex num_devices();
void set_num_devices(c10::DeviceIndex count);  // before the first stream is made

c10::DeviceIndex current_device();
c10::DeviceIndex exchange_device(c10::DeviceIndex device);

// -1 is the current device.
Stream& current_stream(c10::DeviceIndex device);
Stream& find_stream(const c10::Stream& stream);
c10::Stream to_c10(const Stream& stream);
std::vector<Stream*> streams_of(c10::DeviceIndex device);

// Counts one more task of the stream, which happens after what the host and the stream know; holds
// issue_mutex() itself. Returns the task's number.
std::uint64_t issue(Stream& stream);
// The host has waited for what the clock holds.
void host_learns(const Clock& clock);
// Work of `later` comes after all work of `earlier` issued so far.
void wait_for_stream(Stream& later, Stream& earlier);
// Waits for the stream; the host then knows all that was issued to it before.
void synchronize(Stream& stream);
const Clock& host_clock();

}  // namespace pretend
