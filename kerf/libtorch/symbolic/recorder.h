// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes down as a graph which operators PyTorch calls in this thread, on tensors without data.
//
//   Recorder recorder("resnet", /*training=*/true);
//   recorder.add_input("args.0", "x", x);
//   recorder.start({.name = "conv1", .kind = "call_module", .target = "conv1"}, place, {x});
//   at::Tensor y = at::conv2d(x, w);
//   recorder.end({y});
//   Recording made = recorder.finish({y});
//
// Operators are seen as the model calls them, above autograd: one `linear`, not what it is made of.
// Only where no formula knows an operator that is made of others, those are taken in its place.
// Nothing is simplified: what runs is what costs. A Python autograd function is what its forward
// calls, without gradients, and behind it one call "kerf.python_function.<Name>" of its results,
// the inputs that get gradients, and what it keeps; that call has the gradients.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/graph/span.h"

namespace kerf {

// What a user's rule says of one call of an operator: flops forward and backward.
using FlopRule = std::function<std::pair<double, double>(
    const std::vector<c10::IValue>& positional,
    const std::vector<std::pair<std::string, c10::IValue>>& named)>;

// What a function with a backward of its own has kept for it.
struct FunctionRecord {
  std::string name;
  std::vector<at::Tensor> saved;
  std::optional<double> backward_flops;  // none: its backward needs data
};
// Of the function that made these tensors; none where PyTorch's own operators did.
using FunctionReader =
    std::function<std::optional<FunctionRecord>(const std::vector<at::Tensor>& outputs)>;

struct Recording {
  Graph graph;
  std::vector<Span> spans;
  std::map<std::size_t, std::pair<double, double>> flops;  // by node, where a rule was
};

// Where the nodes of a span belong.
struct SpanPlace {
  Scope scope;         // the module
  std::string region;  // checkpoint region, "0/1"
  std::string source;  // "model.py:12"
};

// One recording of one thread. It holds on to every tensor it has seen until it is gone, so that
// no two of them have one address. Calls between end() and start() are not recorded.
class Recorder {
 public:
  Recorder(std::string name, bool training);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Before the first span. The same tensor twice is one value, with the first name.
  void add_input(std::string path, std::string name, const at::Tensor& tensor);
  void add_weight(std::vector<std::string> names, WeightKind kind, const at::Tensor& tensor);

  // Called at every call of `op`, "fused.my_op.default". It may throw, which end() throws again.
  void set_rule(std::string op, FlopRule rule);

  // Called behind every call of a Python autograd function. Without one such a function is what it
  // calls, as if autograd had recorded that.
  void set_function_reader(FunctionReader reader);

  // `span`: its name, kind and target. `weights`: parameters and buffers that its module holds.
  // `as`: where it is not empty, the span is one call of this operator ("fused.my_op.default"): its
  // results come from a rule, and what the rule calls is no part of the model.
  void start(Span span, const SpanPlace& place, const std::vector<at::Tensor>& inputs,
             const std::vector<at::Tensor>& weights, const std::string& as = {});
  void end(const std::vector<at::Tensor>& outputs);
  // Ends the span without results, after an exception. Nothing when there is none.
  void abandon();

  // Verifies and freezes; the recorder is spent. Throws Error(invalid_graph).
  Recording finish(const std::vector<at::Tensor>& outputs);

 private:
  class Content;
  std::unique_ptr<Content> content_;
};

}  // namespace kerf
