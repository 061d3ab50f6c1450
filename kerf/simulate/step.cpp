// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A step is a sequence of rounds: in round t stage s runs micro-batch t - s. Every moment of a
// round is the latest of some earlier moments, plus a time (a max-plus system). While none of these
// "latest" changes hands, each moment grows by a pace of its own from round to round; a loser with
// a greater pace than its winner says after how many rounds it takes over. Rounds up to then are
// skipped, exactly.
#include "kerf/simulate/step.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kerf/base/interrupt.h"
#include "kerf/plan/metrics.h"
#include "kerf/simulate/simulate.h"

namespace kerf {
namespace {

constexpr double kSame = 1e-10;  // relative; paces that differ by less are taken as equal

// What the differences of moments as large as this have lost.
double lost_at(double moment) {
  return 8 * std::numeric_limits<double>::epsilon() * std::abs(moment);
}

// A moment of every round: its last value and its pace.
struct Moment {
  double at = 0;
  double pace = 0;
  bool steady = false;  // its pace was the same for as many rounds as there are stages, and more
  int same = 0;         // rounds for which it was

  void set(double value, int rounds_needed) {
    const double now = value - at;
    same = std::abs(now - pace) <= kSame * std::abs(pace) + lost_at(value) ? same + 1 : 0;
    if (same == 0) pace = now;
    at = value;
    steady = same > rounds_needed;
  }
};

// What the moments of a stage's micro-batch were, for the stages that still wait for it.
class History {
 public:
  // rounds[moment]: how many of its last values are kept.
  explicit History(std::vector<std::size_t> rounds) : rounds_(std::move(rounds)) {
    for (const std::size_t each : rounds_) {
      first_.push_back(at_.size());
      at_.resize(at_.size() + each, 0);
    }
  }
  double& at(std::size_t moment, std::int64_t round) {
    return at_[first_[moment] + static_cast<std::size_t>(round) % rounds_[moment]];
  }
  // As if `skipped` rounds with this pace had followed.
  void shift(std::size_t moment, std::int64_t last_round, std::int64_t skipped, double pace) {
    std::vector<double> values;
    const auto kept = static_cast<std::int64_t>(rounds_[moment]);
    const auto first = std::max<std::int64_t>(0, last_round + 1 - kept);
    for (std::int64_t r = first; r <= last_round; ++r) values.push_back(at(moment, r));
    for (std::int64_t r = first; r <= last_round; ++r) {
      at(moment, r + skipped) =
          values[static_cast<std::size_t>(r - first)] + pace * static_cast<double>(skipped);
    }
  }

 private:
  std::vector<std::size_t> rounds_;
  std::vector<std::size_t> first_;
  std::vector<double> at_;
};

// By stage and by cut: the rounds from when it is made to when the last stage needs it.
struct Waits {
  explicit Waits(const Plan& plan) : stages(plan.num_stages(), 1), cuts(plan.cuts.size(), 1) {
    for (std::size_t s = 0; s < plan.num_stages(); ++s) {
      for (const StageId before : plan.stages[s].after) {
        std::size_t& longest = stages[before.index()];
        longest = std::max(longest, s - before.index() + 1);
      }
    }
    for (std::size_t c = 0; c < plan.cuts.size(); ++c) {
      const Cut& cut = plan.cuts[c];
      for (const StageId to : cut.to) {
        cuts[c] = std::max(cuts[c], to.index() - cut.from.index() + 1);
      }
      std::size_t& longest = stages[cut.from.index()];
      longest = std::max(longest, cuts[c]);
    }
  }
  std::vector<std::size_t> stages;
  std::vector<std::size_t> cuts;
};

// A tensor that a stage fetches before it runs.
struct Fetch {
  std::size_t cut;
  double time;
};

class StepWalk {
 public:
  StepWalk(const Plan& plan, int n_microbatches)
      : plan_(plan),
        n_microbatches_(n_microbatches),
        stages_(static_cast<std::int64_t>(plan.num_stages())),
        host_staged_(plan.comm_model == CommModel::host_staged),
        fetches_(plan.num_stages()),
        uploads_(plan.num_stages()),
        free_(plan.cluster.num_devices()),
        done_(plan.num_stages()),
        uploaded_(plan.cuts.size()),
        done_at_(Waits(plan).stages),
        uploaded_at_(Waits(plan).cuts),
        busy_(plan.cluster.num_devices(), 0) {
    for (std::size_t c = 0; c < plan.cuts.size(); ++c) add_cut(c);
    for (const Stage& stage : plan.stages) busy_[stage.device.index()] += stage.time.count;
  }

  StepFigures run() {
    const std::int64_t rounds = stages_ + n_microbatches_ - 1;
    for (std::int64_t round = 0; round < rounds; ++round) {
      poll_interrupt();
      skip_ = std::numeric_limits<double>::infinity();
      steady_ = round >= 2 * stages_ && round + stages_ < n_microbatches_;
      const std::int64_t last = std::min(round, stages_ - 1);
      for (std::int64_t s = std::max<std::int64_t>(0, round - n_microbatches_ + 1); s <= last;
           ++s) {
        run_stage(static_cast<std::size_t>(s), round - s);
      }
      for (std::size_t d = 0; d < free_.size(); ++d) {
        free_[d].set(now_[d].at, rounds_to_trust());
        look_at(free_[d]);
      }
      if (steady_) round += skip_rounds(round, n_microbatches_ - 1 - round - stages_);
    }
    return figures();
  }

 private:
  std::size_t device_of(StageId stage) const { return plan_.stage(stage).device.index(); }
  double link_time(const Cut& cut, std::size_t to) const {
    const DeviceId from = plan_.stage(cut.from).device;
    return transfer_time(cut, plan_.cluster.link(from, DeviceId{to})).count;
  }

  // A device fetches a tensor once, for the first of its stages that needs it.
  void add_cut(std::size_t c) {
    const Cut& cut = plan_.cuts[c];
    for (const DeviceId to : receivers(plan_.stages, cut)) {
      const auto first = std::find_if(cut.to.begin(), cut.to.end(), [&](StageId stage) {
        return plan_.stage(stage).device == to;
      });
      const bool free = host_staged_ && plan_.cluster.device(to).host;
      const double time = free ? 0 : link_time(cut, to.index());
      fetches_[first->index()].push_back({c, time});
      busy_[to.index()] += time;
    }
    if (!host_staged_ || receivers(plan_.stages, cut).empty()) return;
    const double time = upload_time(plan_.stages, cut, plan_.cluster).count;
    uploads_[cut.from.index()].push_back({c, time});
    busy_[device_of(cut.from)] += time;
  }

  // The later of two moments; both are known with their paces.
  struct Value {
    double at = 0;
    double pace = 0;
  };
  Value later(const Value& a, const Value& b) {
    const Value& winner = a.at >= b.at ? a : b;
    const Value& loser = a.at >= b.at ? b : a;
    const double closing = loser.pace - winner.pace;
    const double same = kSame * (std::abs(loser.pace) + std::abs(winner.pace)) + lost_at(winner.at);
    if (steady_ && closing > same) {
      skip_ = std::min(skip_, (winner.at - loser.at) / closing);
    }
    return winner;
  }

  void run_stage(std::size_t s, std::int64_t microbatch) {
    const Stage& stage = plan_.stages[s];
    const std::int64_t m = microbatch;
    Value now = now_[stage.device.index()];
    for (const Fetch& fetch : fetches_[s]) {
      const StageId from = plan_.cuts[fetch.cut].from;
      const Value made = host_staged_
                             ? Value{uploaded_at_.at(fetch.cut, m), uploaded_[fetch.cut].pace}
                             : Value{done_at_.at(from.index(), m), done_[from.index()].pace};
      now = later(now, made);
      now.at += fetch.time;
    }
    for (const StageId before : stage.after) {
      now = later(now, {done_at_.at(before.index(), m), done_[before.index()].pace});
    }
    now.at += stage.time.count;
    now.pace = record(done_[s], done_at_, s, m, now.at);
    for (const Fetch& upload : uploads_[s]) {
      now.at += upload.time;
      now.pace = record(uploaded_[upload.cut], uploaded_at_, upload.cut, m, now.at);
    }
    now_[stage.device.index()] = now;
  }

  int rounds_to_trust() const { return static_cast<int>(stages_) + 1; }

  // Its pace.
  double record(Moment& moment, History& history, std::size_t index, std::int64_t microbatch,
                double at) {
    moment.set(at, rounds_to_trust());
    history.at(index, microbatch) = at;
    look_at(moment);
    return moment.pace;
  }

  void look_at(const Moment& moment) { steady_ = steady_ && moment.steady; }

  // Rounds skipped after `round`, at most `most`.
  std::int64_t skip_rounds(std::int64_t round, std::int64_t most) {
    // One round short of the first change: rounding must not overlook it.
    const double rounds = std::min(std::floor(skip_) - 1, static_cast<double>(most));
    if (rounds < 1) return 0;
    const auto skipped = static_cast<std::int64_t>(rounds);
    for (std::size_t s = 0; s < done_.size(); ++s) {
      const auto last = round - static_cast<std::int64_t>(s);
      done_at_.shift(s, last, skipped, done_[s].pace);
      advance(done_[s], rounds);
      for (const Fetch& upload : uploads_[s]) {
        uploaded_at_.shift(upload.cut, last, skipped, uploaded_[upload.cut].pace);
        advance(uploaded_[upload.cut], rounds);
      }
    }
    for (std::size_t d = 0; d < free_.size(); ++d) {
      advance(free_[d], rounds);
      now_[d] = {free_[d].at, free_[d].pace};
    }
    return skipped;
  }

  static void advance(Moment& moment, double rounds) {
    moment.at += moment.pace * rounds;
    moment.same = 0;
    moment.steady = false;
  }

  StepFigures figures() const {
    StepFigures out;
    for (const Value& now : now_) out.end.count = std::max(out.end.count, now.at);
    std::vector<bool> used(free_.size());
    for (const Stage& stage : plan_.stages) used[stage.device.index()] = true;
    double idle = 0;
    double count = 0;
    for (std::size_t d = 0; d < used.size(); ++d) {
      if (!used[d]) continue;
      ++count;
      const double share = n_microbatches_ * (busy_[d] / out.end.count);
      idle += out.end.count > 0 ? 1 - share : 0;
    }
    out.bubble = count > 0 ? std::clamp(idle / count, 0.0, 1.0) : 0;
    return out;
  }

  const Plan& plan_;
  int n_microbatches_;
  std::int64_t stages_;
  bool host_staged_;
  std::vector<std::vector<Fetch>> fetches_;                    // by stage
  std::vector<std::vector<Fetch>> uploads_;                    // by stage
  std::vector<Moment> free_;                                   // by device, at the end of a round
  std::vector<Moment> done_;                                   // by stage
  std::vector<Moment> uploaded_;                               // by cut
  History done_at_, uploaded_at_;                              // by micro-batch
  std::vector<double> busy_;                                   // by device, a micro-batch
  std::vector<Value> now_ = std::vector<Value>(free_.size());  // by device, within a round
  bool steady_ = false;
  double skip_ = 0;  // rounds until a latest moment changes hands
};

bool has_shared_link(const Plan& plan) {
  for (const Cut& cut : plan.cuts) {
    for (const DeviceId to : receivers(plan.stages, cut)) {
      if (plan.cluster.link(plan.stage(cut.from).device, to).shared) return true;
    }
  }
  return false;
}

// Stages after those they wait for: what rounds need, and the event simulator reports otherwise.
bool is_numbered_topologically(const Plan& plan) {
  for (std::size_t s = 0; s < plan.num_stages(); ++s) {
    for (const StageId before : plan.stages[s].after) {
      if (before.index() >= s) return false;
    }
  }
  return std::all_of(plan.cuts.begin(), plan.cuts.end(), [](const Cut& cut) {
    return std::all_of(cut.to.begin(), cut.to.end(),
                       [&](StageId to) { return cut.from.index() < to.index(); });
  });
}

}  // namespace

StepFigures simulate_step(const Plan& plan, int n_microbatches) {
  const bool in_rounds = !plan.training && n_microbatches > 0 &&
                         plan.comm_model != CommModel::overlapped &&
                         is_numbered_topologically(plan) && !has_shared_link(plan);
  if (in_rounds) return StepWalk(plan, n_microbatches).run();
  const Timeline timeline = simulate_events(plan, n_microbatches);
  return {timeline.end(), timeline.bubble()};
}

}  // namespace kerf
