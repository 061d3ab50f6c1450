// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>

namespace kerf::cli {

Progress::Progress(std::string label, double seconds) : label_(std::move(label)) {
  if (seconds <= 1 || isatty(fileno(stderr)) == 0) return;
  thread_ = std::thread([this, seconds] { draw(seconds); });
}

Progress::~Progress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_ = true;
  }
  ended_.notify_all();
  thread_.join();
  fmt::print(stderr, "\r\033[K");
}

void Progress::draw(double seconds) {
  constexpr int kWidth = 40;
  constexpr std::chrono::milliseconds kEvery{100};
  const auto start = std::chrono::steady_clock::now();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_.wait_for(lock, kEvery, [this] { return end_; })) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    const double share = std::min(1.0, passed.count() / seconds);
    const auto filled = static_cast<std::size_t>(share * kWidth);
    fmt::print(stderr, "\r{} [{}{}] {:.1f} of at most {:.3g} s", label_, std::string(filled, '='),
               std::string(kWidth - filled, ' '), passed.count(), seconds);
    std::fflush(stderr);
  }
}

}  // namespace kerf::cli
