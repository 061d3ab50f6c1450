// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/torch_stream.h"

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"
#include "kerf/graph/pure.h"

namespace kerf {

// The turn does not pass to others while it lives.
class TorchStream::Busy {
 public:
  explicit Busy(TorchStream& stream) : stream_(stream) { set(true); }
  ~Busy() { set(false); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  void set(bool busy) {
    const std::lock_guard lock(stream_.mutex_);
    stream_.busy_ = busy;
  }
  TorchStream& stream_;
};

TorchStream::TorchStream(TorchPipeline& pipeline, bool record)
    : pipeline_(pipeline), record_(record), writes_weights_(!leaves_nothing(pipeline.graph())) {}

TorchStream::~TorchStream() { stop(); }

bool TorchStream::is_idle() const {
  const std::lock_guard lock(mutex_);
  return !busy_ && std::all_of(pending_.begin(), pending_.end(), [](const Batch& batch) {
    return !batch.call || batch.call->started->wait_for(0);
  });
}

// Others may have had it since the last batch came in. All batches were done then, and work in no
// turn any more.
void TorchStream::take_turn() {
  if (turn_ && turn_->is_held()) return;
  turn_.reset();
  turn_ = std::make_unique<Turn>(pipeline_.turns(), [this] { return is_idle(); });
}

void TorchStream::push(const std::vector<at::Tensor>& inputs, int n_microbatches) {
  const Busy busy(*this);
  take_turn();
  const InsideTurn inside(*turn_);
  Batch batch;
  batch.num_edits = pipeline_.weights().num_edits();
  batch.call = pipeline_.start(*turn_, inputs, n_microbatches, record_);
  if (pipeline_.runs_on_caller()) {
    try {
      batch.result = pipeline_.finish(*batch.call);
    } catch (const Interrupted&) {
      throw;
    } catch (...) {
      batch.failure = std::current_exception();
    }
  }
  const std::lock_guard lock(mutex_);
  pending_.push_back(std::move(batch));
}

TorchPipeline::Result TorchStream::pop() {
  KERF_CHECK(!pending_.empty(), "a batch to wait for");
  const Busy busy(*this);
  Batch batch;
  {
    const std::lock_guard lock(mutex_);
    batch = std::move(pending_.front());
    pending_.pop_front();
  }
  if (batch.failure) std::rethrow_exception(batch.failure);
  if (!batch.result) batch.result = pipeline_.finish(*batch.call);
  if (!writes_weights_ && pipeline_.weights().num_edits() != batch.num_edits) {
    throw Error(ErrorKind::run_failed,
                "[libtorch.stream] weights were changed while batches were under way, which may "
                "have seen some of them before and some after; expected a model that stays as it "
                "is; change it when the stream has ended, or stream with window=1");
  }
  if (batch.result->timeline) add_to_timeline(*batch.call, *batch.result->timeline);
  return std::move(*batch.result);
}

void TorchStream::stop() {
  const Busy busy(*this);
  for (Batch& batch : pending_) pipeline_.stop(*batch.call);
  {
    const std::lock_guard lock(mutex_);
    pending_.clear();
  }
  turn_.reset();
}

void TorchStream::add_to_timeline(const TorchPipeline::Call& call, const Timeline& timeline) {
  if (!timeline_) {
    start_ = call.run.start;
    timeline_ = timeline;
    return;
  }
  const Nanoseconds later{
      std::chrono::duration<double, std::nano>(call.run.start - start_).count()};
  for (Event event : timeline.events) {
    event.start = event.start + later;
    event.end = event.end + later;
    event.microbatch += timeline_->n_microbatches;
    timeline_->events.push_back(std::move(event));
  }
  timeline_->n_microbatches += timeline.n_microbatches;
}

}  // namespace kerf
