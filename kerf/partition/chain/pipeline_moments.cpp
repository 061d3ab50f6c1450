// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/pipeline_moments.h"

#include <algorithm>
#include <numeric>

#include "kerf/plan/schedule/schedule.h"
#include "kerf/simulate/progress.h"

namespace kerf::partition {
namespace {

using Running = Moment::Running;

ScheduleRequest pipeline_request(const ScheduleKind& kind, std::size_t num_stages,
                                 int n_microbatches) {
  ScheduleRequest request;
  request.num_devices = static_cast<int>(num_stages);
  request.n_microbatches = n_microbatches;
  request.shape.apart = kind.apart;
  request.shape.backward.assign(num_stages, true);
  for (std::size_t s = 0; s < num_stages; ++s) {
    request.stage_devices.emplace_back(s);
    request.shape.after.emplace_back();
    if (s > 0) request.shape.after.back().emplace_back(s - 1);
  }
  return request;
}

// The counts of one device, moment by moment: 2 i while its task i runs, 2 i + 1 after it.
class Place {
 public:
  Place(const Schedule& schedule, const TaskTable& tasks, const Progress& progress, StageId stage)
      : schedule_(schedule[stage.index()]),
        tasks_(tasks),
        progress_(progress),
        stage_(stage),
        change_(2 * schedule_.size() + 2) {}

  std::vector<Moment> run() {
    const Phase last = tasks_.shape().apart ? Phase::weight_gradient : Phase::backward;
    for (int m = 0; m < tasks_.n_microbatches(); ++m) {
      const std::size_t forward = index(Phase::forward, m);
      const std::size_t backward = index(Phase::backward, m);
      const std::size_t end = 2 * index(last, m) + 1;
      add(&Moment::kept, 2 * forward + 1, end);
      add(&Moment::received, 2 * forward, end);
      add(&Moment::results, 2 * forward + 1, change_.size());
      if (tasks_.shape().apart) add(&Moment::waiting, 2 * backward + 1, end);
      if (stage_.index() + 1 < tasks_.num_stages()) {
        add(&Moment::outputs, 2 * forward + 1, known(stage_.index() + 1, Phase::forward, m));
      }
      if (stage_.index() > 0) {
        add(&Moment::gradients, 2 * backward + 1, known(stage_.index() - 1, Phase::backward, m));
      }
    }
    return fullest();
  }

 private:
  std::size_t index(Phase phase, int m) const {
    return progress_.index(tasks_.id({stage_, m, phase}));
  }
  // From when on it knows that another stage has run.
  std::size_t known(std::size_t stage, Phase phase, int m) const {
    return 2 *
           progress_.first_after(DeviceId{stage_.index()}, tasks_.id({StageId{stage}, m, phase}));
  }
  void add(std::int64_t Moment::*count, std::size_t from, std::size_t to) {
    ++(change_[from].*count);
    if (to < change_.size()) --(change_[to].*count);
  }

  static bool covers(const Moment& a, const Moment& b) {
    return a.kept >= b.kept && a.received >= b.received && a.outputs >= b.outputs &&
           a.results >= b.results && a.gradients >= b.gradients && a.waiting >= b.waiting &&
           (a.running == b.running || b.running == Running::nothing);
  }

  std::vector<Moment> fullest() const {
    std::vector<Moment> moments;
    Moment now;
    for (std::size_t t = 0; t < 2 * schedule_.size(); ++t) {
      for (const auto count : {&Moment::kept, &Moment::received, &Moment::outputs, &Moment::results,
                               &Moment::gradients, &Moment::waiting}) {
        now.*count += change_[t].*count;
      }
      const Phase phase = schedule_[t / 2].phase;
      now.running = t % 2 == 1                 ? Running::nothing
                    : phase == Phase::forward  ? Running::forward
                    : phase == Phase::backward ? Running::backward
                                               : Running::weights;
      const auto covered = [&](const Moment& other) { return covers(other, now); };
      if (std::any_of(moments.begin(), moments.end(), covered)) continue;
      std::erase_if(moments, [&](const Moment& other) { return covers(now, other); });
      moments.push_back(now);
    }
    return moments;
  }

  const std::vector<Task>& schedule_;
  const TaskTable& tasks_;
  const Progress& progress_;
  StageId stage_;
  std::vector<Moment> change_;
};

}  // namespace

std::vector<std::vector<Moment>> pipeline_moments(const std::string& schedule,
                                                  std::size_t num_stages, int n_microbatches) {
  const ScheduleKind& kind = schedule_kind(schedule);
  const int enough = 8 * static_cast<int>(num_stages) + 32;
  const int followed = std::min(n_microbatches, enough);
  const ScheduleRequest request = pipeline_request(kind, num_stages, followed);
  const TaskTable tasks(request.shape, followed);
  const Schedule made = kind.make(request);
  const Progress progress(made, tasks);
  std::vector<std::vector<Moment>> places;
  for (std::size_t s = 0; s < num_stages; ++s) {
    places.push_back(Place(made, tasks, progress, StageId{s}).run());
  }
  // What every micro-batch leaves behind grows with their number; what fill_drain keeps, too.
  const std::int64_t left_out = n_microbatches - followed;
  if (left_out == 0) return places;
  for (std::vector<Moment>& moments : places) {
    for (Moment& moment : moments) {
      for (const auto count : {&Moment::kept, &Moment::received, &Moment::outputs, &Moment::results,
                               &Moment::gradients, &Moment::waiting}) {
        if (moment.*count > followed / 2) moment.*count += left_out;
      }
    }
  }
  return places;
}

}  // namespace kerf::partition
