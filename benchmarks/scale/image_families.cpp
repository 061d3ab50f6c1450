// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Models of images: unet and inception.
#include <fmt/format.h>

#include "benchmarks/scale/recipes.h"

namespace kerf::families {
namespace {

constexpr std::int64_t kChannels = 64;
constexpr std::int64_t kSide = 16;

Shape image(std::int64_t channels, std::int64_t side) {
  return {Expr::batch(), channels, side, side};
}

std::int64_t channels_of(const ModelBuilder& model, ValueId x) {
  return model.shape(x)[1].constant();
}

ValueId convolve(ModelBuilder& model, std::string_view name, ValueId x, std::int64_t channels,
                 std::int64_t kernel, std::int64_t side) {
  const std::int64_t in = channels_of(model, x);
  const ValueId weight =
      model.weight(fmt::format("{}.weight", name), {channels, in, kernel, kernel});
  const double flops = 2.0 * static_cast<double>(kExampleBatch * side * side * channels) *
                       static_cast<double>(in * kernel * kernel);
  return model.add("aten.conv2d.default", {x, weight}, image(channels, side), flops);
}

ValueId active(ModelBuilder& model, ValueId x) {
  return model.elementwise("aten.relu.default", {x});
}

ValueId join(ModelBuilder& model, const Inputs& parts) {
  Shape all = model.shape(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) all[1] = all[1] + model.shape(parts[i])[1];
  return model.add("aten.cat.default", parts, all, 0);
}

struct Level {
  std::int64_t channels;
  std::int64_t side;
};

Level level(int depth) { return {kChannels << depth, kSide >> depth}; }

// 7 nodes; 2 when tiny.
ValueId residual_block(ModelBuilder& model, const std::string& path, ValueId x, int depth,
                       bool tiny) {
  model.begin_block(static_cast<std::uint64_t>(1 + depth));
  model.enter(path, "ResidualBlock");
  const auto [channels, side] = level(depth);
  ValueId y = convolve(model, "conv1", x, channels, 3, side);
  if (!tiny) {
    y = model.elementwise("aten.group_norm.default", {y});
    y = model.elementwise("aten.silu.default", {y});
    y = convolve(model, "conv2", y, channels, 3, side);
    y = model.elementwise("aten.group_norm.default", {y});
    y = model.elementwise("aten.silu.default", {y});
  }
  return model.elementwise("aten.add.Tensor", {x, y});
}

// Going down every fourth block keeps its result for the way up, where the last comes first.
class UNet {
 public:
  explicit UNet(const Size& size)
      : tiny_(size.nodes < 120),
        levels_(tiny_ ? 1 : 4),
        model_("unet", size.seed, size.noise),
        // A block going down and one going up, with a fourth of what joins them.
        blocks_(num_parts(size.nodes, tiny_ ? 3 : 14,
                          static_cast<std::size_t>(levels_) * (tiny_ ? 5 : 14) +
                              (tiny_ ? 0 : static_cast<std::size_t>(levels_) / 2))) {}

  Model run() {
    ValueId x = model_.input("x", image(kChannels, kSide));
    for (int depth = 0; depth < levels_; ++depth) x = down(x, depth);
    model_.begin_block(100);
    model_.enter("middle", "Middle");
    x = active(model_, convolve(model_, "conv", x, channels_of(model_, x), 3,
                                model_.shape(x)[2].constant()));
    for (int depth = levels_; depth-- > 0;) x = up(x, depth);
    model_.begin_block(101);
    model_.enter("out", "Out");
    return model_.finish({convolve(model_, "conv", x, kChannels, 1, kSide)});
  }

 private:
  bool keeps(std::size_t block) const { return block % (tiny_ ? 1 : 4) == 0; }

  ValueId down(ValueId x, int depth) {
    for (std::size_t b = 0; b < blocks_; ++b) {
      x = residual_block(model_, fmt::format("down.{}.{}", depth, b), x, depth, tiny_);
      if (keeps(b)) skips_.push_back(x);
    }
    if (depth + 1 == levels_) return x;
    model_.enter(fmt::format("down.{}.shrink", depth), "Shrink");
    const auto [channels, side] = level(depth + 1);
    return convolve(model_, "conv", x, channels, 2, side);
  }

  ValueId up(ValueId x, int depth) {
    const auto [channels, side] = level(depth);
    if (depth + 1 < levels_) {
      model_.enter(fmt::format("up.{}.grow", depth), "Grow");
      x = convolve(model_, "conv", x, channels, 2, side);
    }
    for (std::size_t b = blocks_; b-- > 0;) {
      if (keeps(b)) x = merge(x, fmt::format("up.{}.{}.merge", depth, b), channels, side);
      x = residual_block(model_, fmt::format("up.{}.{}", depth, b), x, depth, tiny_);
    }
    return x;
  }

  ValueId merge(ValueId x, const std::string& path, std::int64_t channels, std::int64_t side) {
    model_.enter(path, "Merge");
    if (tiny_) {
      x = model_.elementwise("aten.add.Tensor", {x, skips_.back()});
    } else {
      x = convolve(model_, "conv", join(model_, {x, skips_.back()}), channels, 1, side);
    }
    skips_.pop_back();
    return x;
  }

  bool tiny_;
  int levels_;
  ModelBuilder model_;
  std::size_t blocks_;  // a level, each way
  Inputs skips_;
};

ValueId conv_relu(ModelBuilder& model, std::string_view name, ValueId x, std::int64_t channels,
                  std::int64_t kernel) {
  return active(model, convolve(model, name, x, channels, kernel, kSide));
}

// 14 nodes: four branches of very unlike cost.
ValueId inception_module(ModelBuilder& model, const std::string& path, ValueId x) {
  model.begin_block(1);
  model.enter(path + ".branch1", "Branch");
  const ValueId one = conv_relu(model, "conv", x, 64, 1);
  model.enter(path + ".branch3", "Branch");
  const ValueId three = conv_relu(model, "conv", conv_relu(model, "reduce", x, 96, 1), 128, 3);
  model.enter(path + ".branch5", "Branch");
  const ValueId five = conv_relu(model, "conv", conv_relu(model, "reduce", x, 16, 1), 32, 5);
  model.enter(path + ".pool", "Branch");
  const ValueId pooled = model.elementwise("aten.max_pool2d.default", {x});
  const ValueId pool = conv_relu(model, "conv", pooled, 32, 1);
  return join(model, {one, three, five, pool});
}

// 5 nodes.
ValueId tiny_module(ModelBuilder& model, const std::string& path, ValueId x) {
  model.begin_block(1);
  model.enter(path, "Module");
  const ValueId one = convolve(model, "conv1", x, 64, 1, kSide);
  const ValueId three = convolve(model, "conv3", x, 128, 3, kSide);
  const ValueId five = convolve(model, "conv5", x, 32, 5, kSide);
  const ValueId pooled = model.elementwise("aten.max_pool2d.default", {x});
  return join(model, {one, three, five, pooled});
}

}  // namespace

Model make_unet(const Size& size) { return UNet(size).run(); }

Model make_inception(const Size& size) {
  const bool tiny = size.nodes < 40;
  ModelBuilder model("inception", size.seed, size.noise);
  model.enter("stem", "Conv");
  ValueId x = convolve(model, "conv", model.input("x", image(3, kSide)), 256, 3, kSide);
  const std::size_t modules = num_parts(size.nodes, 1, tiny ? 5 : 14);
  for (std::size_t m = 0; m < modules; ++m) {
    const std::string path = fmt::format("modules.{}", m);
    x = tiny ? tiny_module(model, path, x) : inception_module(model, path, x);
  }
  return model.finish({x});
}

}  // namespace kerf::families
