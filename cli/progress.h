// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace kerf::cli {

// A bar on stderr while it lives: how much of a time budget has passed. Nothing for budgets up to a
// second, and nothing when stderr is no terminal.
class Progress {
 public:
  Progress(std::string label, double seconds);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

 private:
  void draw(double seconds);

  std::string label_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace kerf::cli
