// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs a graph on toy numbers, whole or cut into stages, to see whether a cut changes the result.
//
// The rules of one operator are the least that its record promises, and as sensitive as possible:
//   - it reads every element of every input, and everything it makes depends on all of them;
//   - each element of a written value changes;
//   - an output in the storage of an input is a view of that input's memory;
//   - an output of an input marked may-alias is a view of it or a copy: a coin per node decides,
//     whatever the trace saw;
//   - other outputs are new memory.
//
// The rules of a cut are those of the runtime:
//   - a stage sees a value of another stage by reference (same device) or as a copy (another one),
//     taken when the other stage ends or when this one starts: a coin decides each time;
//   - a stage that writes memory it received first clones it; all received values of one storage
//     become views of one clone;
//   - inputs and weights live where they are written; other stages may hold a copy made beforehand;
//   - results are taken when the stage that made them ends, or at the very end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/graph/graph.h"

namespace kerf::toy {

using Number = std::uint64_t;

struct Tensor {
  std::shared_ptr<std::vector<Number>> memory;
  std::vector<std::size_t> at;  // where its elements lie, in order

  Number get(std::size_t i) const { return (*memory)[at[i]]; }
  std::vector<Number> numbers() const {
    std::vector<Number> out;
    for (std::size_t i = 0; i < at.size(); ++i) out.push_back(get(i));
    return out;
  }
  Tensor copy() const {
    Tensor out{std::make_shared<std::vector<Number>>(numbers()), {}};
    for (std::size_t i = 0; i < at.size(); ++i) out.at.push_back(i);
    return out;
  }
};

using Frame = std::map<ValueId, Tensor>;  // scalars have one element

inline Number mix(Number a, Number b) {
  return Rng(a * 0x9e3779b97f4a7c15ULL ^ (b + 0x2545f4914f6cdd1dULL)).next();
}

// The elements of a value inside its storage, by its recorded layout.
inline std::vector<std::size_t> layout(const Value& value, std::int64_t batch) {
  std::vector<std::int64_t> out{value.offset.eval(batch) / element_size(value.dtype)};
  for (std::size_t d = 0; d < value.shape.size(); ++d) {
    std::vector<std::int64_t> next;
    for (const std::int64_t start : out) {
      for (std::int64_t i = 0; i < value.shape[d].eval(batch); ++i) {
        next.push_back(start + i * value.strides[d].eval(batch));
      }
    }
    out = std::move(next);
  }
  return {out.begin(), out.end()};
}

class Machine {
 public:
  // `coins` decides which may-alias results share memory; the same for runs to be compared.
  Machine(const Graph& graph, std::int64_t batch, std::uint64_t coins)
      : graph_(graph), batch_(batch), coins_(coins) {
    std::map<StorageId, std::shared_ptr<std::vector<Number>>> memory;
    for (std::size_t v = 0; v < graph.num_values(); ++v) {
      const Value& value = graph.value(ValueId(v));
      if (value.origin == Origin::node) continue;
      auto& block = memory[value.storage];
      if (!block) {
        block = std::make_shared<std::vector<Number>>();
        const auto bytes = graph.storage(value.storage).bytes.eval(batch);
        for (std::int64_t i = 0; i < bytes / 4; ++i)
          block->push_back(mix(v, static_cast<Number>(i)));
      }
      outside_[ValueId(v)] = {block, layout(value, batch)};
    }
  }

  const Frame& outside() const { return outside_; }
  Frame& outside() { return outside_; }

  void run_node(NodeId id, Frame& frame) const {
    const Node& node = graph_.node(id);
    Number digest = std::hash<std::string>{}(node.op);
    for (const ValueId input : graph_.inputs_of(id)) {
      for (const Number number : frame.at(input).numbers()) digest = mix(digest, number);
    }
    for (const ValueId written : node.written) {
      Tensor& target = frame.at(written);
      for (std::size_t i = 0; i < target.at.size(); ++i) {
        (*target.memory)[target.at[i]] = mix(mix(digest, 1), target.get(i) + i);
      }
    }
    for (std::size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId output = node.outputs[k];
      if (output.valid()) frame[output] = make_output(id, output, mix(digest, 100 + k), frame);
    }
  }

 private:
  Tensor make_output(NodeId id, ValueId output, Number seed, const Frame& frame) const {
    const Node& node = graph_.node(id);
    const Value& value = graph_.value(output);
    if (!node.may_alias.empty()) {
      const Tensor& source = frame.at(node.may_alias[0]);
      return mix(coins_, id.index()) % 2 == 0 ? source : source.copy();
    }
    const std::size_t count = value.scalar ? 1 : layout(value, batch_).size();
    for (const ValueId input : graph_.inputs_of(id)) {
      if (!value.scalar && graph_.value(input).storage == value.storage) {
        return view(value, graph_.value(input), frame.at(input));
      }
    }
    Tensor out{std::make_shared<std::vector<Number>>(), {}};
    for (std::size_t i = 0; i < count; ++i) {
      out.memory->push_back(mix(seed, i));
      out.at.push_back(i);
    }
    return out;
  }

  Tensor view(const Value& value, const Value& of, const Tensor& tensor) const {
    std::map<std::size_t, std::size_t> place;  // in the recorded storage -> in memory
    const auto recorded = layout(of, batch_);
    for (std::size_t i = 0; i < recorded.size(); ++i) place[recorded[i]] = tensor.at[i];
    Tensor out{tensor.memory, {}};
    for (const std::size_t at : layout(value, batch_)) out.at.push_back(place.at(at));
    return out;
  }

  const Graph& graph_;
  std::int64_t batch_;
  std::uint64_t coins_;
  Frame outside_;
};

// What a caller can see afterwards: results, and the inputs and weights as they were left.
using Observed = std::vector<std::vector<Number>>;

// Stages in an order in which they can run; within a stage, nodes in theirs.
using Stages = std::vector<std::vector<NodeId>>;

class StagedRun {
 public:
  StagedRun(const Graph& graph, Stages stages, std::int64_t batch, std::uint64_t coins,
            std::uint64_t seed)
      : graph_(graph),
        stages_(std::move(stages)),
        batch_(batch),
        rng_(seed),
        machine_(graph, batch, coins),
        frames_(stages_.size()),
        stage_of_(graph.num_nodes()) {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      for (const NodeId id : stages_[s]) stage_of_[id.index()] = s;
    }
    for (const auto& [id, tensor] : machine_.outside()) beforehand_[id] = tensor.copy();
  }

  Observed run() {
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      receive(s);
      for (const NodeId id : stages_[s]) machine_.run_node(id, frames_[s]);
      for (const auto& [id, tensor] : frames_[s]) {
        if (made_in(id, s)) at_end_of_stage_[id] = tensor.copy();
      }
    }
    return observe();
  }

 private:
  bool coin() { return stages_.size() > 1 && rng_.below(2) == 0; }
  bool made_in(ValueId id, std::size_t stage) const {
    const Value& value = graph_.value(id);
    return value.origin == Origin::node && stage_of_[value.producer.index()] == stage;
  }

  // Another stage's value, as it reaches us.
  Tensor fetch(ValueId id) {
    const Tensor& tensor = frames_[stage_of_[graph_.value(id).producer.index()]].at(id);
    if (coin()) return tensor;
    return coin() ? tensor.copy() : at_end_of_stage_.at(id).copy();
  }

  void receive(std::size_t s) {
    std::set<ValueId> needed;
    std::set<StorageId> written;
    for (const NodeId id : stages_[s]) {
      for (const ValueId input : graph_.inputs_of(id)) {
        if (!made_in(input, s)) needed.insert(input);
      }
      written.insert(graph_.writes(id).begin(), graph_.writes(id).end());
    }
    std::map<StorageId, std::shared_ptr<std::vector<Number>>> clones;
    for (const ValueId id : needed) {
      const Value& value = graph_.value(id);
      const bool is_written = !value.scalar && written.contains(value.storage);
      if (value.origin != Origin::node) {
        const bool elsewhere = !is_written && coin();
        frames_[s][id] = elsewhere ? beforehand_.at(id) : machine_.outside().at(id);
      } else {
        frames_[s][id] = is_written ? clone(id, clones[value.storage]) : fetch(id);
      }
    }
  }

  Tensor clone(ValueId id, std::shared_ptr<std::vector<Number>>& memory) {
    const Value& value = graph_.value(id);
    if (!memory) {
      const auto bytes = graph_.storage(value.storage).bytes.eval(batch_);
      memory = std::make_shared<std::vector<Number>>(static_cast<std::size_t>(bytes / 4));
    }
    Tensor out{memory, layout(value, batch_)};
    const Tensor received = fetch(id);
    for (std::size_t i = 0; i < out.at.size(); ++i) (*memory)[out.at[i]] = received.get(i);
    return out;
  }

  Observed observe() {
    Observed out;
    for (const GraphOutput& output : graph_.outputs()) {
      for_each_value(output.leaf, [&](ValueId id) {
        const Value& value = graph_.value(id);
        if (value.origin != Origin::node) return;  // seen below
        const Tensor& tensor = frames_[stage_of_[value.producer.index()]].at(id);
        out.push_back(coin() ? at_end_of_stage_.at(id).numbers() : tensor.numbers());
      });
    }
    for (const auto& [id, tensor] : machine_.outside()) out.push_back(tensor.numbers());
    return out;
  }

  const Graph& graph_;
  const Stages stages_;
  std::int64_t batch_;
  Rng rng_;
  Machine machine_;
  std::vector<Frame> frames_;
  std::vector<std::size_t> stage_of_;
  Frame beforehand_;
  Frame at_end_of_stage_;
};

// Nodes one after the other, in `order`.
inline Observed run_whole(const Graph& graph, const std::vector<NodeId>& order, std::int64_t batch,
                          std::uint64_t coins) {
  return StagedRun(graph, {order}, batch, coins, 0).run();
}

}  // namespace kerf::toy
