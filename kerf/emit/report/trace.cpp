// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The trace-event format:
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include "kerf/emit/report/trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <vector>

#include "kerf/base/json.h"
#include "kerf/emit/report/phases.h"

namespace kerf {
namespace {

double microseconds(Nanoseconds time) { return time.count * 1e-3; }

Json metadata(std::string_view what, std::size_t process, std::size_t thread,
              const std::string& name) {
  Json json;
  json["name"] = what;
  json["ph"] = "M";
  json["pid"] = process;
  json["tid"] = thread;
  json["args"] = {{"name", name}};
  return json;
}

std::string title(const Event& event) {
  if (event.kind == EventKind::transfer) return "receive " + event.tensor;
  const std::string what =
      event.phase == Phase::forward ? "" : fmt::format(" {}", words(event.phase));
  return fmt::format("stage {} micro-batch {}{}", event.stage.index(), event.microbatch, what);
}

// Names of chrome://tracing's own colours; other viewers choose by category.
std::string_view colour(const Event& event) {
  if (event.kind == EventKind::transfer) return "grey";
  switch (event.phase) {
    case Phase::forward: return "thread_state_running";
    case Phase::backward: return "thread_state_runnable";
    case Phase::weight_gradient: return "thread_state_iowait";
  }
  return "generic_work";
}

Json complete_event(const Timeline& timeline, const Event& event, std::size_t process) {
  Json json;
  json["name"] = title(event);
  json["cat"] = fmt::format("{},{}", to_string(event.kind), to_string(event.phase));
  json["cname"] = colour(event);
  json["ph"] = "X";
  json["ts"] = microseconds(event.start);
  json["dur"] = microseconds(event.end - event.start);
  json["pid"] = process;
  json["tid"] = event.device.index();
  Json& args = json["args"];
  args["stage"] = event.stage.index();
  args["microbatch"] = event.microbatch;
  if (event.kind == EventKind::transfer) {
    args["bytes"] = event.bytes.count;
    if (event.from.valid()) args["from"] = timeline.devices[event.from.index()];
  }
  return json;
}

// One counter with a series for each kind that the curve has: viewers stack them, or draw a track
// for each.
Json counter_event(const std::string& device, const MemoryPoint& point,
                   std::span<const MemoryKind> kinds, std::size_t process) {
  Json json;
  json["name"] = "memory " + device;
  json["ph"] = "C";
  json["ts"] = microseconds(point.time);
  json["pid"] = process;
  Json& args = json["args"];
  for (const MemoryKind kind : kinds) {
    args[std::string(to_string(kind))] = of(point.by_kind, kind).count;
  }
  if (kinds.empty()) args["bytes"] = point.bytes.count;
  return json;
}

void add_timeline(const Timeline& timeline, std::size_t process, Json& events) {
  events.push_back(metadata("process_name", process, 0, timeline.origin));
  for (std::size_t d = 0; d < timeline.devices.size(); ++d) {
    events.push_back(metadata("thread_name", process, d, timeline.devices[d]));
  }
  for (const Event& event : timeline.events) {
    events.push_back(complete_event(timeline, event, process));
  }
  for (const MemoryCurve& curve : timeline.memory) {
    const std::string& device = timeline.devices[curve.device.index()];
    const std::vector<MemoryKind> kinds = curve.kinds();
    for (const MemoryPoint& point : curve.points) {
      events.push_back(counter_event(device, point, kinds, process));
    }
  }
}

}  // namespace

std::string chrome_trace(std::span<const Timeline> timelines) {
  Json json;
  json["displayTimeUnit"] = "ms";
  Json& events = json["traceEvents"] = Json::array();
  for (std::size_t i = 0; i < timelines.size(); ++i) add_timeline(timelines[i], i, events);
  return json.dump(1) + "\n";
}

std::string chrome_trace(const Timeline& timeline) { return chrome_trace({&timeline, 1}); }

}  // namespace kerf
