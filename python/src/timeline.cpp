// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <optional>

#include "kerf/base/error.h"
#include "kerf/base/file.h"
#include "kerf/emit/report/compare.h"
#include "kerf/emit/report/gantt.h"
#include "kerf/emit/report/trace.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

// print() adds the last one.
std::string without_newline(std::string text) {
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// An event with names in place of ids, so that it stands alone.
struct EventRecord {
  Event event;
  std::string device;
  std::string from;
};

std::string name_of(const Timeline& timeline, DeviceId id) {
  return id.valid() ? timeline.devices.at(id.index()) : std::string();
}

std::vector<EventRecord> events_of(const Timeline& timeline) {
  std::vector<EventRecord> out;
  for (const Event& event : timeline.events) {
    out.push_back({event, name_of(timeline, event.device), name_of(timeline, event.from)});
  }
  return out;
}

py::dict memory_of(const Timeline& timeline) {
  py::dict out;
  for (const MemoryCurve& curve : timeline.memory) {
    out[py::str(name_of(timeline, curve.device))] = curve.points;
  }
  return out;
}

py::dict by_category(const MemoryPoint& point) {
  py::dict out;
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    if (point.by_kind[k].count == 0) continue;
    out[py::str(std::string(to_string(static_cast<MemoryKind>(k))))] = point.by_kind[k].count;
  }
  return out;
}

DeviceId device_called(const Timeline& timeline, const std::string& device) {
  for (std::size_t d = 0; d < timeline.devices.size(); ++d) {
    if (timeline.devices[d] == device) return DeviceId(d);
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[plan.timeline] no device '{}'; expected one of {}", device,
                          fmt::join(timeline.devices, ", ")));
}

double busy(const Timeline& timeline, const std::string& device) {
  return seconds(timeline.busy(device_called(timeline, device)));
}

std::optional<std::int64_t> peak(const Timeline& timeline, const std::string& device) {
  const MemoryCurve* const curve = timeline.find_memory(device_called(timeline, device));
  if (curve == nullptr) return std::nullopt;
  return curve->peak().count;
}

std::string timeline_summary(const Timeline& timeline) {
  return fmt::format("kerf.Timeline({}, {} stages, {} micro-batches, step {})", timeline.origin,
                     timeline.num_stages, timeline.n_microbatches, to_string(timeline.end()));
}

void bind_event(py::module_& m) {
  py::class_<EventRecord>(m, "Event", "What a device did between two moments, in seconds.")
      .def_property_readonly(
          "kind", [](const EventRecord& r) { return std::string(to_string(r.event.kind)); },
          "'compute' or 'transfer'.")
      .def_readonly("device", &EventRecord::device, "The device that is busy.")
      .def_property_readonly(
          "stage", [](const EventRecord& r) { return r.event.stage.index(); },
          "The stage it belongs to.")
      .def_property_readonly(
          "microbatch", [](const EventRecord& r) { return r.event.microbatch; },
          "Which micro-batch, from 0.")
      .def_property_readonly(
          "phase", [](const EventRecord& r) { return std::string(to_string(r.event.phase)); },
          "'forward', 'backward' or 'weight_gradient'.")
      .def_property_readonly(
          "start", [](const EventRecord& r) { return seconds(r.event.start); },
          "Seconds after the step began.")
      .def_property_readonly(
          "end", [](const EventRecord& r) { return seconds(r.event.end); },
          "Seconds after the step began.")
      .def_property_readonly(
          "bytes", [](const EventRecord& r) { return r.event.bytes.count; }, "Bytes of a transfer.")
      .def_property_readonly(
          "tensor", [](const EventRecord& r) { return r.event.tensor; },
          "The value that is transferred.")
      .def_readonly("from_device", &EventRecord::from, "Where a transfer comes from.")
      .def("__repr__", [](const EventRecord& r) {
        return fmt::format("kerf.Event({} on {}, stage {}, micro-batch {}, {} .. {})",
                           to_string(r.event.kind), r.device, r.event.stage.index(),
                           r.event.microbatch, to_string(r.event.start), to_string(r.event.end));
      });
}

void bind_memory_point(py::module_& m) {
  py::class_<MemoryPoint>(m, "MemoryPoint", "Bytes in use on a device, until the next point.")
      .def_property_readonly(
          "time", [](const MemoryPoint& p) { return seconds(p.time); },
          "Seconds after the step began.")
      .def_property_readonly(
          "bytes", [](const MemoryPoint& p) { return p.bytes.count; }, "Of all categories.")
      .def_property_readonly("by_category", &by_category,
                             "The bytes of each category that has some: weights, gradients, "
                             "optimizer, saved, temporaries, inputs, results, workspace.")
      .def("__repr__", [](const MemoryPoint& p) {
        return fmt::format("kerf.MemoryPoint({} at {})", to_string(p.bytes), to_string(p.time));
      });
}

}  // namespace

void init_timeline(py::module_& m) {
  bind_event(m);
  bind_memory_point(m);
  py::class_<Timeline>(m, "Timeline", "What happened in one step: simulated or measured.")
      .def_readonly("origin", &Timeline::origin, "'simulated' or 'measured'.")
      .def_readonly("graph_hash", &Timeline::graph_hash, "The hash of the graph that ran.")
      .def_readonly("devices", &Timeline::devices, "Names of the devices.")
      .def_readonly("num_stages", &Timeline::num_stages, "The number of stages.")
      .def_readonly("n_microbatches", &Timeline::n_microbatches, "The number of micro-batches.")
      .def_property_readonly("events", &events_of, "Event records.")
      .def_property_readonly("memory", &memory_of,
                             "For each device that is known of the bytes in use through the step, "
                             "MemoryPoint records.")
      .def_property_readonly(
          "step_time", [](const Timeline& t) { return seconds(t.end()); },
          "Seconds from the first event's start to the last one's end.")
      .def_property_readonly("bubble", &Timeline::bubble,
                             "The share of the step in which devices wait.")
      .def("busy", &busy, py::arg("device"), "Seconds of compute and transfers of a device.")
      .def("peak", &peak, py::arg("device"),
           "The most bytes in use on a device; None if nothing is known of its memory.")
      .def(
          "draw",
          [](const Timeline& t, int width) { return without_newline(draw_timeline(t, width)); },
          py::arg("width") = kDefaultGanttWidth, "The timeline as text, one row per device.")
      .def(
          "save",
          [](const Timeline& t, const std::filesystem::path& path) { save_timeline(t, path); },
          py::arg("path"), "Writes timeline.json; the file is replaced whole or not at all.")
      .def(
          "save_trace",
          [](const Timeline& t, const std::filesystem::path& path) {
            write_file(path, chrome_trace(t));
          },
          py::arg("path"), "Writes a trace for chrome://tracing and ui.perfetto.dev.")
      .def("__len__", [](const Timeline& t) { return t.events.size(); })
      .def("__repr__", &timeline_summary)
      .def("__str__", [](const Timeline& t) { return without_newline(draw_timeline(t)); })
      .def(
          "__eq__", [](const Timeline& a, const Timeline& b) { return a == b; }, py::is_operator())
      .def(py::pickle([](const Timeline& t) { return print_timeline(t); },
                      [](const std::string& text) { return parse_timeline(text, "pickle"); }));

  m.def(
      "load_timeline", [](const std::filesystem::path& path) { return load_timeline(path); },
      py::arg("path"), "Reads a timeline that Timeline.save wrote.");
  m.def(
      "compare_timelines",
      [](const Timeline& predicted, const Timeline& measured) {
        return without_newline(compare_timelines(predicted, measured));
      },
      py::arg("predicted"), py::arg("measured"),
      "A table of predicted and measured times and peaks of memory.");
}

}  // namespace kerf::bindings
