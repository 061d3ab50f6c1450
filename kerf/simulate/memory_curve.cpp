// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/memory_curve.h"

#include <algorithm>
#include <map>
#include <set>

#include "kerf/base/interrupt.h"
#include "kerf/plan/passes.h"

namespace kerf {
namespace {

// Bytes of each kind that come and go at a moment.
using Changes = std::map<Nanoseconds, MemoryKinds>;

void add(MemoryKinds& to, const MemoryKinds& bytes) {
  for (std::size_t k = 0; k < kNumMemoryKinds; ++k) to[k] += bytes[k];
}

// Takes from `bytes` what they are too many.
void take(Bytes& bytes, Bytes& excess) {
  const Bytes taken = std::min(bytes, excess);
  bytes -= taken;
  excess -= taken;
}

// The plan does not say which tensors share memory, nor which inputs of the model a stage keeps:
// what two of them have in common may have been counted twice. The engine knows, and no timing
// exceeds its figure.
void limit(MemoryKinds& bytes, Bytes most) {
  Bytes excess = std::max(sum(bytes) - most, Bytes{});
  take(of(bytes, MemoryKind::saved), excess);
  take(of(bytes, MemoryKind::temporaries), excess);
  take(of(bytes, MemoryKind::results), excess);
}

MemoryCurve to_curve(DeviceId device, const DeviceMemory& memory, const Changes& changes) {
  MemoryCurve curve{device, {}};
  MemoryKinds now{};
  of(now, MemoryKind::weights) = memory.weights;
  of(now, MemoryKind::gradients) = memory.gradients;
  of(now, MemoryKind::optimizer) = memory.optimizer;
  const Bytes most = sum(now) + memory.activations;
  curve.points.push_back({Nanoseconds{}, sum(now), now});
  for (const auto& [time, change] : changes) {
    add(now, change);
    MemoryKinds limited = now;
    limit(limited, most);
    MemoryPoint& last = curve.points.back();
    if (time == last.time) {
      last = {time, sum(limited), limited};
    } else if (last.by_kind != limited) {
      curve.points.push_back({time, sum(limited), limited});
    }
  }
  return curve;
}

class Curves {
 public:
  Curves(const Plan& plan, const Timeline& timeline)
      : plan_(plan),
        timeline_(timeline),
        end_(timeline.end()),
        shape_(step_shape(plan)),
        uses_(plan.num_stages()) {
    for (std::size_t s = 0; s < plan.num_stages(); ++s) {
      uses_[s].results = plan.stages[s].outputs;
      uses_[s].inputs = plan.stages[s].inputs;
      uses_[s].saved = plan.stages[s].saved;
    }
    const std::vector<std::vector<GradientRoute>> routes = gradient_routes(plan);
    for (std::size_t c = 0; c < plan.cuts.size(); ++c) add_cut(plan.cuts[c], routes[c]);
    for (const Event& event : timeline.events) {
      if (event.kind != EventKind::compute) continue;
      ended_[{pass_of(shape_, event.stage, event.phase), event.microbatch}] = event.end;
    }
  }

  std::vector<MemoryCurve> run() {
    for (const Event& event : timeline_.events) {
      poll_interrupt();
      if (event.kind == EventKind::compute) add_task(event);
    }
    std::vector<MemoryCurve> curves;
    for (const auto& [device, changes] : changes_) {
      curves.push_back(to_curve(device, plan_.memory[device.index()], changes));
    }
    return curves;
  }

 private:
  // What a stage leaves for the same others; for nobody: results.
  struct Left {
    Bytes bytes;
    std::vector<StageId> users;
  };
  // A stage among the others.
  struct Uses {
    std::vector<Left> left;
    Bytes results;    // what it leaves beyond that
    Bytes inputs;     // what it reads that no stage of the same memory holds
    Bytes saved;      // the same of what it keeps
    Bytes gradients;  // that come back to it from other memories
    std::vector<std::pair<Bytes, StageId>> sends_gradients;  // and who takes them
  };

  int group_of(StageId stage) const {
    return plan_.cluster.device(plan_.stage(stage).device).memory_group;
  }

  void add_cut(const Cut& cut, const std::vector<GradientRoute>& routes) {
    Uses& made = uses_[cut.from.index()];
    made.left.push_back({std::min(cut.bytes, made.results), cut.to});
    made.results -= made.left.back().bytes;
    std::set<DeviceId> received;  // where it is counted already
    for (const StageId to : cut.to) {
      Uses& uses = uses_[to.index()];
      const bool here = group_of(to) == group_of(cut.from);
      if (here) uses.inputs -= cut.bytes;
      if (here || !received.insert(plan_.stage(to).device).second) {
        uses.saved -= std::min(uses.saved, cut.bytes);
      }
    }
    for (const auto [from, to] : routes) {
      uses_[from.index()].sends_gradients.emplace_back(cut.bytes, to);
      if (group_of(from) != group_of(to)) uses_[to.index()].gradients += cut.bytes;
    }
  }

  void hold(const Event& event, Nanoseconds from, Nanoseconds to, MemoryKind kind, Bytes bytes) {
    if (bytes.count == 0 || !(from < to)) return;
    of(changes_[event.device][from], kind) += bytes;
    of(changes_[event.device][to], kind) -= bytes;
  }

  Nanoseconds end_of(StageId stage, Phase phase, int microbatch) const {
    const auto found = ended_.find({pass_of(shape_, stage, phase), microbatch});
    return found == ended_.end() ? end_ : found->second;
  }

  void add_task(const Event& event) {
    changes_[event.device];  // a device with a task has a curve
    if (event.phase == Phase::forward) add_forward(event);
    if (event.phase == Phase::backward) add_backward(event);
  }

  void add_forward(const Event& event) {
    const Stage& stage = plan_.stage(event.stage);
    const Uses& uses = uses_[event.stage.index()];
    hold(event, event.start, event.end, MemoryKind::temporaries, stage.activations);
    hold(event, event.start, event.end, MemoryKind::inputs, uses.inputs);
    Nanoseconds needed = event.end;  // until then it keeps `saved`
    if (stage.has_backward) {
      needed = end_of(event.stage, shape_.apart ? Phase::weight_gradient : Phase::backward,
                      event.microbatch);
      hold(event, event.end, needed, MemoryKind::saved, uses.saved);
    }
    hold_left(event, needed);
  }

  // What it both leaves and keeps counts once, as kept.
  void hold_left(const Event& event, Nanoseconds needed) {
    const Uses& uses = uses_[event.stage.index()];
    std::map<Nanoseconds, Bytes> released{{needed, {}}, {end_, {}}};
    Bytes left;
    for (const Left& item : uses.left) {
      Nanoseconds used = event.end;
      for (const StageId user : item.users) {
        used = std::max(used, end_of(user, Phase::forward, event.microbatch));
      }
      released[used] += item.bytes;
      left += item.bytes;
    }
    Nanoseconds from = event.end;
    for (const auto& [to, bytes] : released) {
      const Bytes kept = from < needed ? plan_.stage(event.stage).saved : Bytes{};
      const Bytes more = std::max(left + uses.results - kept, Bytes{});
      const Bytes results = std::min(uses.results, more);
      hold(event, from, to, MemoryKind::results, results);
      hold(event, from, to, MemoryKind::temporaries, more - results);
      left -= bytes;
      from = std::max(from, to);
    }
  }

  void add_backward(const Event& event) {
    const Uses& uses = uses_[event.stage.index()];
    hold(event, event.start, event.end, MemoryKind::temporaries,
         plan_.stage(event.stage).backward_activations);
    hold(event, event.start, event.end, MemoryKind::inputs, uses.gradients);
    for (const auto& [bytes, taker] : uses.sends_gradients) {
      hold(event, event.end, end_of(taker, Phase::backward, event.microbatch),
           MemoryKind::temporaries, bytes);
    }
  }

  const Plan& plan_;
  const Timeline& timeline_;
  Nanoseconds end_;  // of the step
  StepShape shape_;
  std::vector<Uses> uses_;                               // by stage
  std::map<std::pair<PassId, int>, Nanoseconds> ended_;  // by pass and micro-batch
  std::map<DeviceId, Changes> changes_;
};

}  // namespace

std::vector<MemoryCurve> memory_curves(const Plan& plan, const Timeline& timeline) {
  if (plan.memory.size() != plan.cluster.num_devices()) return {};
  return Curves(plan, timeline).run();
}

}  // namespace kerf
