// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/input_memory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kerf/base/error.h"
#include "kerf/graph/sharing.h"
#include "kerf/libtorch/overlap.h"
#include "kerf/libtorch/sharing_watch.h"

namespace kerf {
namespace {

[[noreturn]] void refuse(const std::string& found, std::string_view expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[libtorch.pipeline] {}; expected {}", found, expected));
}

// The first node that writes this memory, for messages.
std::string describe_write(const Graph& graph, StorageId storage) {
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    for (const StorageId written : graph.writes(NodeId(n))) {
      if (written == storage) return graph.describe(NodeId(n));
    }
  }
  return "the model";
}

bool is_written(const Graph& graph, ValueId id) {
  const StorageId storage = graph.value(id).storage;
  return storage.valid() && graph.is_written(storage);
}

}  // namespace

InputMemory::InputMemory(const Graph& graph, bool in_order)
    : graph_(graph), in_order_(in_order), dims_(input_dims(graph)) {
  const std::vector<NodeId> reached =
      reached_by_strides(graph.data(), nodes_that_strides_decide(graph.data()));
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueId id = graph.inputs()[i].value;
    if (is_written(graph, id)) written_.push_back(i);
    if (reached[id.index()].valid()) decided_.push_back({i, reached[id.index()]});
  }
  for (std::size_t w = 0; w < graph.weights().size(); ++w) {
    if (is_written(graph, graph.weights()[w].value)) written_weights_.push_back(w);
  }
}

StorageId InputMemory::storage_of_input(std::size_t i) const {
  return graph_.value(graph_.inputs()[i].value).storage;
}

void InputMemory::check(const std::vector<at::Tensor>& inputs,
                        const std::vector<at::Tensor>& weights, std::int64_t batch,
                        bool parts) const {
  if (!looks(parts)) return;
  if (parts) check_layouts(inputs, batch);
  for (const std::size_t i : written_) {
    for (std::size_t j = 0; j < inputs.size(); ++j) {
      if (parts) check_rows(inputs, i, j);
      const bool known = storage_of_input(i) == storage_of_input(j);
      if (!known && !in_order_) {
        check_apart(inputs[i], i, inputs[j], graph_.inputs()[j].value, parts);
      }
    }
    for (std::size_t w = 0; w < weights.size(); ++w) {
      check_apart(inputs[i], i, weights[w], graph_.weights()[w].value, parts);
    }
  }
  for (const std::size_t w : written_weights_) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check_apart(inputs[i], i, weights[w], graph_.weights()[w].value, parts);
    }
  }
}

// Micro-batches share memory as the whole batch would, if that is laid out as in the trace.
void InputMemory::check_layouts(const std::vector<at::Tensor>& inputs, std::int64_t batch) const {
  for (const auto& [i, node] : decided_) {
    const Value& value = graph_.value(graph_.inputs()[i].value);
    if (is_laid_out_as_traced(inputs[i], value, batch)) continue;
    const bool dense = inputs[i].is_non_overlapping_and_dense();
    std::vector<std::int64_t> traced;
    for (const Expr& stride : value.strides) traced.push_back(stride.eval(batch));
    refuse(
        fmt::format("input '{}' has strides [{}] and was traced with [{}]; whether {} copies "
                    "depends on them, and a later write shows it",
                    graph_.inputs()[i].path, fmt::join(inputs[i].strides(), ", "),
                    fmt::join(traced, ", "), graph_.describe(node)),
        fmt::format("strides like the traced ones where a batch is cut; pass a tensor with those, "
                    "x.contiguous() where they are the usual ones, {}or run with "
                    "n_microbatches=1",
                    // A trace closes the gaps of its example.
                    dense ? "trace with one like this, " : ""));
  }
}

// Samples of two micro-batches that have memory in common see each other's writes.
void InputMemory::check_rows(const std::vector<at::Tensor>& inputs, std::size_t i,
                             std::size_t j) const {
  if (!may_share_across(inputs[i], dims_[i].dim, inputs[j], dims_[j].dim)) return;
  const std::string& path = graph_.inputs()[i].path;
  const std::string with = i == j
                               ? "samples of input '" + path + "'"
                               : fmt::format("inputs '{}' and '{}'", path, graph_.inputs()[j].path);
  refuse(fmt::format("{} share memory from one sample to another, and {} writes it; micro-batches "
                     "would see each other's writes",
                     with, describe_write(graph_, storage_of_input(i))),
         "samples with memory of their own; pass copies, x.clone(), or run with n_microbatches=1");
}

// Stages, and micro-batches, keep the order of those writes that the trace knows of.
void InputMemory::check_apart(const at::Tensor& a, std::size_t input, const at::Tensor& b,
                              ValueId other, bool parts) const {
  if (!b.defined() || !may_share_bytes(a, b)) return;
  const Value& value = graph_.value(other);
  const bool weight = value.origin == Origin::weight;
  const StorageId written = is_written(graph_, other) ? value.storage : storage_of_input(input);
  refuse(fmt::format("input '{}' and {} '{}' share memory, which they did not when the model was "
                     "traced, and {} writes it; {} would not keep the model's order",
                     graph_.inputs()[input].path, weight ? "weight" : "input",
                     weight ? graph_.weights()[value.position].names[0]
                            : graph_.inputs()[value.position].path,
                     describe_write(graph_, written), parts ? "micro-batches" : "stages"),
         weight ? "an input with memory of its own; pass a copy, x.clone()"
                : "inputs with memory of their own; pass copies, x.clone(), or trace with inputs "
                  "like these");
}

}  // namespace kerf
