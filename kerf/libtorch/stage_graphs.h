// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/libtorch/device_graph.h"
#include "kerf/runtime/program.h"

namespace kerf {

// Runs a stage's program on an accelerator, from a recording where that is right and worth it.
//
//   first call of a form   operator by operator; libraries set themselves up
//   second                 the same, timed: does the host keep the device waiting?
//   third                  recorded, then replayed
//   later                  replayed
//
// A form is the batch, and the one that it is a part of where that matters, what stands at the
// stage's places (shapes, strides), and the settings that choose kernels. What comes in is copied
// to where the recording reads it; what the program writes of the caller's, or hands back as a view
// of it, is used where it is, and is part of the form by its address, as weights are. What goes out
// is copied: no two calls share results.
class StageGraphs {
 public:
  // How the stage runs one micro-batch.
  struct OneRun {
    // Runs the program on what stands at its places (the graph's inputs, then received values) and
    // gives what it sends. Places are moved from.
    std::function<std::vector<c10::IValue>(std::vector<c10::IValue>& places)> execute;
    // The tensors of the weights the program uses, as they are now, by their place in it.
    std::size_t num_weights = 0;
    std::function<const at::Tensor&(std::size_t)> weight;
    // Gives each of `generators` the seed of this micro-batch.
    std::function<void()> seed;
    std::vector<at::Generator> generators = {};  // that operators of the program draw from
  };

  // `pool` may be null, with the reason in `why_not`: nothing is recorded then. `graph` and `pool`
  // must outlive this.
  StageGraphs(const Graph& graph, const Program& program, c10::Device device, GraphPool* pool,
              std::string why_not);

  // `part_of`: the batch that `batch` is a part of, where the program looks at that; else 0.
  std::vector<c10::IValue> run(std::int64_t batch, std::vector<c10::IValue>& places,
                               const OneRun& one, std::int64_t part_of = 0);
  // Nothing will be recorded, for this reason.
  void refuse(std::string why_not);

  bool recording() const { return recording_; }  // is the program run to be recorded just now?
  std::size_t num_recordings() const;
  // Bytes of the places that recordings read, which are beside the pool.
  std::int64_t place_bytes() const;
  // Why nothing is recorded, or was not when it was last tried; empty: no reason.
  const std::string& why_not() const { return why_not_; }

  // The most recordings kept; the one that was not used for longest goes.
  static constexpr std::size_t kMostForms = 8;

 private:
  struct PlaceForm {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    const void* address = nullptr;  // of what is used where it is
    friend bool operator==(const PlaceForm&, const PlaceForm&) = default;
  };
  struct Form {
    std::int64_t batch = 0;
    std::int64_t part_of = 0;
    std::vector<std::uint64_t> settings;
    std::vector<PlaceForm> places;
    friend bool operator==(const Form&, const Form&) = default;
  };
  struct Made {  // one of the program's sends
    at::Tensor tensor;
    int storage = -1;  // of those that are copied out; -1: the memory is the caller's own
  };
  struct Recording {
    Form form;
    int calls = 0;
    bool worth_it = true;
    std::uint64_t last_used = 0;
    std::unique_ptr<DeviceGraph> graph;
    std::vector<at::Tensor> places;       // where the recording reads
    std::vector<const void*> weights;     // addresses
    std::vector<Made> made;               // by send
    std::vector<at::Tensor> made_memory;  // distinct storages, each as one flat tensor
  };

  bool find_form(std::int64_t batch, const std::vector<c10::IValue>& places, Form& form) const;
  Recording& find(Form form);
  std::vector<c10::IValue> run_timed(Recording& recording, std::vector<c10::IValue>& places,
                                     const OneRun& one) const;
  void record(Recording& recording, const std::vector<c10::IValue>& places, const OneRun& one);
  void keep_made(Recording& recording, std::vector<c10::IValue> sends, const OneRun& one) const;
  std::vector<c10::IValue> replay(Recording& recording, const std::vector<c10::IValue>& places,
                                  const OneRun& one);
  std::vector<c10::IValue> copy_out(const Recording& recording) const;

  c10::Device device_;
  GraphPool* pool_;
  std::string why_not_;
  std::vector<bool> in_place_;  // by place: used where it is
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::uint64_t clock_ = 0;
  bool recording_ = false;
};

}  // namespace kerf
