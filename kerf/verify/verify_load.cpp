// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/verify_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "kerf/verify/derive_load_latency.h"

namespace kerf {
namespace {

// Sums in another order differ in the last digits. Nothing is close to what is infinite.
bool close(double a, double b) {
  if (a == b) return true;
  const double larger = std::max(std::abs(a), std::abs(b));
  return std::isfinite(larger) && std::abs(a - b) <= 1e-9 * larger;
}

class LoadVerifier {
 public:
  LoadVerifier(const LoadProblem& problem, const LoadPlan& plan, bool serial)
      : problem_(problem), plan_(plan), serial_(serial) {}

  std::vector<Violation> run() {
    check_places();
    if (!violations_.empty()) return std::move(violations_);
    check_colours();
    check_memory();
    check_contiguity();
    check_value();
    return std::move(violations_);
  }

 private:
  template <class... Args>
  void add(std::string rule, fmt::format_string<Args...> text, Args&&... args) {
    violations_.push_back({std::move(rule), fmt::format(text, std::forward<Args>(args)...)});
  }
  std::uint32_t device(std::size_t node) const { return plan_.device[node]; }
  bool on_cpu(std::size_t node) const { return device(node) == problem_.cpu(); }

  void check_places() {
    if (plan_.device.size() != problem_.nodes.size()) {
      add("coverage", "the split places {} nodes, the problem has {}", plan_.device.size(),
          problem_.nodes.size());
      return;
    }
    for (std::size_t n = 0; n < plan_.device.size(); ++n) {
      const LoadNode& node = problem_.nodes[n];
      if (device(n) >= problem_.num_devices()) {
        add("device", "node {} is on device {}, there are {}", node.id, device(n),
            problem_.num_devices());
      } else if (!on_cpu(n) && !node.on_accelerator) {
        add("device", "node {} is on accelerator {} and runs only on CPUs", node.id, device(n));
      } else if (on_cpu(n) && !node.on_cpu) {
        add("device", "node {} is on a CPU and runs only on accelerators", node.id);
      }
    }
  }

  void check_colours() {
    std::map<std::int64_t, std::set<std::uint32_t>> devices;
    for (std::size_t n = 0; n < plan_.device.size(); ++n) {
      const std::int64_t colour = problem_.nodes[n].colour;
      if (colour != LoadNode::kNoColour) devices[colour].insert(device(n));
    }
    for (const auto& [colour, used] : devices) {
      if (used.size() > 1)
        add("colour", "nodes of colour {} are on {} devices", colour, used.size());
    }
  }

  void check_memory() {
    std::vector<double> bytes(problem_.num_devices());
    for (std::size_t n = 0; n < plan_.device.size(); ++n) {
      bytes[device(n)] += problem_.nodes[n].bytes;
    }
    for (std::uint32_t d = 0; d < bytes.size(); ++d) {
      const double limit = d == problem_.cpu()         ? problem_.cpu_memory
                           : problem_.memories.empty() ? problem_.memory
                                                       : problem_.memories[d];
      if (bytes[d] > limit && !close(bytes[d], limit)) {
        add("limit", "device {} holds {} and has {}", d, bytes[d], limit);
      }
    }
  }

  // A forward path that leaves a device and comes back: followed from each device's nodes.
  bool comes_back(std::uint32_t start) const {
    std::vector<std::size_t> waiting;
    std::vector<bool> seen(problem_.nodes.size());
    const auto follow = [&](std::size_t n) {
      for (const std::uint32_t next : problem_.successors[n]) {
        if (!problem_.nodes[next].backward && !seen[next]) waiting.push_back(next);
      }
    };
    for (std::size_t n = 0; n < plan_.device.size(); ++n) {
      if (device(n) != start || problem_.nodes[n].backward) continue;
      for (const std::uint32_t next : problem_.successors[n]) {
        if (!problem_.nodes[next].backward && device(next) != start) waiting.push_back(next);
      }
    }
    while (!waiting.empty()) {
      const std::size_t n = waiting.back();
      waiting.pop_back();
      if (seen[n]) continue;
      seen[n] = true;
      if (device(n) == start) return true;
      follow(n);
    }
    return false;
  }

  void check_contiguity() {
    const std::set<std::uint32_t> used(plan_.device.begin(), plan_.device.end());
    const bool contiguous =
        std::none_of(used.begin(), used.end(), [&](std::uint32_t d) { return comes_back(d); });
    if (plan_.contiguous && !contiguous) add("contiguous", "a path leaves a device and comes back");
  }

  // The fullest of several CPUs when classes go, the longest first, to the one with least.
  double cpu_time() const {
    std::map<std::int64_t, double> classes;
    std::vector<double> times;
    for (std::size_t n = 0; n < plan_.device.size(); ++n) {
      const LoadNode& node = problem_.nodes[n];
      if (!on_cpu(n)) continue;
      if (node.colour == LoadNode::kNoColour) {
        times.push_back(node.cpu_time);
      } else {
        classes[node.colour] += node.cpu_time;
      }
    }
    for (const auto& [colour, time] : classes) times.push_back(time);
    std::sort(times.rbegin(), times.rend());
    std::multiset<double> cpus;
    for (int c = 0; c < std::max(problem_.num_cpus, 1); ++c) cpus.insert(0);
    for (const double time : times) {
      const double least = *cpus.begin();
      cpus.erase(cpus.begin());
      cpus.insert(least + time);
    }
    return *cpus.rbegin();
  }

  double busiest() const {
    std::vector<double> load(problem_.num_devices());
    for (std::size_t n = 0; n < plan_.device.size(); ++n) {
      const LoadNode& node = problem_.nodes[n];
      const std::uint32_t own = device(n);
      if (own != problem_.cpu()) {
        load[own] +=
            node.accelerator_time * (problem_.slowness.empty() ? 1 : problem_.slowness[own]);
      }
      std::set<std::uint32_t> readers;
      for (const std::uint32_t next : problem_.successors[n]) readers.insert(device(next));
      readers.erase(own);
      if (readers.empty()) continue;
      const bool link = problem_.charging == Charging::link;
      for (const std::uint32_t reader : readers) {
        if (link || reader != problem_.cpu()) load[reader] += node.transfer;
      }
      if (!link && own != problem_.cpu()) load[own] += node.transfer;
    }
    if (problem_.num_cpus > 0) load[problem_.cpu()] += cpu_time();
    return *std::max_element(load.begin(), load.end());
  }

  void check_value() {
    const double value = plan_.objective == Objective::latency
                             ? derive::derive_load_latency(problem_, plan_.device, serial_)
                             : busiest();
    if (!close(value, plan_.value)) {
      add("objective", "the split costs {}, the plan says {}", value, plan_.value);
    }
    if (plan_.lower_bound > plan_.value && !close(plan_.lower_bound, plan_.value)) {
      add("bound", "the lower bound '{}' of {} is above the plan's own {}", plan_.bound_name,
          plan_.lower_bound, plan_.value);
    }
  }

  const LoadProblem& problem_;
  const LoadPlan& plan_;
  bool serial_;
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> verify_load_plan(const LoadProblem& problem, const LoadPlan& plan,
                                        bool serial) {
  return LoadVerifier(problem, plan, serial).run();
}

void check_load_plan(const LoadProblem& problem, const LoadPlan& plan, bool serial) {
  refuse_violations(verify_load_plan(problem, plan, serial));
}

}  // namespace kerf
