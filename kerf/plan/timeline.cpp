// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "kerf/base/file.h"
#include "kerf/base/json.h"
#include "kerf/base/quantity.h"

namespace kerf {
namespace {

constexpr FormatVersion kVersion{1, 1};
constexpr auto kKind = ErrorKind::invalid_plan;
constexpr std::int64_t kMost = std::int64_t{1} << 60;
constexpr std::int64_t kMostIds = std::int64_t{1} << 31;

Json event_to_json(const Event& event) {
  Json json;
  json["kind"] = to_string(event.kind);
  json["device"] = event.device.index();
  json["stage"] = event.stage.index();
  json["microbatch"] = event.microbatch;
  json["phase"] = to_string(event.phase);
  json["start_ns"] = event.start.count;
  json["end_ns"] = event.end.count;
  if (event.kind == EventKind::transfer) {
    json["bytes"] = event.bytes.count;
    json["tensor"] = event.tensor;
    json["from"] = event.from.index();
  }
  return json;
}

// The shape of the file's header, which its events must fit into.
struct Limits {
  std::int64_t devices;
  std::int64_t stages;
  std::int64_t microbatches;
};

Phase read_phase(const JsonReader& reader) {
  const std::string name = reader.text("phase");
  for (const Phase phase : kPhases) {
    if (to_string(phase) == name) return phase;
  }
  reader.fail(name, "forward, backward or weight_gradient");
}

Event event_from_json(const JsonReader& reader, const Limits& limits) {
  Event event;
  const std::string kind = reader.text("kind");
  if (kind != "compute" && kind != "transfer") reader.fail(kind, "compute or transfer");
  event.kind = kind == "compute" ? EventKind::compute : EventKind::transfer;
  event.device = DeviceId{reader.integer("device", 0, limits.devices - 1)};
  event.stage = StageId{reader.integer("stage", 0, limits.stages - 1)};
  event.microbatch = static_cast<int>(reader.integer("microbatch", 0, limits.microbatches - 1));
  event.phase = read_phase(reader);
  event.start = Nanoseconds{read_quantity(reader, "start_ns")};
  event.end = Nanoseconds{read_quantity(reader, "end_ns")};
  if (event.end < event.start) reader.fail("an event that ends before it starts", "end >= start");
  if (event.kind == EventKind::transfer) {
    event.bytes = Bytes{reader.integer("bytes", 0, kMost)};
    event.tensor = reader.text("tensor");
    event.from = DeviceId{reader.integer("from", 0, limits.devices - 1)};
  }
  return event;
}

Json curve_to_json(const MemoryCurve& curve) {
  Json json;
  json["device"] = curve.device.index();
  Json& points = json["points"] = Json::array();
  for (const MemoryPoint& point : curve.points) {
    points.push_back({point.time.count, point.bytes.count});
  }
  for (const MemoryKind kind : curve.kinds()) {
    Json& column = json["kinds"][std::string(to_string(kind))] = Json::array();
    for (const MemoryPoint& point : curve.points) column.push_back(of(point.by_kind, kind).count);
  }
  return json;
}

Bytes as_bytes(const JsonReader& reader) {
  const std::int64_t count = reader.as_integer();
  if (count < 0 || count > kMost) {
    reader.fail(std::to_string(count), fmt::format("0 to {} bytes", kMost));
  }
  return {count};
}

std::size_t read_kind(const JsonReader& reader, const std::string& name) {
  std::vector<std::string_view> names;
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    names.push_back(to_string(static_cast<MemoryKind>(k)));
    if (names.back() == name) return k;
  }
  reader.fail(name, fmt::format("one of {}", fmt::join(names, ", ")));
}

// A column for each kind, beside the points.
void read_kinds(const JsonReader& reader, std::vector<MemoryPoint>& points) {
  for (const auto& [name, column] : reader.fields()) {
    const std::size_t kind = read_kind(column, name);
    const std::vector<JsonReader> bytes = column.elements();
    if (bytes.size() != points.size()) {
      column.fail(fmt::format("{} numbers", bytes.size()), fmt::format("{}", points.size()));
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) points[i].by_kind[kind] = as_bytes(bytes[i]);
  }
  for (const MemoryPoint& point : points) {
    if (sum(point.by_kind) == point.bytes) continue;
    reader.fail(fmt::format("kinds of {} bytes", sum(point.by_kind).count),
                fmt::format("the point's {}", point.bytes.count));
  }
}

MemoryCurve curve_from_json(const JsonReader& reader, const Limits& limits) {
  MemoryCurve curve;
  curve.device = DeviceId{reader.integer("device", 0, limits.devices - 1)};
  for (const JsonReader& point : reader.children("points")) {
    const std::vector<JsonReader> pair = point.elements();
    if (pair.size() != 2) point.fail(fmt::format("{} numbers", pair.size()), "time and bytes");
    curve.points.push_back({Nanoseconds{as_quantity(pair[0])}, as_bytes(pair[1])});
  }
  if (reader.has("kinds")) read_kinds(reader.child("kinds"), curve.points);
  return curve;
}

}  // namespace

std::string_view to_string(EventKind kind) {
  return kind == EventKind::compute ? "compute" : "transfer";
}

Bytes MemoryCurve::peak() const {
  Bytes most;
  for (const MemoryPoint& point : points) most = std::max(most, point.bytes);
  return most;
}

std::vector<MemoryKind> MemoryCurve::kinds() const {
  std::vector<MemoryKind> out;
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
    const auto is_used = [&](const MemoryPoint& point) { return point.by_kind[k].count != 0; };
    if (std::any_of(points.begin(), points.end(), is_used)) {
      out.push_back(static_cast<MemoryKind>(k));
    }
  }
  return out;
}

const MemoryCurve* Timeline::find_memory(DeviceId device) const {
  const auto found = std::find_if(memory.begin(), memory.end(),
                                  [&](const MemoryCurve& curve) { return curve.device == device; });
  return found == memory.end() ? nullptr : &*found;
}

Nanoseconds Timeline::end() const {
  Nanoseconds last;
  for (const Event& event : events) last = std::max(last, event.end);
  return last;
}

// Events may overlap: a device that receives while it computes is busy once.
Nanoseconds Timeline::busy(DeviceId device) const {
  std::vector<std::pair<Nanoseconds, Nanoseconds>> spans;
  for (const Event& event : events) {
    if (event.device == device) spans.emplace_back(event.start, event.end);
  }
  std::sort(spans.begin(), spans.end());
  Nanoseconds sum;
  Nanoseconds until;
  for (const auto& [start, end] : spans) {
    if (end > until) sum += end - std::max(start, until);
    until = std::max(until, end);
  }
  return sum;
}

double Timeline::bubble() const {
  const Nanoseconds span = end();
  std::vector<bool> used(devices.size());
  for (const Event& event : events) used[event.device.index()] = true;
  double idle = 0;
  double count = 0;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!used[i]) continue;
    ++count;
    idle += span.count > 0 ? 1 - busy(DeviceId{i}) / span : 0;
  }
  // Sums of many small times may pass the span by a rounding error.
  return count > 0 ? std::clamp(idle / count, 0.0, 1.0) : 0;
}

std::string print_timeline(const Timeline& timeline) {
  Json json = format_header("kerf-timeline", kVersion);
  json["origin"] = timeline.origin;
  json["graph_hash"] = timeline.graph_hash;
  json["devices"] = timeline.devices;
  json["num_stages"] = timeline.num_stages;
  json["n_microbatches"] = timeline.n_microbatches;
  json["events"] = Json::array();
  for (const Event& event : timeline.events) json["events"].push_back(event_to_json(event));
  json["memory"] = Json::array();
  for (const MemoryCurve& curve : timeline.memory) json["memory"].push_back(curve_to_json(curve));
  return json.dump(1) + "\n";
}

Timeline parse_timeline(std::string_view text, std::string_view source) {
  const JsonDocument document = parse_json(text, source, kKind);
  check_format_header(document, "kerf-timeline", kVersion);
  const JsonReader reader(document);
  Timeline timeline;
  timeline.origin = reader.text("origin");
  timeline.graph_hash = reader.text("graph_hash");
  for (const JsonReader& device : reader.children("devices")) {
    timeline.devices.push_back(device.as_text());
  }
  timeline.num_stages = static_cast<int>(reader.integer("num_stages", 0, kMostIds - 1));
  timeline.n_microbatches = static_cast<int>(reader.integer("n_microbatches", 0, kMostIds - 1));
  const Limits limits{static_cast<std::int64_t>(timeline.devices.size()), timeline.num_stages,
                      timeline.n_microbatches};
  for (const JsonReader& event : reader.children("events")) {
    timeline.events.push_back(event_from_json(event, limits));
  }
  for (const JsonReader& curve : reader.children("memory")) {
    timeline.memory.push_back(curve_from_json(curve, limits));
  }
  return timeline;
}

void save_timeline(const Timeline& timeline, const std::string& path) {
  write_file(path, print_timeline(timeline));
}

Timeline load_timeline(const std::string& path) { return parse_timeline(read_file(path), path); }

}  // namespace kerf
