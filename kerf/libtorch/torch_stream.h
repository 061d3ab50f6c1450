// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "kerf/libtorch/torch_pipeline.h"

namespace kerf {

// Batches that follow each other through a pipeline: the next is in its first stage while one is in
// its last.
//
//   TorchStream stream(pipeline, /*record=*/false);
//   stream.push({ids}, /*n_microbatches=*/4);            // returns at once
//   if (stream.size() == window) use(stream.pop());      // waits for the oldest
//
// Results come in the order of their batches, as if the pipeline were called with one after the
// other. Other calls of the pipeline are served when nothing of the stream is under way. Used by
// one thread at a time.
class TorchStream {
 public:
  explicit TorchStream(TorchPipeline& pipeline, bool record = false);
  ~TorchStream();  // stops what is under way
  TorchStream(const TorchStream&) = delete;
  TorchStream& operator=(const TorchStream&) = delete;

  // Waits only for other calls of the pipeline, and polls meanwhile. Throws as TorchPipeline::run
  // does for bad inputs; the stream is then as it was. Where there are no workers, the work is done
  // here.
  void push(const std::vector<at::Tensor>& inputs, int n_microbatches);
  std::size_t size() const { return pending_.size(); }

  // The result of the oldest batch. Throws as TorchPipeline::run does, and Error(run_failed) when
  // weights were written since it was pushed: it may have seen some before, and some after.
  TorchPipeline::Result pop();

  // Ends what is under way, as soon as the kernels that have begun are done; nothing is pending.
  void stop();

  // Of all batches that were popped, when recorded: as one call of all their micro-batches.
  const std::optional<Timeline>& timeline() const { return timeline_; }

 private:
  struct Batch {
    std::unique_ptr<TorchPipeline::Call> call;
    std::optional<TorchPipeline::Result> result;  // where the work was done by `push`
    std::exception_ptr failure;
    std::uint64_t num_edits = 0;  // of the weights, when it was pushed
  };
  class Busy;

  bool is_idle() const;
  void take_turn();
  void add_to_timeline(const TorchPipeline::Call& call, const Timeline& timeline);

  TorchPipeline& pipeline_;
  bool record_;
  bool writes_weights_;
  std::optional<Timeline> timeline_;
  std::chrono::steady_clock::time_point start_;
  mutable std::mutex mutex_;  // of what other threads ask for before they take the turn
  bool busy_ = false;
  std::unique_ptr<Turn> turn_;
  std::deque<Batch> pending_;
};

}  // namespace kerf
