// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/fill.h"

#include <algorithm>
#include <utility>

#include "kerf/base/stop_clock.h"

namespace kerf::place::ideals {
namespace {

using Sequence = std::vector<std::uint32_t>;  // of classes, one for each device

constexpr int kRandomSequences = 6;
constexpr int kBisections = 12;

class Fill {
 public:
  Fill(const Groups& groups, const Order& order) : groups_(groups), order_(order), nets_(groups) {}
  std::int64_t work = 0;

  // The next stage goes to the first device of the sequence that is free and can take something.
  Chain run(double limit, Sequence sequence) {
    Chain out{order_, {}, {}, 0};
    std::uint32_t at = 0;
    while (at < order_.size()) {
      const std::uint32_t start = at;
      for (auto device = sequence.begin(); device != sequence.end() && at == start; ++device) {
        at = fill(start, groups_.classes[*device], limit, out.load);
        if (at == start) continue;
        out.ends.push_back(at);
        out.on.push_back(*device);
        sequence.erase(device);
        break;
      }
      if (at == start) break;
      for (std::uint32_t i = start; i < at; ++i) nets_.add_before(order_[i]);
    }
    for (std::uint32_t i = 0; i < at; ++i) nets_.remove_before(order_[i]);
    if (at < order_.size()) out.load = kInfinity;
    return out;
  }

 private:
  std::uint32_t fill(std::uint32_t start, const DeviceClass& on, double limit, double& largest) {
    return nets_.with_paying(
        on, [&]<Paying kPaying>() { return fill_paying<kPaying>(start, on, limit, largest); });
  }
  template <Paying kPaying>
  std::uint32_t fill_paying(std::uint32_t start, const DeviceClass& on, double limit,
                            double& largest) {
    Sums sums;
    double load = 0;
    std::uint32_t end = start;
    std::uint32_t best = start;
    while (end < order_.size()) {
      sums = nets_.add<kPaying>(order_[end++], on, sums);
      if (sums.least() >= limit || sums.bytes > on.memory) break;
      if (sums.load >= limit) continue;
      best = end;
      load = sums.load;
    }
    work += end - start;
    count_steps(4 * std::int64_t{end - start});
    while (end > start) nets_.remove<kPaying>(order_[--end]);
    largest = std::max(largest, load);
    return best;
  }

  const Groups& groups_;
  const Order& order_;
  StageNets nets_;
};

// The CPU comes last: it takes what no accelerator can.
std::vector<Sequence> find_sequences(const Groups& groups, Rng& rng) {
  Sequence accelerators;
  Sequence cpu;
  for (std::uint32_t c = 0; c < groups.classes.size(); ++c) {
    const DeviceClass& device = groups.classes[c];
    Sequence& list = device.is_cpu ? cpu : accelerators;
    list.insert(list.end(), device.devices.size(), c);
  }
  std::vector<Sequence> out{accelerators};
  if (!groups.has_one_kind()) {
    out.emplace_back(accelerators.rbegin(), accelerators.rend());
    for (int i = 0; i < kRandomSequences; ++i) {
      Sequence shuffled = accelerators;
      for (std::size_t left = shuffled.size(); left > 1; --left) {
        std::swap(shuffled[left - 1], shuffled[rng.below(left)]);
      }
      out.push_back(std::move(shuffled));
    }
  }
  for (Sequence& sequence : out) sequence.insert(sequence.end(), cpu.begin(), cpu.end());
  return out;
}

// What perfect balance comes to, with a CPU as good as an accelerator.
double find_balance(const Groups& groups) {
  double rate = 1;
  for (const DeviceClass& device : groups.classes) {
    if (!device.is_cpu && device.slowness > 0) rate += device.count() / device.slowness;
  }
  return groups.total_accelerator_time() / rate;
}

// The limit rises until there is a plan, then falls.
Chain fill_sequence(Fill& fill, const Sequence& sequence, double fails, double below,
                    StepClock& clock) {
  double limit = std::min(std::max(fails * 1.05, below * 1e-6), below);
  Chain best = fill.run(limit, sequence);
  while (best.load == kInfinity && limit < below) {
    fails = limit;
    limit = clock.is_late() ? below : std::min(limit * 1.4, below);
    best = fill.run(limit, sequence);
  }
  for (int step = 0; step < kBisections && best.load < kInfinity && best.load > fails; ++step) {
    if (clock.is_late()) break;
    limit = (fails + best.load) / 2;
    Chain chain = fill.run(limit, sequence);
    if (chain.load < best.load)
      best = std::move(chain);
    else
      fails = limit;
  }
  return best;
}

}  // namespace

double above_all_loads(const Groups& groups) {
  double out = 1;
  const double slowness = groups.greatest_slowness();
  for (UnitId g{0}; g < groups.num_units(); ++g) {
    const Unit group = groups.unit(g);
    out += group.cpu_time + group.accelerator_time * slowness;
  }
  for (const double cost : groups.cost) out += cost;
  return out;
}

Chain fill_order(const Groups& groups, const Order& order, double below, Rng& rng, StepClock& clock,
                 std::int64_t& work) {
  Fill fill(groups, order);
  Chain best;
  for (const Sequence& sequence : find_sequences(groups, rng)) {
    if (best.load < kInfinity && clock.is_late()) break;
    Chain found = fill_sequence(fill, sequence, find_balance(groups), below, clock);
    if (!(found.load < best.load)) continue;
    best = std::move(found);
    below = std::min(below, best.load);
  }
  work += fill.work;
  return best;
}

}  // namespace kerf::place::ideals
