// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problems that publications measured on: t5, t5_3b, tile.
#include <fmt/format.h>

#include <cmath>

#include "benchmarks/scale/recipes.h"

namespace kerf::families {
namespace {

constexpr double kMillisecond = 1e6;

// ---- t5: 24 + 24 blocks whose time is spread at random over a third of their nodes --------------

constexpr std::size_t kT5Blocks = 24;
constexpr std::size_t kT5Ends = 6;
constexpr std::int64_t kT5Width = 256;
constexpr double kTimedShare = 0.35;

class T5 {
 public:
  explicit T5(const Size& size) : model_("t5", size.seed, size.noise) {
    const std::size_t inside = size.nodes > kT5Ends + 2 ? size.nodes - kT5Ends : 2;
    blocks_ = std::clamp<std::size_t>(inside / 6, 1, kT5Blocks);
    each_ = inside / (2 * blocks_);
  }

  Model run() {
    const Shape tokens{Expr::batch(), 32, kT5Width};  // 256 KiB: 22 microseconds at 12 GB/s
    ValueId x = model_.input("source", tokens);
    ValueId y = model_.input("target", tokens);
    x = end("encoder.embed", x, 0.2);
    x = end("encoder.position", x, 0.2);
    for (std::size_t b = 0; b < blocks_; ++b) x = block(fmt::format("encoder.{}", b), x, {}, 10);
    x = end("encoder.norm", x, 0.2);
    y = end("decoder.embed", y, 0.2);
    for (std::size_t b = 0; b < blocks_; ++b) y = block(fmt::format("decoder.{}", b), y, x, 1.5);
    y = end("decoder.norm", y, 0.2);
    return model_.finish({end("head", y, 2.2)});
  }

 private:
  ValueId end(const std::string& path, ValueId x, double milliseconds) {
    model_.enter(path, "End");
    return node({x}, milliseconds);
  }

  ValueId node(Inputs inputs, double milliseconds) {
    const Shape shape = model_.shape(inputs[0]);
    if (milliseconds > 0) inputs.push_back(model_.weight(next_weight(), {kT5Width, kT5Width}));
    return model_.add_timed(milliseconds > 0 ? "aten.linear.default" : "aten.add.Tensor", inputs,
                            shape, Nanoseconds{milliseconds * kMillisecond});
  }

  std::string next_weight() { return fmt::format("weight{}", weights_++); }

  // A chain with two residual edges; a decoder block reads the encoder's result halfway.
  ValueId block(const std::string& path, ValueId x, ValueId memory, double milliseconds) {
    model_.enter(path, memory.valid() ? "DecoderBlock" : "EncoderBlock");
    const std::vector<double> times = spread(milliseconds);
    ValueId start = x;
    for (std::size_t n = 0; n < each_; ++n) {
      Inputs inputs{x};
      const bool half = n == each_ / 2;
      if (half && memory.valid()) inputs.push_back(memory);
      const bool joins = half || n + 1 == each_;
      if (joins && start != x) inputs.push_back(start);
      x = node(std::move(inputs), times[n]);
      if (joins) start = x;
    }
    return x;
  }

  std::vector<double> spread(double milliseconds) {
    std::vector<double> times(each_);
    const auto timed = std::max<std::size_t>(
        1, static_cast<std::size_t>(kTimedShare * static_cast<double>(each_) + 0.5));
    double sum = 0;
    for (std::size_t left = timed; left > 0;) {
      double& time = times[model_.rng().below(each_)];
      if (time > 0) continue;
      time = 0.05 + model_.rng().uniform();
      sum += time;
      --left;
    }
    for (double& time : times) time *= milliseconds / sum;
    return times;
  }

  ModelBuilder model_;
  std::size_t blocks_ = 0;  // of the encoder; the decoder has as many
  std::size_t each_ = 0;    // nodes of a block
  std::size_t weights_ = 0;
};

// ---- t5_3b: time sits in the encoder, memory in the decoder
// --------------------------------------

constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kInner = 4096;    // of attention: 32 heads of 128
constexpr std::int64_t kHidden = 17049;  // 2,884 million parameters in 48 blocks
constexpr std::int64_t kTokens = 16;     // short, so that activations are small against weights
constexpr std::int64_t kTokensOut = 4;
constexpr std::int64_t kAttention = 4 * kWidth * kInner;
constexpr std::int64_t kFeedForward = 2 * kWidth * kHidden;
constexpr double kEncoderBlock = 12;  // milliseconds
constexpr double kDecoderBlock = 2;
constexpr std::size_t kBlockNodes = 31;  // of an encoder and a decoder block together

// A block's parameters are parts of one tensor, as trainers that shard keep them: it holds a block
// together. (The vocabulary is left out: both ends would be on one device or the other.) Eight
// devices hold three encoder and three decoder blocks each, level in time and memory; with 5 %
// more memory than an eighth each, runs of consecutive blocks do not fit: 7 encoder or 5 decoder
// blocks are all that a device takes, and 24 + 24 want a ninth.
class T5Large {
 public:
  explicit T5Large(const Size& size) : model_("t5_3b", size.seed, size.noise) {
    whole_ = size.nodes < 4 * kBlockNodes;
    blocks_ = std::clamp<std::size_t>(size.nodes / (whole_ ? 2 : kBlockNodes), 1, kT5Blocks);
  }

  Model run() {
    ValueId x = model_.input("source", {Expr::batch(), kTokens, kWidth});
    ValueId y = model_.input("target", {Expr::batch(), kTokensOut, kWidth});
    for (std::size_t b = 0; b < blocks_; ++b) x = encoder_block(fmt::format("encoder.{}", b), x);
    for (std::size_t b = 0; b < blocks_; ++b) y = decoder_block(fmt::format("decoder.{}", b), y, x);
    return model_.finish({y});
  }

 private:
  ValueId encoder_block(const std::string& path, ValueId x) {
    start(path, "EncoderBlock", kAttention + kFeedForward, kEncoderBlock);
    if (whole_) return whole(x, {}, kAttention + kFeedForward);
    x = attention("attention", x, {}, 0.4);
    return feed_forward(x, 0.6);
  }

  ValueId decoder_block(const std::string& path, ValueId y, ValueId memory) {
    start(path, "DecoderBlock", 2 * kAttention + kFeedForward, kDecoderBlock);
    if (whole_) return whole(y, memory, 2 * kAttention + kFeedForward);
    y = attention("attention", y, {}, 0.3);
    y = attention("cross", y, memory, 0.3);
    return feed_forward(y, 0.4);
  }

  void start(const std::string& path, std::string_view class_name, std::int64_t parameters,
             double milliseconds) {
    model_.enter(path, class_name);
    model_.begin_flat_weight(parameters);
    block_ = milliseconds;
  }

  // A block as one node, for problems small enough to be solved exactly.
  ValueId whole(ValueId x, ValueId memory, std::int64_t parameters) {
    Inputs inputs{x};
    if (memory.valid()) inputs.push_back(memory);
    inputs.push_back(model_.flat_weight("weight", {parameters}));
    return node("aten.linear.default", inputs, Shape(model_.shape(x)), 1);
  }

  ValueId node(std::string_view op, const Inputs& inputs, const Shape& shape, double share) {
    return model_.add_timed(op, inputs, shape, Nanoseconds{share * block_ * kMillisecond});
  }

  ValueId project(const std::string& name, ValueId x, std::int64_t in, std::int64_t out,
                  double share) {
    Shape shape = model_.shape(x);
    shape.back() = out;
    const ValueId weight = model_.flat_weight(name + ".weight", {out, in});
    return node("aten.linear.default", {x, weight}, shape, share);
  }

  // 7 nodes.
  ValueId attention(const std::string& name, ValueId x, ValueId memory, double share) {
    const Shape shape = model_.shape(x);
    const ValueId normed = node("aten.rms_norm.default", {x}, shape, 0.02 * share);
    const ValueId source = memory.valid() ? memory : normed;
    const ValueId query = project(name + ".q", normed, kWidth, kInner, 0.2 * share);
    const ValueId key = project(name + ".k", source, kWidth, kInner, 0.2 * share);
    const ValueId value = project(name + ".v", source, kWidth, kInner, 0.2 * share);
    const ValueId mixed = node("aten.scaled_dot_product_attention.default", {query, key, value},
                               Shape(model_.shape(query)), 0.16 * share);
    const ValueId out = project(name + ".o", mixed, kInner, kWidth, 0.2 * share);
    return node("aten.add.Tensor", {x, out}, shape, 0.02 * share);
  }

  // 5 nodes.
  ValueId feed_forward(ValueId x, double share) {
    const Shape shape = model_.shape(x);
    const ValueId normed = node("aten.rms_norm.default", {x}, shape, 0.02 * share);
    const ValueId up = project("mlp.up", normed, kWidth, kHidden, 0.46 * share);
    const ValueId active = node("aten.relu.default", {up}, Shape(model_.shape(up)), 0.04 * share);
    const ValueId down = project("mlp.down", active, kHidden, kWidth, 0.46 * share);
    return node("aten.add.Tensor", {x, down}, shape, 0.02 * share);
  }

  ModelBuilder model_;
  bool whole_ = false;
  std::size_t blocks_ = 0;
  double block_ = 0;  // milliseconds of the block in hand
};

// ---- tile: D := alpha A B C + beta D as its loops run, one node an operation
// ---------------------

struct TileSize {
  std::size_t i, j, k, l;

  std::size_t num_nodes() const {
    return i * k + k * j + j * l + i * l + 3 * i * j * k + i * l + 2 * i * l * j;
  }
};

TileSize tile_size(double scale) {
  const auto scaled = [&](double extent) {
    return static_cast<std::size_t>(std::max(1.0, std::round(extent * scale)));
  };
  return {scaled(10), scaled(20), scaled(30), scaled(40)};
}

// The largest nest of these proportions with at most `nodes` nodes, or the smallest there is.
TileSize fitting_tile(std::size_t nodes) {
  double low = 0.01;
  double high = 100;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (tile_size(middle).num_nodes() <= nodes ? low : high) = middle;
  }
  return tile_size(low);
}

class Tile {
 public:
  explicit Tile(const Size& size)
      : n_(fitting_tile(size.nodes)), model_("tile", size.seed, size.noise, 0) {}

  Model run() {
    Elements a = matrix(n_.i * n_.k, n_.j);
    Elements b = matrix(n_.k * n_.j, n_.i);
    Elements c = matrix(n_.j * n_.l, n_.i);
    Elements d = matrix(n_.i * n_.l, 1);
    Elements products = first_product(std::move(a), std::move(b));
    return model_.finish(second_product(std::move(products), std::move(c), std::move(d)));
  }

 private:
  // A number that several nodes use, each its own copy: what the literature counts are edges, and
  // an edge is then a tensor.
  class Element {
   public:
    explicit Element(Inputs copies) : copies_(std::move(copies)) {}
    ValueId take() { return copies_[next_++]; }

   private:
    Inputs copies_;
    std::size_t next_ = 0;
  };
  using Elements = std::vector<Element>;

  Element node(std::string_view op, const Inputs& inputs, std::size_t users) {
    Inputs copies{model_.add_timed(op, inputs, {1}, Nanoseconds{1000})};
    while (copies.size() < users) copies.push_back(model_.another_result());
    return Element(std::move(copies));
  }

  Elements matrix(std::size_t elements, std::size_t users) {
    Elements out;
    for (std::size_t e = 0; e < elements; ++e) out.push_back(node("aten.full.default", {}, users));
    return out;
  }

  Elements first_product(Elements a, Elements b) {
    Elements products;
    for (std::size_t i = 0; i < n_.i; ++i) {
      for (std::size_t j = 0; j < n_.j; ++j) {
        Element sum({});
        for (std::size_t k = 0; k < n_.k; ++k) {
          Element scaled = node("aten.mul.Scalar", {a[i * n_.k + k].take()}, 1);
          Element product = node("aten.mul.Tensor", {scaled.take(), b[k * n_.j + j].take()}, 1);
          Inputs terms{product.take()};
          if (k > 0) terms.insert(terms.begin(), sum.take());
          sum = node("aten.add.Tensor", terms, k + 1 < n_.k ? 1 : n_.l);
        }
        products.push_back(std::move(sum));
      }
    }
    return products;
  }

  Inputs second_product(Elements left, Elements c, Elements d) {
    Inputs sums;
    for (std::size_t i = 0; i < n_.i; ++i) {
      for (std::size_t l = 0; l < n_.l; ++l) {
        Element sum = node("aten.mul.Scalar", {d[i * n_.l + l].take()}, 1);
        for (std::size_t j = 0; j < n_.j; ++j) {
          Element product =
              node("aten.mul.Tensor", {left[i * n_.j + j].take(), c[j * n_.l + l].take()}, 1);
          sum = node("aten.add.Tensor", {sum.take(), product.take()}, 1);
        }
        sums.push_back(sum.take());
      }
    }
    return sums;
  }

  TileSize n_;
  ModelBuilder model_;
};

}  // namespace

Model make_t5(const Size& size) { return T5(size).run(); }
Model make_t5_3b(const Size& size) { return T5Large(size).run(); }
Model make_tile(const Size& size) { return Tile(size).run(); }

}  // namespace kerf::families
