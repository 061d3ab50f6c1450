// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "kerf/base/interrupt.h"
#include "kerf/plan/metrics.h"
#include "kerf/plan/passes.h"
#include "kerf/simulate/memory_curve.h"

namespace kerf {
namespace {

// A device's progress: the task it is at, and which of its transfers come next.
struct Cursor {
  std::size_t task = 0;
  std::vector<std::size_t> fetches;  // cuts still to fetch for that task, last first
  bool prepared = false;
  Nanoseconds free;
  std::unordered_set<std::int64_t> fetched;  // cuts of micro-batches that are here already
};

// A tensor on its way from one device to another, `overlapped`.
struct Parcel {
  std::size_t cut = 0;
  Event event;  // from when it is made; without its end
};

// What a device sends beside its compute, one after the other.
struct Sender {
  std::deque<Parcel> parcels;
  Nanoseconds free;
};

// Who could go on at which moment. Ties go by the device where it happens: a parcel's receiver.
struct Turn {
  Nanoseconds start;
  DeviceId device;
  bool sends = false;
  std::size_t actor = 0;  // the device that works or sends
  friend auto operator<=>(const Turn&, const Turn&) = default;
};

class Simulator {
 public:
  Simulator(const Plan& plan, int n_microbatches)
      : plan_(plan),
        passes_(unroll(plan)),
        tasks_(passes_.shape, n_microbatches),
        schedule_(make_schedule(plan, plan.stage_devices(), n_microbatches)),
        host_staged_(plan.comm_model == CommModel::host_staged),
        overlapped_(plan.comm_model == CommModel::overlapped),
        incoming_(passes_.stages.size()),
        outgoing_(passes_.stages.size()),
        done_(tasks_.size(), kNotYet),
        cursors_(plan.cluster.num_devices()),
        senders_(plan.cluster.num_devices()) {
    for (std::size_t c = 0; c < passes_.cuts.size(); ++c) {
      const Cut& cut = passes_.cuts[c];
      for (const PassId to : cut.to) {
        if (device_of(to) != device_of(cut.from)) incoming_[to.index()].push_back(c);
      }
      if (!receivers(passes_.stages, cut).empty()) outgoing_[cut.from.index()].push_back(c);
    }
  }

  Timeline run() {
    Timeline timeline;
    timeline.graph_hash = plan_.graph_hash;
    for (const Device& device : plan_.cluster.devices) timeline.devices.push_back(device.name);
    timeline.num_stages = static_cast<int>(plan_.num_stages());
    timeline.n_microbatches = tasks_.n_microbatches();
    while (step(timeline)) poll_interrupt();
    check_finished();
    std::stable_sort(timeline.events.begin(), timeline.events.end(),
                     [](const Event& a, const Event& b) {
                       return a.start != b.start ? a.start < b.start : a.device < b.device;
                     });
    return timeline;
  }

 private:
  static constexpr Nanoseconds kNotYet{-1};

  int num_devices() const { return static_cast<int>(plan_.cluster.num_devices()); }
  DeviceId device_of(PassId pass) const { return passes_.stages[pass.index()].device; }
  PassId pass_of(const Event& event) const {
    return kerf::pass_of(passes_.shape, event.stage, event.phase);
  }
  // When a pass of a micro-batch ended; kNotYet: it has not.
  Nanoseconds& done(PassId pass, int microbatch) {
    return done_[tasks_.id(pass, microbatch).index()];
  }

  // Of everything that can go on now, the earliest does; whatever that makes possible starts later
  // still, so the order of starts is never violated.
  bool step(Timeline& timeline) {
    std::optional<Turn> first;
    const auto offer = [&](const std::optional<Turn>& turn) {
      if (turn && (!first || *turn < *first)) first = turn;
    };
    for (std::size_t d = 0; d < cursors_.size(); ++d) {
      if (const auto start = next_start(d)) offer(Turn{*start, DeviceId{d}, false, d});
      if (overlapped_) offer(next_parcel(d));
    }
    if (!first) return false;
    if (first->sends) {
      send(*first, timeline);
    } else {
      advance(first->actor, first->start, timeline);
    }
    return true;
  }

  void prepare(std::size_t d) {
    Cursor& cursor = cursors_[d];
    if (cursor.prepared) return;
    cursor.prepared = true;
    if (overlapped_) return;  // what it needs is sent to it
    const Task& task = schedule_[d][cursor.task];
    const std::vector<std::size_t>& needed = incoming_[tasks_.pass(task).index()];
    for (auto cut = needed.rbegin(); cut != needed.rend(); ++cut) {
      if (cursor.fetched.insert(key(*cut, task.microbatch)).second) {
        cursor.fetches.push_back(*cut);
      }
    }
  }

  std::int64_t key(std::size_t cut, int microbatch) const {
    return static_cast<std::int64_t>(cut) * tasks_.n_microbatches() + microbatch;
  }
  std::int64_t key(std::size_t cut, int microbatch, std::size_t to) const {
    return key(cut, microbatch) * num_devices() + static_cast<std::int64_t>(to);
  }

  // When a receiver may start to fetch a cut; kNotYet: nobody knows.
  Nanoseconds made(std::size_t c, int microbatch) {
    if (!host_staged_) return done(passes_.cuts[c].from, microbatch);
    const auto found = uploaded_.find(key(c, microbatch));
    return found == uploaded_.end() ? kNotYet : found->second;
  }

  // When device d could go on with its next transfer or task; nullopt: it has to wait for a stage
  // that has not run, or it has finished.
  std::optional<Nanoseconds> next_start(std::size_t d) {
    Cursor& cursor = cursors_[d];
    if (cursor.task == schedule_[d].size()) return std::nullopt;
    prepare(d);
    const Task& task = schedule_[d][cursor.task];
    if (!cursor.fetches.empty()) {
      const Cut& cut = passes_.cuts[cursor.fetches.back()];
      const Nanoseconds ready = made(cursor.fetches.back(), task.microbatch);
      if (ready == kNotYet) return std::nullopt;
      const Nanoseconds start = std::max(cursor.free, ready);
      return link_of(cut, d).shared ? std::max(start, wire_free_) : start;
    }
    Nanoseconds start = cursor.free;
    bool ready = true;
    tasks_.for_each_wait(tasks_.id(task), [&](TaskId before) {
      ready = ready && done_[before.index()] != kNotYet;
      start = std::max(start, done_[before.index()]);
    });
    if (!ready) return std::nullopt;
    if (overlapped_) {
      for (const std::size_t cut : incoming_[tasks_.pass(task).index()]) {
        const auto arrived = arrived_.find(key(cut, task.microbatch, d));
        if (arrived == arrived_.end()) return std::nullopt;
        start = std::max(start, arrived->second);
      }
    }
    return start;
  }

  Nanoseconds fetch_time(const Cut& cut, std::size_t to) const {
    if (host_staged_ && plan_.cluster.devices[to].host) return {};
    return transfer_time(cut, link_of(cut, to));
  }

  // `host_staged`: what others need goes to host memory first, at its maker's expense.
  void upload(const Event& computed, Timeline& timeline) {
    Cursor& cursor = cursors_[computed.device.index()];
    for (const std::size_t c : outgoing_[pass_of(computed).index()]) {
      const Cut& cut = passes_.cuts[c];
      const Nanoseconds time = upload_time(passes_.stages, cut, plan_.cluster);
      Event event = transfer_of(computed, cut, computed.device);
      event.start = cursor.free;
      event.end = cursor.free + time;
      cursor.free = event.end;
      uploaded_[key(c, computed.microbatch)] = event.end;
      if (time.count > 0) timeline.events.push_back(std::move(event));
    }
  }

  // `overlapped`: what others need is sent beside what the device computes next.
  void post(const Event& computed) {
    for (const std::size_t c : outgoing_[pass_of(computed).index()]) {
      for (const DeviceId to : receivers(passes_.stages, passes_.cuts[c])) {
        Event event = transfer_of(computed, passes_.cuts[c], to);
        event.start = computed.end;
        senders_[computed.device.index()].parcels.push_back({c, std::move(event)});
      }
    }
  }

  std::optional<Turn> next_parcel(std::size_t d) const {
    const Sender& sender = senders_[d];
    if (sender.parcels.empty()) return std::nullopt;
    const auto& [cut, event] = sender.parcels.front();
    Nanoseconds start = std::max(sender.free, event.start);
    if (link_of(passes_.cuts[cut], event.device.index()).shared)
      start = std::max(start, wire_free_);
    return Turn{start, event.device, true, d};
  }

  void send(const Turn& turn, Timeline& timeline) {
    Sender& sender = senders_[turn.actor];
    auto [c, event] = std::move(sender.parcels.front());
    sender.parcels.pop_front();
    const Link& link = link_of(passes_.cuts[c], turn.device.index());
    event.start = turn.start;
    event.end = turn.start + transfer_time(passes_.cuts[c], link);
    if (link.shared) wire_free_ = event.end;
    sender.free = event.end;
    arrived_[key(c, event.microbatch, turn.device.index())] = event.end;
    timeline.events.push_back(std::move(event));
  }

  Event transfer_of(const Event& computed, const Cut& cut, DeviceId device) const {
    Event event = computed;
    event.kind = EventKind::transfer;
    event.device = device;
    event.bytes = cut.bytes;
    event.tensor = cut.tensor;
    event.from = computed.device;
    return event;
  }

  const Link& link_of(const Cut& cut, std::size_t to) const {
    return plan_.cluster.link(device_of(cut.from), DeviceId{to});
  }

  void advance(std::size_t d, Nanoseconds start, Timeline& timeline) {
    Cursor& cursor = cursors_[d];
    const Task& task = schedule_[d][cursor.task];
    Event event{.kind = EventKind::compute,
                .device = DeviceId{d},
                .stage = task.stage,
                .microbatch = task.microbatch,
                .phase = task.phase,
                .start = start,
                .end = {},
                .bytes = {},
                .tensor = {},
                .from = {}};
    if (!cursor.fetches.empty()) {
      const Cut& cut = passes_.cuts[cursor.fetches.back()];
      cursor.fetches.pop_back();
      event.kind = EventKind::transfer;
      event.bytes = cut.bytes;
      event.tensor = cut.tensor;
      event.from = device_of(cut.from);
      event.end = start + fetch_time(cut, d);
      if (link_of(cut, d).shared) wire_free_ = event.end;
    } else {
      const PassId pass = tasks_.pass(task);
      event.end = start + passes_.stages[pass.index()].time;
      done(pass, task.microbatch) = event.end;
      ++cursor.task;
      cursor.prepared = false;
    }
    cursor.free = event.end;
    timeline.events.push_back(event);
    if (event.kind == EventKind::transfer) return;
    if (host_staged_) upload(event, timeline);
    if (overlapped_) post(event);
  }

  void check_finished() const {
    for (std::size_t d = 0; d < cursors_.size(); ++d) {
      if (cursors_[d].task == schedule_[d].size()) continue;
      const Task& task = schedule_[d][cursors_[d].task];
      throw Error(ErrorKind::invalid_plan,
                  fmt::format("[simulate.simulate] {} waits forever before stage {} of micro-batch "
                              "{}; expected stages numbered topologically",
                              plan_.cluster.devices[d].name, task.stage.index(), task.microbatch));
    }
  }

  const Plan& plan_;
  Passes passes_;
  TaskTable tasks_;
  Schedule schedule_;
  bool host_staged_;
  bool overlapped_;
  std::vector<std::vector<std::size_t>> incoming_;  // by pass: cuts from other devices, ascending
  std::vector<std::vector<std::size_t>> outgoing_;  // by pass: cuts to other devices, ascending
  std::unordered_map<std::int64_t, Nanoseconds> uploaded_;  // by cut and micro-batch
  std::unordered_map<std::int64_t, Nanoseconds> arrived_;   // by cut, micro-batch and receiver
  std::vector<Nanoseconds> done_;                           // by TaskId
  std::vector<Cursor> cursors_;                             // by device
  std::vector<Sender> senders_;                             // by device
  Nanoseconds wire_free_;                                   // the shared links'
};

constexpr std::size_t kMostEvents = std::size_t{1} << 22;

// A few kilobytes of plan can ask for any number of events; they are kept in memory.
void check_events(const Plan& plan, int n_microbatches) {
  std::size_t each = plan.num_stages() * (plan.training ? 3 : 1);
  for (const Cut& cut : plan.cuts) each += cut.to.size() + cut.gradients.size() + 1;
  const std::size_t events = each * static_cast<std::size_t>(std::max(n_microbatches, 0));
  if (events <= kMostEvents) return;
  throw Error(
      ErrorKind::invalid_argument,
      fmt::format("[simulate.simulate] {} micro-batches of {} stages with {} cut tensors "
                  "are up to {} events; expected at most {}; simulate fewer micro-batches",
                  n_microbatches, plan.num_stages(), plan.cuts.size(), events, kMostEvents));
}

}  // namespace

Timeline simulate(const Plan& plan) { return simulate(plan, plan.n_microbatches); }

Timeline simulate(const Plan& plan, int n_microbatches) {
  Timeline timeline = simulate_events(plan, n_microbatches);
  timeline.memory = memory_curves(plan, timeline);
  return timeline;
}

Timeline simulate_events(const Plan& plan, int n_microbatches) {
  check_events(plan, n_microbatches);
  return Simulator(plan, n_microbatches).run();
}

}  // namespace kerf
