// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/gantt.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "kerf/emit/report/phases.h"

namespace kerf {
namespace {

constexpr int kSmallestWidth = 8;

char digit(const Event& event) { return static_cast<char>('0' + event.microbatch % 10); }

// One device's row: for each column how much of it is idle and which event covers most of it.
class Row {
 public:
  Row(int width, Nanoseconds span) : width_(static_cast<std::size_t>(width)), span_(span) {}

  void draw(const Event& event) {
    const double scale = static_cast<double>(width_) / span_.count;
    const double start = event.start.count * scale;
    const double end = event.end.count * scale;
    const std::size_t last = std::min(width_, static_cast<std::size_t>(end) + 1);
    for (auto c = static_cast<std::size_t>(start); c < last; ++c) {
      const double from = std::max(start, static_cast<double>(c));
      const double covered = std::min(end, static_cast<double>(c + 1)) - from;
      idle_[c] -= covered;
      if (covered > most_[c]) most_[c] = covered, shown_[c] = &event;
    }
  }

  // With letters the first column of an event says its phase.
  std::string text(bool letters) const {
    std::string out;
    const Event* before = nullptr;
    for (std::size_t c = 0; c < width_; ++c) {
      const Event* event = idle_[c] >= most_[c] ? nullptr : shown_[c];
      out += event == nullptr                     ? '.'
             : event->kind == EventKind::transfer ? '~'
             : letters && event != before         ? letter(event->phase)
                                                  : digit(*event);
      before = event;
    }
    return out;
  }

 private:
  std::size_t width_;
  Nanoseconds span_;
  std::vector<double> idle_ = std::vector<double>(width_, 1.0);
  std::vector<double> most_ = std::vector<double>(width_, 0.0);
  std::vector<const Event*> shown_ = std::vector<const Event*>(width_, nullptr);
};

constexpr std::string_view kLegend =
    "F forward, B backward, W gradients of weights, then the micro-batch; ~ transfer, . idle\n";

std::string heading(const Timeline& timeline) {
  return fmt::format("{} step {}: {} stage{}, {} micro-batch{}, bubble {:.1f} %\n", timeline.origin,
                     to_string(timeline.end()), timeline.num_stages,
                     timeline.num_stages == 1 ? "" : "s", timeline.n_microbatches,
                     timeline.n_microbatches == 1 ? "" : "es", timeline.bubble() * 100);
}

std::size_t widest_name(const Timeline& timeline) {
  std::size_t widest = 0;
  for (const std::string& name : timeline.devices) widest = std::max(widest, name.size());
  return widest;
}

}  // namespace

std::string draw_timeline(const Timeline& timeline, int width) {
  width = std::max(width, kSmallestWidth);
  const Nanoseconds span = timeline.end();
  std::string out = heading(timeline);
  if (span.count <= 0) return out;
  std::vector<Row> rows(timeline.devices.size(), Row(width, span));
  for (const Event& event : timeline.events) rows[event.device.index()].draw(event);
  const bool letters = has_phase(timeline, Phase::backward);
  const std::size_t label = widest_name(timeline);
  for (std::size_t d = 0; d < rows.size(); ++d) {
    out += fmt::format("{:<{}}  {}  busy {:.0f} %\n", timeline.devices[d], label,
                       rows[d].text(letters), timeline.busy(DeviceId(d)) / span * 100);
  }
  const std::string end = to_string(span);
  out += fmt::format("{:<{}}  0{:>{}}\n", "", label, end, width - 1);
  return letters ? out.append(kLegend) : out;
}

}  // namespace kerf
