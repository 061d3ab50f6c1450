// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/measure_pass.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "kerf/profile/probe_cost.h"

namespace kerf {
namespace {

std::vector<double> figures(const Clocks& clocks) {
  std::vector<double> out;
  for (StepClock* clock : clocks) {
    const std::vector<double> taken = clock->take();
    out.insert(out.end(), taken.begin(), taken.end());
  }
  return out;
}

template <class Clock, class... Args>
std::pair<std::vector<std::unique_ptr<Clock>>, Clocks> make_clocks(int phases, Args... args) {
  std::vector<std::unique_ptr<Clock>> owned;
  Clocks clocks;
  for (int p = 0; p < phases; ++p) {
    owned.push_back(std::make_unique<Clock>(args...));
    clocks.push_back(owned.back().get());
  }
  return {std::move(owned), std::move(clocks)};
}

template <class Clock>
Samples sample_with(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                    const SampleLimits& limits) {
  const auto [owned, clocks] = make_clocks<Clock>(phases, steps, device);
  return Samples::take(
      [&] {
        pass(clocks);
        return figures(clocks);
      },
      limits);
}

// A pass in which the device caught up with the host has gaps in it: it is made again, with the
// device held longer.
Samples sample_events(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                      bool each_step, const SampleLimits& limits) {
  constexpr int kMostTries = 8;
  const auto [owned, clocks] = make_clocks<EventClock>(phases, steps, device, each_step);
  return Samples::take(
      [&] {
        std::vector<double> out;
        for (int i = 0; i < kMostTries; ++i) {
          pass(clocks);
          out = figures(clocks);
          bool behind = true;
          for (const auto& clock : owned) behind = clock->was_behind() && behind;
          if (behind) break;
        }
        return out;
      },
      limits);
}

// A pass alone, and one more while neighbours work, in turns: a machine that is slower for a while
// is so for both.
Pass alone_and_beside(const Pass& once, std::ptrdiff_t phases, Neighbours& neighbours) {
  return [&, once, phases](const Clocks& clocks) {
    once({clocks.begin(), clocks.begin() + phases});
    neighbours.check();
    const Neighbours::AtWork at_work(neighbours);
    once({clocks.begin() + phases, clocks.end()});
  };
}

// The device's time of one phase: with an event before each step, less what events take.
std::vector<double> device_times(const Samples& each, const Samples& whole, std::size_t first,
                                 std::size_t steps, std::size_t most, bool backward) {
  std::vector<double> out = each.medians(first, steps);
  for (std::size_t done = 0; done < steps; done += most) {
    // Backward goes the other way round: its stretches begin at the end.
    const std::size_t length = std::min(most, steps - done);
    const std::size_t at = backward ? steps - done - length : done;
    const std::vector<double> stretch = whole.medians(first + at, length);
    const auto begin = out.begin() + static_cast<std::ptrdiff_t>(at);
    const std::vector<double> clean =
        without_probe_cost({begin, begin + static_cast<std::ptrdiff_t>(length)},
                           std::accumulate(stretch.begin(), stretch.end(), 0.0));
    std::copy(clean.begin(), clean.end(), begin);
  }
  return out;
}

}  // namespace

Samples sample_waiting(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                       const SampleLimits& limits) {
  return sample_with<WaitingClock>(pass, phases, steps, device, limits);
}

Samples sample_beside(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                      const SampleLimits& limits, Neighbours& neighbours) {
  return sample_with<WaitingClock>(alone_and_beside(pass, phases, neighbours), 2 * phases, steps,
                                   device, limits);
}

Apart measure_apart(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                    SampleLimits limits) {
  limits.budget_seconds /= 3;
  const Samples issue = sample_with<HostClock>(pass, phases, steps, device, limits);
  limits.warmup = 1;
  const Samples each = sample_events(pass, phases, steps, device, true, limits);
  const Samples whole = sample_events(pass, phases, steps, device, false, limits);
  const std::size_t most = EventClock(0, device, true).most_steps();
  Apart out;
  out.samples = each.num_passes();
  for (int phase = 0; phase < phases; ++phase) {
    const std::size_t first = static_cast<std::size_t>(phase) * steps;
    const std::vector<double> host = issue.medians(first, steps);
    const std::vector<double> own = device_times(each, whole, first, steps, most, phase == 1);
    for (std::size_t i = 0; i < steps; ++i) {
      out.times.push_back({{host[i]}, {own[i]}});
      out.spreads.push_back({std::max(issue.spread(first + i), each.spread(first + i))});
    }
  }
  return out;
}

}  // namespace kerf
