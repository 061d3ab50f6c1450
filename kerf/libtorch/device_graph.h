// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Work on an accelerator, recorded once and launched as one: CUDA graphs, behind an interface, so
// that what is recorded when is decided and tested without a card.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace kerf {

// One recording. Used by one thread at a time.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  // Records what `work` queues on the current stream while it runs; nothing is executed. Throws
  // what `work` throws, or c10::Error when something in it cannot be recorded (a wait for the
  // device, say): then the device and its memory are as before, and this object is of no more use.
  virtual void record(const std::function<void()>& work) = 0;
  // Queues the recorded work on the current stream.
  virtual void replay() = 0;
  // Numbers drawn from `generator` follow its seed at each replay. To be called before `record`.
  virtual void draw_from(const at::Generator& generator) = 0;
};

// The memory that the recordings of one worker share. They are replayed one after the other and
// their results copied out, so that they may use the same memory for what lies between.
class GraphPool {
 public:
  virtual ~GraphPool() = default;
  virtual std::unique_ptr<DeviceGraph> make() = 0;
  // Bytes the pool holds on its device.
  virtual std::int64_t bytes() const = 0;

  // To be called on the thread that is about to replay, and after it has queued its copies of the
  // results: recordings replayed on another stream wait until the memory is free again.
  void enter(c10::Stream stream);
  void leave(c10::Stream stream);

 private:
  std::optional<c10::Stream> last_stream_;
  std::shared_ptr<c10::Event> last_use_;
};

// A pool for `device`, or null with the reason in `why_not` where work on it cannot be recorded.
std::unique_ptr<GraphPool> make_graph_pool(c10::Device device, std::string& why_not);

}  // namespace kerf
