// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Each device works through its tasks, and under `overlapped` it has a sender that works beside it.
// Whoever can go on stands in a queue by the moment at which it can; the wire may move that moment
// on, so what is taken from the queue is looked at again.
#include "kerf/verify/wire_walk.h"

#include <algorithm>
#include <compare>
#include <deque>
#include <optional>
#include <queue>

#include "kerf/base/interrupt.h"
#include "kerf/verify/task_order.h"

namespace kerf::derive {
namespace {

class WireWalk {
 public:
  WireWalk(const Flow& flow, const Traffic& traffic, const Moves& moves, const Plan& plan,
           TaskOrder order)
      : flow_(flow),
        moves_(moves),
        plan_(plan),
        overlapped_(traffic.overlapped),
        order_(std::move(order)),
        moments_(moves.num_rows() * order_.n_microbatches(), kNotYet),
        fetched_(moves.num_fetches * order_.n_microbatches()),
        workers_(plan.cluster.num_devices()),
        senders_(plan.cluster.num_devices()),
        queued_(2 * plan.cluster.num_devices()),
        woken_(flow.num_stages()) {
    walked_.busy.resize(plan.cluster.num_devices());
    for (std::size_t s = 0; s < flow.num_stages(); ++s) {
      const std::size_t device = plan.stages[s].device.index();
      for (const StageId before : flow.after[s]) woken_[before.index()].push_back(device);
    }
  }

  Walked run() {
    for (std::size_t actor = 0; actor < queued_.size(); ++actor) wake(actor);
    while (!queue_.empty()) {
      poll_interrupt();
      const Turn turn = queue_.top();
      queue_.pop();
      const std::optional<Turn> now = turn_of(turn.actor);
      if (*now > turn) {
        queue_.push(*now);
        continue;
      }
      queued_[turn.actor] = false;
      is_sender(turn.actor) ? send(turn) : work(turn);
      wake(turn.actor);
    }
    return std::move(walked_);
  }

 private:
  static constexpr double kNotYet = -1;

  struct Worker {
    std::size_t position = 0;  // of its task
    std::size_t move = 0;      // of the task's incoming ones
    double free = 0;
  };
  struct Parcel {
    Outgoing move;
    std::size_t microbatch;
    double ready;
  };
  struct Sender {
    std::deque<Parcel> parcels;
    double free = 0;
  };
  // Actors are the workers, then the senders.
  struct Turn {
    double start;
    std::size_t device;  // where it happens: a parcel's receiver
    std::size_t actor;
    friend std::partial_ordering operator<=>(const Turn&, const Turn&) = default;
  };

  bool is_sender(std::size_t actor) const { return actor >= workers_.size(); }
  double& moment(std::size_t row, std::size_t microbatch) {
    return moments_[row * order_.n_microbatches() + microbatch];
  }

  std::vector<bool>::reference fetched(const Incoming& move, std::size_t microbatch) {
    return fetched_[move.fetch * order_.n_microbatches() + microbatch];
  }

  void wake(std::size_t actor) {
    if (queued_[actor]) return;
    const std::optional<Turn> turn = turn_of(actor);
    if (!turn) return;
    queue_.push(*turn);
    queued_[actor] = true;
  }

  std::optional<Turn> turn_of(std::size_t actor) {
    return is_sender(actor) ? turn_of_sender(actor) : turn_of_worker(actor);
  }

  std::optional<Turn> turn_of_sender(std::size_t actor) {
    const Sender& sender = senders_[actor - workers_.size()];
    if (sender.parcels.empty()) return std::nullopt;
    const Parcel& next = sender.parcels.front();
    double start = std::max(sender.free, next.ready);
    if (next.move.wire) start = std::max(start, wire_free_);
    return Turn{start, next.move.to.index(), actor};
  }

  // Nothing while it waits for what has not happened yet, or has finished.
  std::optional<Turn> turn_of_worker(std::size_t device) {
    const Worker& worker = workers_[device];
    if (worker.position == order_.of_device(device).size()) return std::nullopt;
    const Task& task = order_.of_device(device)[worker.position];
    const std::vector<Incoming>& incoming = moves_.incoming[task.stage];
    double start = worker.free;
    const auto wait_for = [&](std::size_t row) {
      const double at = moment(row, task.microbatch);
      start = std::max(start, at);
      return at != kNotYet;
    };
    // Under `overlapped` nothing is fetched: all has to be there.
    for (std::size_t i = worker.move; i < incoming.size(); ++i) {
      if (fetched(incoming[i], task.microbatch)) continue;
      if (!wait_for(incoming[i].row)) return std::nullopt;
      if (overlapped_) continue;
      return Turn{incoming[i].wire ? std::max(start, wire_free_) : start, device, device};
    }
    for (const StageId before : flow_.after[task.stage]) {
      if (!wait_for(before.index())) return std::nullopt;
    }
    return Turn{start, device, device};
  }

  void work(const Turn& turn) {
    Worker& worker = workers_[turn.device];
    const Task task = order_.of_device(turn.device)[worker.position];
    const std::vector<Incoming>& incoming = moves_.incoming[task.stage];
    while (worker.move < incoming.size() && fetched(incoming[worker.move], task.microbatch)) {
      ++worker.move;
    }
    if (!overlapped_ && worker.move < incoming.size()) {
      const Incoming& move = incoming[worker.move++];
      fetched(move, task.microbatch) = true;
      worker.free = turn.start + move.time;
      if (move.wire) wire_free_ = worker.free;
      return;
    }
    worker.free = turn.start + plan_.stages[task.stage].time.count;
    moment(task.stage, task.microbatch) = worker.free;
    if (overlapped_) walked_.busy[turn.device].emplace_back(turn.start, worker.free);
    for (const Outgoing& move : moves_.outgoing[task.stage]) {
      if (overlapped_) {
        senders_[turn.device].parcels.push_back({move, task.microbatch, worker.free});
      } else {
        worker.free += move.time;
        moment(move.row, task.microbatch) = worker.free;
      }
    }
    walked_.end = std::max(walked_.end, worker.free);
    ++worker.position;
    worker.move = 0;
    for (const std::size_t device : woken_[task.stage]) wake(device);
    wake(workers_.size() + turn.device);
  }

  void send(const Turn& turn) {
    Sender& sender = senders_[turn.actor - workers_.size()];
    const Parcel parcel = sender.parcels.front();
    sender.parcels.pop_front();
    sender.free = turn.start + parcel.move.time;
    if (parcel.move.wire) wire_free_ = sender.free;
    moment(parcel.move.row, parcel.microbatch) = sender.free;
    walked_.busy[turn.device].emplace_back(turn.start, sender.free);
    wake(turn.device);
  }

  const Flow& flow_;
  const Moves& moves_;
  const Plan& plan_;
  bool overlapped_;
  TaskOrder order_;
  std::vector<double> moments_;  // by row and micro-batch
  std::vector<bool> fetched_;    // by fetch and micro-batch: not overlapped
  std::vector<Worker> workers_;  // by device
  std::vector<Sender> senders_;  // by device
  double wire_free_ = 0;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> queue_;
  std::vector<bool> queued_;                     // by actor
  std::vector<std::vector<std::size_t>> woken_;  // by stage: devices that may wait for it
  Walked walked_;
};

}  // namespace

Walked walk_with_wire(const Flow& flow, const Traffic& traffic, const Moves& moves,
                      const Plan& plan, TaskOrder order) {
  return WireWalk(flow, traffic, moves, plan, std::move(order)).run();
}

}  // namespace kerf::derive
