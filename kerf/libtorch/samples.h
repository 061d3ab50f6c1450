// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace kerf {

// When enough passes have been measured.
struct SampleLimits {
  int warmup = 2;
  int min_passes = 5;
  int max_passes = 50;
  double budget_seconds = 2;  // no further pass is begun after it
  double spread = 0.03;       // enough when the quartiles of the total are this close, relatively
};

// Figures of all steps, pass by pass.
class Samples {
 public:
  // Passes until the total settles or the budget is spent; each gives the figures of all steps.
  static Samples take(const std::function<std::vector<double>()>& pass, const SampleLimits& limits);

  int num_passes() const { return static_cast<int>(passes_.size()); }
  std::size_t num_steps() const { return passes_[0].size(); }
  double spread(std::size_t step) const;  // between the quartiles
  // Medians of a run of steps, scaled to add up to the median of their sum: figures that are now
  // and then much larger have medians below their means, and a pass has some of them every time.
  std::vector<double> medians(std::size_t first, std::size_t count) const;

 private:
  std::vector<double> of(std::size_t step) const;  // ascending

  std::vector<std::vector<double>> passes_;
};

}  // namespace kerf
