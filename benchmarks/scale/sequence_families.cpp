// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Models of sequences: chain, transformer, encoder_decoder, mixture_of_experts.
#include <fmt/format.h>

#include "benchmarks/scale/recipes.h"

namespace kerf::families {
namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kHidden = 1024;
constexpr std::int64_t kHeads = 8;
constexpr std::int64_t kTokens = 128;
constexpr std::int64_t kTokensOut = 32;  // a decoder's are fewer

Shape token_shape(std::int64_t tokens, std::int64_t width = kWidth) {
  return {Expr::batch(), tokens, width};
}

ValueId norm(ModelBuilder& model, std::string_view name, ValueId x) {
  const ValueId scale = model.weight(fmt::format("{}.weight", name), {kWidth});
  return model.add("aten.layer_norm.default", {x, scale}, Shape(model.shape(x)),
                   8.0 * static_cast<double>(model.elements(x)));
}

ValueId residual(ModelBuilder& model, ValueId x, ValueId y) {
  return model.elementwise("aten.add.Tensor", {x, y});
}

ValueId attend(ModelBuilder& model, ValueId query, ValueId key, ValueId value) {
  const double tokens = static_cast<double>(model.elements(key)) / (kWidth * kExampleBatch);
  const double flops = 4.0 * static_cast<double>(model.elements(query)) * tokens;
  return model.add("aten.scaled_dot_product_attention.default", {query, key, value},
                   Shape(model.shape(query)), flops);
}

ValueId split_heads(ModelBuilder& model, ValueId x) {
  const Shape flat = model.shape(x);
  return model.view("aten.view.default", x, {flat[0], flat[1], kHeads, kWidth / kHeads});
}

// 11 nodes: normed `x` asks, `memory` (or x itself) answers.
ValueId attention(ModelBuilder& model, const std::string& path, ValueId x, ValueId memory = {}) {
  model.enter(path, "Attention");
  const ValueId normed = norm(model, "norm", x);
  const ValueId source = memory.valid() ? memory : normed;
  const ValueId query = model.linear("q", normed, kWidth, kWidth);
  const ValueId key = model.linear("k", source, kWidth, kWidth);
  const ValueId value = model.linear("v", source, kWidth, kWidth);
  const ValueId heads =
      attend(model, split_heads(model, query), split_heads(model, key), split_heads(model, value));
  const ValueId merged = model.view("aten.view.default", heads, Shape(model.shape(x)));
  const ValueId out = model.linear("o", merged, kWidth, kWidth);
  return residual(model, x, out);
}

// 7 nodes.
ValueId gated_mlp(ModelBuilder& model, const std::string& path, ValueId x) {
  model.enter(path, "MLP");
  const ValueId normed = norm(model, "norm", x);
  const ValueId gate = model.linear("gate", normed, kWidth, kHidden);
  const ValueId active = model.elementwise("aten.silu.default", {gate});
  const ValueId up = model.linear("up", normed, kWidth, kHidden);
  const ValueId product = model.elementwise("aten.mul.Tensor", {active, up});
  const ValueId down = model.linear("down", product, kHidden, kWidth);
  return residual(model, x, down);
}

// 18 nodes; 29 with cross-attention.
ValueId block(ModelBuilder& model, const std::string& path, ValueId x, ValueId memory = {}) {
  model.begin_block(memory.valid() ? 2 : 1);
  x = attention(model, path + ".attention", x);
  if (memory.valid()) x = attention(model, path + ".cross", x, memory);
  return gated_mlp(model, path + ".mlp", x);
}

// The same in 3 nodes (4 with memory), for problems small enough to be solved exactly.
ValueId tiny_block(ModelBuilder& model, const std::string& path, ValueId x, ValueId memory = {}) {
  model.begin_block(memory.valid() ? 2 : 1);
  model.enter(path, "Block");
  ValueId y = model.linear("up", x, kWidth, kWidth);
  if (memory.valid()) y = attend(model, y, memory, memory);
  y = memory.valid() ? y : model.elementwise("aten.gelu.default", {y});
  if (memory.valid()) y = model.linear("down", y, kWidth, kWidth);
  return residual(model, x, y);
}

ValueId expert(ModelBuilder& model, const std::string& path, ValueId x, ValueId gate, bool tiny) {
  model.enter(path, "Expert");
  ValueId y = x;
  if (!tiny) {
    y = model.add("aten.index_select.default", {x, gate}, token_shape(kTokens / 4), 0);
    y = model.linear("up", y, kWidth, kHidden);
    y = model.elementwise("aten.gelu.default", {y});
    y = model.linear("down", y, kHidden, kWidth);
  } else {
    y = model.linear("up", y, kWidth, kWidth);
  }
  return model.elementwise("aten.mul.Tensor", {y, gate});
}

// Router (2), experts (5 each; 2 when tiny), combination (2).
ValueId expert_layer(ModelBuilder& model, const std::string& path, ValueId x, int experts,
                     bool tiny) {
  model.enter(path, "Experts");
  const ValueId scores = model.linear("router", x, kWidth, experts);
  const ValueId gate = model.elementwise("aten.softmax.int", {scores});
  Inputs results;
  for (int e = 0; e < experts; ++e) {
    results.push_back(expert(model, fmt::format("{}.experts.{}", path, e), x, gate, tiny));
  }
  Shape all = model.shape(results[0]);
  all[1] = all[1] * Expr(experts);
  model.enter(path + ".combine", "Combine");
  const ValueId joined = model.add("aten.cat.default", results, all, 0);
  const ValueId sum = model.add("aten.index_add.default", {joined, gate}, token_shape(kTokens),
                                static_cast<double>(model.elements(joined)));
  return residual(model, x, sum);
}

}  // namespace

// A linear layer and a relu in turn; widths repeat with a period of 16 layers.
Model make_chain(const Size& size) {
  ModelBuilder model("chain", size.seed, size.noise);
  std::int64_t widths[16];
  for (std::int64_t& width : widths) {
    width = 128 * static_cast<std::int64_t>(1 + model.rng().below(4));
  }
  std::int64_t width = widths[0];
  ValueId x = model.input("x", token_shape(kTokens, width));
  for (std::size_t layer = 0; model.num_nodes() < size.nodes; ++layer) {
    if (layer % 16 == 0) model.begin_block(1);
    model.enter(fmt::format("layers.{}", layer), "Layer");
    const std::int64_t next = widths[(layer + 1) % 16];
    x = model.linear("linear", x, width, next);
    width = next;
    if (model.num_nodes() < size.nodes) x = model.elementwise("aten.relu.default", {x});
  }
  return model.finish({x});
}

Model make_transformer(const Size& size) {
  const bool tiny = size.nodes < 40;
  ModelBuilder model("transformer", size.seed, size.noise);
  ValueId x = model.input("x", token_shape(kTokens));
  model.enter("embed", "Linear");
  x = model.linear("proj", x, kWidth, kWidth);
  const std::size_t blocks = num_parts(size.nodes, 2, tiny ? 3 : 18);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::string path = fmt::format("layers.{}", b);
    x = tiny ? tiny_block(model, path, x) : block(model, path, x);
  }
  model.begin_block(0);
  model.enter("head", "Linear");
  return model.finish({model.linear("proj", x, kWidth, kWidth)});
}

// Encoder and decoder have as many blocks; the encoder's result feeds every decoder block.
Model make_encoder_decoder(const Size& size) {
  const bool tiny = size.nodes < 60;
  ModelBuilder model("encoder_decoder", size.seed, size.noise);
  ValueId x = model.input("source", token_shape(kTokens));
  ValueId y = model.input("target", token_shape(kTokensOut));
  const std::size_t blocks = num_parts(size.nodes, 1, tiny ? 7 : 47);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::string path = fmt::format("encoder.{}", b);
    x = tiny ? tiny_block(model, path, x) : block(model, path, x);
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::string path = fmt::format("decoder.{}", b);
    y = tiny ? tiny_block(model, path, y, x) : block(model, path, y, x);
  }
  model.begin_block(0);
  model.enter("head", "Linear");
  return model.finish({model.linear("proj", y, kWidth, kWidth)});
}

Model make_mixture_of_experts(const Size& size) {
  const bool tiny = size.nodes < 120;
  const int experts = tiny ? 3 : 8;
  ModelBuilder model("mixture_of_experts", size.seed, size.noise);
  ValueId x = model.input("x", token_shape(kTokens));
  const std::size_t blocks = num_parts(size.nodes, 0, tiny ? 11 : 56);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::string path = fmt::format("layers.{}", b);
    model.begin_block(1);
    if (!tiny) x = attention(model, path + ".attention", x);
    x = expert_layer(model, path + ".mlp", x, experts, tiny);
  }
  return model.finish({x});
}

}  // namespace kerf::families
