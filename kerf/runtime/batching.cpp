// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/batching.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "kerf/base/error.h"
#include "kerf/graph/batch_flow/loss.h"

namespace kerf {
namespace {

[[noreturn]] void refuse(const std::string& found, std::string_view remedy) {
  throw Error(ErrorKind::unsupported_operator,
              fmt::format("[runtime.batching] {}; expected results that are separate for each "
                          "sample; {}",
                          found, remedy));
}

std::vector<int> batch_dims_of(const Value& value) {
  std::vector<int> out;
  for (std::size_t d = 0; d < value.shape.size(); ++d) {
    if (!value.shape[d].is_constant()) out.push_back(static_cast<int>(d));
  }
  return out;
}

constexpr std::string_view kOne = "run with n_microbatches=1";

// "mean" is over samples, "sum" over micro-batches: of a result that was made in another way they
// give another number than the model.
void check_reduction_fits(const Graph& graph, const BatchFlow& flow, const std::string& path,
                          const std::string& how, ValueId id) {
  if (how != "mean" && how != "sum") return;
  const LossShape found = loss_shape(graph, flow, id);
  if (found.kind == LossKind::constant && how == "sum") {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[runtime.batching] reduce says 'sum' for output '{}', which no input "
                            "that is cut has a part in: each micro-batch makes all of it; expected "
                            "'mean', or 'first' where nothing is trained; {}",
                            path, kOne));
  }
  std::string_view wrong;
  if (found.kind == LossKind::weighted_mean) {
    wrong =
        "divides by what counts in these samples (targets that are not ignored, class weights, a "
        "mask), which neither the mean over samples nor the sum gives; expected a result in which "
        "every sample counts equally; run with n_microbatches=1, or let the model return the sum "
        "and the count and divide after the call";
  } else if (found.kind == LossKind::sum && how == "mean") {
    wrong = "adds up the samples; expected 'sum', which adds up micro-batches";
  } else if (found.kind == LossKind::mean && how == "sum") {
    wrong = "takes the mean of the samples; expected 'mean', which weighs micro-batches by size";
  }
  if (wrong.empty()) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[runtime.batching] reduce says '{}' for output '{}', but {} {}", how,
                          path, graph.describe(found.by), wrong));
}

OutputRule reduction(const std::string& path, const std::string& how) {
  if (how == "mean") return {Join::mean, {}};
  if (how == "sum") return {Join::sum, {}};
  if (how == "first") return {Join::whole, {}};
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[runtime.batching] reduce says '{}' for output '{}'; expected 'mean' "
                          "(over samples), 'sum' or 'first'",
                          how, path));
}

OutputRule reduced_output(const Graph& graph, const BatchFlow& flow, const GraphOutput& output,
                          ValueId id, const std::string& how) {
  const std::vector<int> dims = batch_dims_of(graph.value(id));
  if (!dims.empty()) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[runtime.batching] reduce names output '{}', which has the batch in "
                            "dimension {}; expected an output without a batch dimension; omit it: "
                            "results of micro-batches are concatenated",
                            output.path, dims[0]));
  }
  const OutputRule rule = reduction(output.path, how);
  check_reduction_fits(graph, flow, output.path, how, id);
  return rule;
}

OutputRule rule_of(const Graph& graph, const BatchFlow& flow, const GraphOutput& output, ValueId id,
                   const std::map<std::string, std::string>& reduce) {
  const Value& value = graph.value(id);
  const BatchState& state = flow.states[id.index()];
  if (const auto said = reduce.find(output.path); said != reduce.end()) {
    return reduced_output(graph, flow, output, id, said->second);
  }
  const std::vector<int> dims = batch_dims_of(value);
  if (dims.empty()) {
    if (state.is_fixed()) return {};
    refuse(fmt::format("output '{}' has no batch dimension but is computed from the samples",
                       output.path),
           fmt::format("say how to combine it, reduce={{\"{}\": \"mean\"}} if it is a mean over "
                       "the samples, or {}",
                       output.path, kOne));
  }
  if (dims.size() > 1) {
    refuse(fmt::format("output '{}' has the batch in dimensions {} and {}: the model mixes samples",
                       output.path, dims[0], dims[1]),
           kOne);
  }
  const Expr& size = value.shape[static_cast<std::size_t>(dims[0])];
  const auto factor = batch_factor(size);
  if (!factor) {
    refuse(fmt::format("output '{}' has size {} in dimension {}", output.path, size.str(), dims[0]),
           kOne);
  }
  const bool in_order = state.is_batched() && (state.outer == 1 || state.any_layout());
  if (*factor != 1 && !in_order) {
    refuse(
        fmt::format(
            "output '{}' has size {} in dimension {}, and samples may not follow one another in it",
            output.path, size.str(), dims[0]),
        kOne);
  }
  return {Join::concatenate, {dims[0], *factor}};
}

std::string output_names(const Graph& graph) {
  std::string out;
  for (const GraphOutput& output : graph.outputs()) {
    out += fmt::format("{}'{}'", out.empty() ? "" : ", ", output.path);
  }
  return out;
}

void check_names(const Graph& graph, const std::map<std::string, std::string>& reduce) {
  for (const auto& [path, how] : reduce) {
    if (std::none_of(graph.outputs().begin(), graph.outputs().end(),
                     [&, name = path](const GraphOutput& output) { return output.path == name; })) {
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("[runtime.batching] reduce names output '{}'; expected one of {}",
                              path, output_names(graph)));
    }
  }
}

// Of all but the first micro-batch's nothing is used.
JudgedOutputs judged(const std::map<std::string, std::string>& reduce) {
  JudgedOutputs out;
  for (const auto& [path, how] : reduce) {
    if (how == "first") out.left_out.insert(path);
  }
  return out;
}

// The batch may have been looked for in the wrong place.
std::string remedy_for_mixing(const Graph& graph) {
  const bool elsewhere =
      std::any_of(graph.inputs().begin(), graph.inputs().end(), [&](const GraphInput& input) {
        const Value& value = graph.value(input.value);
        return value.depends_on_batch() && value.shape.size() > 1;
      });
  return std::string(kOne) +
         (elsewhere ? ", or, if the batch is in another dimension of the inputs "
                      "(batch_first=False: the second), trace with batch_dims=, e.g. batch_dims=1"
                    : "");
}

void refuse_mixing(const Graph& graph, const BatchVerdict& verdict) {
  if (verdict.kind != Independence::mixes) return;
  if (verdict.of_state) {
    throw Error(ErrorKind::unsupported_operator,
                fmt::format("[runtime.batching] {} would be left with other values when the batch "
                            "is cut: {}; expected a tensor that micro-batches leave as the whole "
                            "batch does; {}",
                            verdict.where, verdict.reason, kOne));
  }
  refuse(fmt::format("{} mixes samples: {}", verdict.where, verdict.reason),
         remedy_for_mixing(graph));
}

}  // namespace

std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int n_microbatches) {
  const std::int64_t count = std::min<std::int64_t>(n_microbatches, batch);
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back((batch + count - 1 - i) / count);
  return out;
}

std::vector<BatchDim> input_dims(const Graph& graph) {
  std::vector<BatchDim> out;
  for (const GraphInput& input : graph.inputs()) {
    const Value& value = graph.value(input.value);
    const std::vector<int> dims = batch_dims_of(value);
    if (dims.empty()) {
      out.push_back({});
      continue;
    }
    const auto factor = batch_factor(value.shape[static_cast<std::size_t>(dims[0])]);
    if (dims.size() > 1 || !factor) {
      throw Error(
          ErrorKind::unsupported_operator,
          fmt::format("[runtime.batching] input '{}' holds the batch in {} dimensions or not "
                      "as a multiple of B; expected one dimension; give batch_dims= to trace",
                      input.path, dims.size()));
    }
    out.push_back({dims[0], *factor});
  }
  return out;
}

std::vector<OutputRule> output_rules(const Graph& graph,
                                     const std::map<std::string, std::string>& reduce) {
  check_names(graph, reduce);
  const BatchFlow flow = analyse_batch(graph);
  refuse_mixing(graph, judge_batch(graph, flow, judged(reduce)));
  std::vector<OutputRule> out;
  for (const GraphOutput& output : graph.outputs()) {
    const auto* id = output.leaf.find<ValueId>();
    out.push_back(id == nullptr ? OutputRule{} : rule_of(graph, flow, output, *id, reduce));
  }
  return out;
}

namespace {

BatchVerdict judge(const Graph& graph, const BatchFlow& flow, const JudgedOutputs& which,
                   bool batch_independent) {
  BatchVerdict verdict = judge_batch(graph, flow, which);
  refuse_mixing(graph, verdict);
  if (verdict.kind == Independence::opaque && !batch_independent) {
    refuse(fmt::format("{} is computed by a block whose treatment of samples is not known: {}",
                       verdict.where, verdict.reason),
           fmt::format("{}, or, if the block treats every sample separately, say so: "
                       "kerf.Pipeline(..., batch_independent=True)",
                       kOne));
  }
  return verdict;
}

OpaqueBlocks blocks_are(bool batch_independent) {
  return batch_independent ? OpaqueBlocks::separate : OpaqueBlocks::unknown;
}

// The inputs that a value is made of.
std::vector<const GraphInput*> inputs_behind(const Graph& graph, ValueId value) {
  std::vector<ValueId> open{value};
  std::set<ValueId> seen{value};
  std::vector<const GraphInput*> out;
  while (!open.empty()) {
    const Value& at = graph.value(open.back());
    open.pop_back();
    if (at.origin == Origin::input) out.push_back(&graph.inputs()[at.position]);
    if (at.origin != Origin::node) continue;
    for (const ValueId from : graph.inputs_of(at.producer)) {
      if (seen.insert(from).second) open.push_back(from);
    }
  }
  return out;
}

// A result of an input that holds the samples but whose batch the model fixed: each micro-batch has
// all of it, next to targets of its own samples only. Another tensor that all samples share is
// known by its size, which is not that of the example's batch.
void refuse_whole_results(const Graph& graph, const BatchFlow& flow) {
  const Expr batch(graph.data().example_batch);
  for (const GraphOutput& output : graph.outputs()) {
    const auto* const id = output.leaf.find<ValueId>();
    if (id == nullptr || !flow.states[id->index()].is_fixed()) continue;
    for (const GraphInput* input : inputs_behind(graph, *id)) {
      const Sizes& shape = graph.value(input->value).shape;
      if (shape.empty() || !(shape[0] == batch)) continue;
      throw Error(
          ErrorKind::unsupported_operator,
          fmt::format("[runtime.batching] output '{}' is made of input '{}', whose batch is "
                      "fixed to {}, and other inputs are cut: loss_fn would get all of it "
                      "with the targets of each micro-batch; expected results that are cut "
                      "as targets are; {}, or, if that is no batch, pass "
                      "kerf.Pipeline(..., batch_independent=True)",
                      output.path, input->path, batch.str(), kOne));
    }
  }
}

ValueId find_loss(const Graph& graph, const std::string& path) {
  for (const GraphOutput& output : graph.outputs()) {
    const auto* const id = output.leaf.find<ValueId>();
    if (output.path == path && id != nullptr) return *id;
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[runtime.batching] the model has no output '{}'; expected the one that "
                          "is its loss, of {}; name it with loss=, or give loss_fn=",
                          path, output_names(graph)));
}

}  // namespace

BatchVerdict check_samples_are_separate(const Graph& graph,
                                        const std::map<std::string, std::string>& reduce,
                                        bool batch_independent) {
  return judge(graph, analyse_batch(graph, blocks_are(batch_independent)), judged(reduce),
               batch_independent);
}

std::vector<LossTarget> reduced_targets(const Graph& graph,
                                        const std::map<std::string, std::string>& reduce) {
  const BatchFlow flow = analyse_batch(graph);
  std::vector<LossTarget> out;
  for (const GraphOutput& output : graph.outputs()) {
    const auto said = reduce.find(output.path);
    const auto* const id = output.leaf.find<ValueId>();
    if (id == nullptr || said == reduce.end() || said->second != "mean") continue;
    const LossShape shape = loss_shape(graph, flow, *id);
    if (shape.kind != LossKind::mean) continue;
    const auto found = loss_targets(graph, flow, shape).value_or(std::vector<LossTarget>{});
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

TrainedBatch check_trained_batch(const Graph& graph, const std::string& loss,
                                 const std::string& reduction, bool weighted,
                                 bool batch_independent) {
  const BatchFlow flow = analyse_batch(graph, blocks_are(batch_independent));
  if (loss.empty()) {
    if (!batch_independent) refuse_whole_results(graph, flow);
    return {judge(graph, flow, {}, batch_independent), {}};
  }
  const ValueId value = find_loss(graph, loss);
  JudgedOutputs which;  // the loss alone is used
  for (const GraphOutput& output : graph.outputs()) {
    if (output.path != loss) which.left_out.insert(output.path);
  }
  if (weighted) which.weighed.insert(loss);
  TrainedBatch out{judge(graph, flow, which, batch_independent), {}};
  if (batch_independent || weighted) return out;
  const LossShape shape = loss_shape(graph, flow, value);
  const auto targets = loss_targets(graph, flow, shape);
  if (reduction == "mean" && targets && !shape.counting.empty()) {
    out.targets = *targets;
    return out;
  }
  if (reduction == "mean" && shape.kind == LossKind::mean && !targets) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[runtime.batching] output '{}' is a mean over targets that the model "
                            "makes itself, and {} may ignore some of them; expected targets that "
                            "are inputs, which every call looks at; say what micro-batches count "
                            "with weight=, or, if none is ever ignored, pass "
                            "kerf.Pipeline(..., batch_independent=True)",
                            loss, graph.describe(shape.counting[0])));
  }
  if (shape.kind == LossKind::unknown) {
    refuse(fmt::format("output '{}' is not known to be a mean or a sum over samples", loss),
           fmt::format("{}, or, if it is one, say so: kerf.Pipeline(..., batch_independent=True)",
                       kOne));
  }
  check_reduction_fits(graph, flow, loss, reduction, value);
  return out;
}

}  // namespace kerf
