// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/units.h"
#include "kerf/plan/memory_kind.h"
#include "kerf/plan/schedule/schedule.h"

namespace kerf {

enum class EventKind : std::uint8_t { compute, transfer };
std::string_view to_string(EventKind kind);

// Something a device did between two moments, counted from the start of the step.
struct Event {
  EventKind kind = EventKind::compute;
  DeviceId device;  // where it ran; transfers: the receiver
  StageId stage;    // transfers: the stage that needs the tensor
  int microbatch = 0;
  Phase phase = Phase::forward;
  Nanoseconds start;
  Nanoseconds end;
  Bytes bytes;         // transfers: what was moved
  std::string tensor;  // transfers: its name
  DeviceId from;       // transfers: the sender

  friend bool operator==(const Event&, const Event&) = default;
};

struct MemoryPoint {
  Nanoseconds time;
  Bytes bytes;
  MemoryKinds by_kind{};  // they add up to `bytes`, or are all 0: not known
  friend bool operator==(const MemoryPoint&, const MemoryPoint&) = default;
};

// Bytes in use on a device from each point's time to the next point's.
struct MemoryCurve {
  DeviceId device;
  std::vector<MemoryPoint> points;

  Bytes peak() const;
  // Those that some point has; none where a file before 1.1 did not say.
  std::vector<MemoryKind> kinds() const;
  friend bool operator==(const MemoryCurve&, const MemoryCurve&) = default;
};

// What happened in one step: predicted by the simulator or recorded by the runtime.
struct Timeline {
  std::string origin = "simulated";  // or "measured"
  std::string graph_hash;
  std::vector<std::string> devices;  // names, by DeviceId
  int num_stages = 0;
  int n_microbatches = 0;
  std::vector<Event> events;  // by start, then device
  std::vector<MemoryCurve> memory;

  Nanoseconds end() const;  // of the last event: the step time
  // Compute and transfers of one device.
  Nanoseconds busy(DeviceId device) const;
  // Share of the step that the devices which do anything stand idle, on average: 0 .. 1.
  double bubble() const;
  const MemoryCurve* find_memory(DeviceId device) const;  // null: nothing is known
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

// timeline.json: "kerf-timeline" 1.1.
std::string print_timeline(const Timeline& timeline);
Timeline parse_timeline(std::string_view text, std::string_view source = "timeline");
void save_timeline(const Timeline& timeline, const std::string& path);
Timeline load_timeline(const std::string& path);

}  // namespace kerf
