// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/device_graph.h"

#ifdef KERF_WITH_CUDA
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#endif

namespace kerf {

void GraphPool::enter(c10::Stream stream) {
  if (last_use_ && last_stream_ != stream) last_use_->block(stream);
}

void GraphPool::leave(c10::Stream stream) {
  if (stream.device_type() == c10::DeviceType::CPU) return;
  if (!last_use_) last_use_ = std::make_shared<c10::Event>(stream.device_type());
  last_use_->record(stream);
  last_stream_ = stream;
}

#ifdef KERF_WITH_CUDA
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// PyTorch 2.11 and later differ in whether pinned memory takes part in recordings.
template <class HostAllocator>
void end_host_pool(HostAllocator* host, c10::MempoolId_t pool) {
  if constexpr (requires { host->end_allocate_to_pool(pool); }) host->end_allocate_to_pool(pool);
}

// One private pool of the allocator. It lives as long as recordings that use it.
struct PoolId {
  c10::MempoolId_t id = at::cuda::graph_pool_handle();
};

// Makes a stream of its own current while it lives: recordings need one that nobody else uses, and
// nothing that was queued before may be waited for inside.
class RecordingStream {
 public:
  explicit RecordingStream(c10::Device device)
      : guard_(device.type()), caller_(guard_.getStream(device)) {
    caller_.synchronize();
    guard_.exchangeStream(guard_.getStreamFromGlobalPool(device, /*isHighPriority=*/false));
  }
  ~RecordingStream() { guard_.exchangeStream(caller_); }
  RecordingStream(const RecordingStream&) = delete;
  RecordingStream& operator=(const RecordingStream&) = delete;

 private:
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream caller_;
};

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(c10::Device device, std::shared_ptr<PoolId> pool)
      : device_(device), pool_(std::move(pool)), graph_(std::make_unique<at::cuda::CUDAGraph>()) {}

  void record(const std::function<void()>& work) override {
    const RecordingStream stream(device_);
    // What warming up left in the allocator's cache is of no use to a pool of its own.
    allocator::emptyCache();
    // Only this thread is held to the rules of recording: other stages go on meanwhile.
    try {
      graph_->capture_begin(pool_->id, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      abandon();
      throw;
    }
    try {
      work();
    } catch (...) {
      const std::exception_ptr failure = std::current_exception();
      try {
        graph_->capture_end();  // well where `work` failed by itself: an unused recording
      } catch (...) {
        abandon();
      }
      std::rethrow_exception(failure);
    }
    try {
      graph_->capture_end();
    } catch (...) {
      abandon();
      throw;
    }
  }

  void replay() override { graph_->replay(); }
  void draw_from(const at::Generator& generator) override {
    graph_->register_generator_state(generator);
  }

 private:
  // PyTorch does not undo a recording that broke off: its pool goes on taking allocations, and the
  // device's generator believes that it is being recorded.
  void abandon() {
    try {
      allocator::endAllocateToPool(device_.index(), pool_->id);
      end_host_pool(at::getHostAllocator(at::kCUDA), pool_->id);
      allocator::releasePool(device_.index(), pool_->id);
    } catch (const std::exception&) {  // it broke off before the pool was in use
    }
    // Allocator and generator may know the recording by its address: it stays for good.
    static_cast<void>(graph_.release());
    try {
      at::cuda::CUDAGraph whole;  // a recording that ends well ends the generator's too
      whole.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      at::zeros({1}, at::TensorOptions().device(device_));
      whole.capture_end();
    } catch (const std::exception&) {
    }
  }

  c10::Device device_;
  std::shared_ptr<PoolId> pool_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
};

class CudaGraphPool : public GraphPool {
 public:
  explicit CudaGraphPool(c10::Device device) : device_(device) {}

  std::unique_ptr<DeviceGraph> make() override {
    // The allocator gives up a pool with its last recording: then the next one begins another.
    std::shared_ptr<PoolId> pool = pool_.lock();
    if (!pool) pool_ = pool = std::make_shared<PoolId>();
    return std::make_unique<CudaGraph>(device_, std::move(pool));
  }

  std::int64_t bytes() const override {
    const std::shared_ptr<PoolId> pool = pool_.lock();
    if (!pool) return 0;
    std::int64_t sum = 0;
    for (const auto& segment : allocator::snapshot().segments) {
      if (segment.owner_private_pool_id == pool->id && segment.device == device_.index()) {
        sum += static_cast<std::int64_t>(segment.total_size);
      }
    }
    return sum;
  }

 private:
  c10::Device device_;
  std::weak_ptr<PoolId> pool_;
};

}  // namespace

std::unique_ptr<GraphPool> make_graph_pool(c10::Device device, std::string& why_not) {
  if (!device.is_cuda()) {
    why_not = "only CUDA devices record what they run";
    return nullptr;
  }
  return std::make_unique<CudaGraphPool>(device);
}

#else

std::unique_ptr<GraphPool> make_graph_pool(c10::Device device, std::string& why_not) {
  why_not = device.is_cuda() ? "Kerf was built without CUDA's headers"
                             : "only CUDA devices record what they run";
  return nullptr;
}

#endif

}  // namespace kerf
