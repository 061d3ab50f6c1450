// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Conventions. A multiply-add is two flops. Products and convolutions are counted exactly from
// their shapes; element-wise operators at a fixed number of flops an element (an exponential is a
// polynomial of about ten); indexing and copies at none, by the bytes they move. Bytes assume that
// each tensor is read or written once, which blocked kernels nearly reach.
#include "kerf/profile/formula.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kerf/graph/arguments.h"

namespace kerf {
namespace {

// What the formulas see: argument positions of the operator's schema, sizes evaluated at the batch.
class Call {
 public:
  Call(const Graph& graph, NodeId id, std::int64_t batch)
      : graph_(graph), node_(graph.node(id)), id_(id), batch_(batch) {}

  const Node& node() const { return node_; }
  std::span<const ValueId> inputs() const { return graph_.inputs_of(id_); }
  const Value& value(ValueId id) const { return graph_.value(id); }

  // nullptr when the argument is absent.
  const Argument* argument(std::size_t position, std::string_view name = {}) const {
    return find_argument(node_, position, name);
  }
  std::vector<ValueId> tensors(std::size_t position, std::string_view name = {}) const {
    std::vector<ValueId> found;
    if (const Argument* given = argument(position, name)) {
      for_each_value(*given, [&](ValueId id) { found.push_back(id); });
    }
    return found;
  }
  // Empty when it is no tensor.
  std::vector<double> shape(std::size_t position, std::string_view name = {}) const {
    const std::vector<ValueId> found = tensors(position, name);
    return found.empty() ? std::vector<double>{} : shape(found.front());
  }
  std::vector<double> shape(ValueId id) const {
    std::vector<double> sizes;
    for (const Expr& size : value(id).shape) {
      sizes.push_back(static_cast<double>(size.eval(batch_)));
    }
    return sizes;
  }
  double elements(ValueId id) const {
    double product = 1;
    for (const double size : shape(id)) product *= size;
    return product;
  }
  double output_elements() const {
    double sum = 0;
    for (const ValueId id : node_.outputs) {
      if (id.valid() && !value(id).scalar) sum += elements(id);
    }
    return sum;
  }
  double input_elements() const {
    double sum = 0;
    for (const ValueId id : inputs()) {
      if (!value(id).scalar) sum += elements(id);
    }
    return sum;
  }
  Bytes output_bytes() const {
    Bytes sum;
    for (const ValueId id : node_.outputs) {
      if (id.valid() && !value(id).scalar) sum += value(id).bytes(batch_);
    }
    return sum;
  }
  Bytes bytes(ValueId id) const { return value(id).bytes(batch_); }
  Bytes touched() const { return bytes_touched(graph_, id_, batch_); }

 private:
  const Graph& graph_;
  const Node& node_;
  NodeId id_;
  std::int64_t batch_;
};

double product(const std::vector<double>& sizes) {
  double result = 1;
  for (const double size : sizes) result *= size;
  return result;
}

using Formula = std::optional<OpCost> (*)(const Call&);

std::optional<OpCost> matrix(const Call& call, double macs) {
  return OpCost{Unit::matrix, 2 * macs, macs, call.touched()};
}

// Every output element is a dot product along the last dimension of one argument.
template <std::size_t Left>
std::optional<OpCost> product_formula(const Call& call) {
  const std::vector<double> left = call.shape(Left);
  if (left.empty()) return std::nullopt;
  return matrix(call, call.output_elements() * left.back());
}

std::optional<OpCost> outer(const Call& call) { return matrix(call, call.output_elements()); }

// weight [out, in / groups, k...]: each output element takes one filter.
std::optional<OpCost> convolution(const Call& call) {
  const std::vector<double> weight = call.shape(1);
  if (weight.empty() || weight[0] == 0) return std::nullopt;
  return matrix(call, call.output_elements() * product(weight) / weight[0]);
}

// weight [in, out / groups, k...]: each input element feeds one filter.
std::optional<OpCost> convolution_transpose(const Call& call) {
  const std::vector<double> weight = call.shape(1);
  if (weight.empty() || weight[0] == 0) return std::nullopt;
  return matrix(call, product(call.shape(0)) * product(weight) / weight[0]);
}

// aten.convolution carries `transposed` as its seventh argument.
std::optional<OpCost> any_convolution(const Call& call) {
  const Argument* transposed = call.argument(6, "transposed");
  const bool* flag = transposed == nullptr ? nullptr : transposed->find<bool>();
  return flag != nullptr && *flag ? convolution_transpose(call) : convolution(call);
}

// Query [..., l, e], key [..., s, e], value [..., s, v]: scores, softmax, weighted sum. A causal
// mask is not discounted: not every kernel skips.
std::optional<OpCost> attention(const Call& call) {
  const std::vector<double> query = call.shape(0, "query");
  const std::vector<double> key = call.shape(1, "key");
  const std::vector<double> value = call.shape(2, "value");
  if (query.size() < 2 || key.size() < 2 || value.empty()) return std::nullopt;
  const double rows = product(query) / std::max(1.0, query.back());
  const double scores = rows * key[key.size() - 2];
  const double macs = scores * (query.back() + value.back());
  return OpCost{Unit::matrix, 2 * macs + 10 * scores, macs, call.touched()};
}

// "bhqd,bhkd->bhqk": the product of all letters' sizes, once for each pair of operands.
std::optional<OpCost> einsum(const Call& call) {
  const Argument* equation = call.argument(0, "equation");
  const std::string* text = equation == nullptr ? nullptr : equation->find<std::string>();
  const std::vector<ValueId> operands = call.tensors(1, "tensors");
  if (text == nullptr || operands.empty()) return std::nullopt;
  std::unordered_map<char, double> sizes;
  double batch_dims = 1;  // what an ellipsis stands for
  std::size_t at = 0;
  for (const ValueId operand : operands) {
    const std::size_t end = std::min(text->find_first_of(",-", at), text->size());
    std::string letters;
    for (const char c : text->substr(at, end - at)) {
      if (c != ' ') letters.push_back(c);
    }
    const std::vector<double> shape = call.shape(operand);
    const std::size_t dots = letters.find("...");
    const std::size_t named = letters.size() - (dots == std::string::npos ? 0 : 3);
    if (named > shape.size()) return std::nullopt;
    std::size_t dim = 0;
    double hidden = 1;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (letters[i] != '.') {
        sizes[letters[i]] = std::max(sizes[letters[i]], shape[dim++]);
        continue;
      }
      for (std::size_t k = 0; k < shape.size() - named; ++k) hidden *= shape[dim++];
      i += 2;
    }
    batch_dims = std::max(batch_dims, hidden);
    at = end + 1;
  }
  double macs = batch_dims * static_cast<double>(std::max<std::size_t>(1, operands.size() - 1));
  for (const auto& [letter, size] : sizes) macs *= size;
  return matrix(call, macs);
}

// Every weight matrix meets every token once; the gates are a few operations an output element.
std::optional<OpCost> recurrent(const Call& call) {
  const std::vector<double> input = call.shape(0);
  if (input.empty() || input.back() == 0) return std::nullopt;
  const double tokens = product(input) / input.back();
  double weights = 0;
  for (const ValueId id : call.inputs()) {
    if (call.value(id).origin == Origin::weight && call.value(id).shape.size() == 2) {
      weights += call.elements(id);
    }
  }
  const double macs = tokens * weights;
  return OpCost{Unit::matrix, 2 * macs + 30 * call.output_elements(), macs, call.touched()};
}

std::optional<OpCost> free_of_charge(const Call&) { return OpCost{Unit::none, 0, 0, Bytes{0}}; }

// Memory is taken, not written.
std::optional<OpCost> allocate(const Call&) { return OpCost{Unit::vector, 0, 0, Bytes{0}}; }

std::optional<OpCost> fill(const Call& call) {
  return OpCost{Unit::vector, 0, 0, call.output_bytes()};
}

std::optional<OpCost> copy(const Call& call) { return OpCost{Unit::vector, 0, 0, call.touched()}; }

// Reads what it takes, not the whole table.
std::optional<OpCost> gather(const Call& call) {
  Bytes indices;
  const std::span<const ValueId> inputs = call.inputs();
  for (const ValueId id : inputs) {
    if (!call.value(id).scalar && !is_floating(call.value(id).dtype)) indices += call.bytes(id);
  }
  return OpCost{Unit::vector, 0, 0, call.output_bytes() * 2 + indices};
}

// Writes as much as the update holds (all arguments but the first), into a copy or in place.
std::optional<OpCost> scatter(const Call& call) {
  Bytes update;
  const std::vector<ValueId> target = call.tensors(0);
  for (const ValueId id : call.inputs()) {
    if (!call.value(id).scalar && (target.empty() || id != target.front()))
      update += call.bytes(id);
  }
  const bool in_place = !call.node().written.empty();
  return OpCost{Unit::vector, 0, 0, update * 2 + (in_place ? Bytes{0} : call.touched())};
}

template <int Flops>
std::optional<OpCost> per_output(const Call& call) {
  return OpCost{Unit::vector, Flops * call.output_elements(), 0, call.touched()};
}

template <int Flops>
std::optional<OpCost> per_input(const Call& call) {
  return OpCost{Unit::vector, Flops * call.input_elements(), 0, call.touched()};
}

// A window slides over the input: every input element is read once from memory, and every output
// element looks at the kernel's size.
std::optional<OpCost> pool(const Call& call) {
  double window = 1;
  if (const Argument* kernel = call.argument(1, "kernel_size")) {
    if (const auto* list = kernel->find<Argument::List>()) {
      for (const Argument& size : *list) {
        const Expr* extent = size.find<Expr>();
        if (extent != nullptr && extent->is_constant()) {
          window *= static_cast<double>(extent->constant());
        }
      }
    }
  }
  return OpCost{Unit::vector, window * call.output_elements(), 0, call.touched()};
}

// A comparison sort of n elements: about 20 steps deep for the sizes models have.
std::optional<OpCost> sort(const Call& call) { return per_input<20>(call); }

using Table = std::unordered_map<std::string_view, Formula>;

void add(Table& table, Formula formula, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) table.emplace(name, formula);
}

void add_products(Table& table) {
  add(table, product_formula<0>,
      {"linear",
       "mm",
       "bmm",
       "matmul",
       "mv",
       "dot",
       "vdot",
       "inner",
       "tensordot",
       "_grouped_mm",
       "grouped_mm",
       "_scaled_mm",
       "_scaled_grouped_mm",
       "linalg_vecdot",
       "__matmul__",
       "_int_mm",
       "bilinear",
       "cosine_similarity",
       "chain_matmul",
       "linalg_matmul"});
  add(table, product_formula<1>, {"addmm", "baddbmm", "addbmm", "addmv", "_addmm_activation"});
  add(table, product_formula<0>, {"transformers.grouped_mm_fallback.default"});
  add(table, outer, {"outer", "ger", "kron"});
  add(table, einsum, {"einsum"});
  add(table, convolution, {"conv1d", "conv2d", "conv3d", "_conv_depthwise2d", "conv_depthwise3d"});
  add(table, convolution_transpose, {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"});
  add(table, any_convolution,
      {"convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution"});
  add(table, attention,
      {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
       "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention_for_cpu",
       "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math"});
  add(table, recurrent,
      {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell",
       "rnn_relu_cell"});
}

void add_memory(Table& table) {
  add(table, free_of_charge,
      {"sym_size", "sym_numel", "sym_stride", "sym_storage_offset", "_assert_async",
       "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
       "sym_constrain_range_for_size", "lift", "lift_fresh", "detach", "alias",
       "_functional_sym_constrain_range"});
  add(table, allocate,
      {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted",
       "_empty_affine_quantized", "resize"});
  add(table, fill,
      {"zeros",        "ones",     "full",          "zeros_like",    "ones_like", "full_like",
       "new_zeros",    "new_ones", "new_full",      "arange",        "linspace",  "eye",
       "fill",         "zero",     "scalar_tensor", "tensor",        "range",     "tril_indices",
       "triu_indices", "logspace", "hann_window",   "hamming_window"});
  add(table, copy,
      {"clone",
       "copy",
       "contiguous",
       "to",
       "_to_copy",
       "type_as",
       "cat",
       "concat",
       "concatenate",
       "stack",
       "hstack",
       "vstack",
       "dstack",
       "repeat",
       "repeat_interleave",
       "tile",
       "flip",
       "roll",
       "rot90",
       "pad",
       "constant_pad_nd",
       "reflection_pad1d",
       "reflection_pad2d",
       "reflection_pad3d",
       "replication_pad1d",
       "replication_pad2d",
       "replication_pad3d",
       "reshape",
       "flatten",
       "ravel",
       "channel_shuffle",
       "pixel_shuffle",
       "pixel_unshuffle",
       "native_channel_shuffle",
       "tril",
       "triu",
       "diag",
       "diag_embed",
       "diagonal_scatter",
       "slice_scatter",
       "select_scatter",
       "as_strided_scatter",
       "meshgrid",
       "unfold",
       "im2col",
       "col2im",
       "float",
       "half",
       "double",
       "long",
       "int",
       "bool",
       "cpu",
       "cuda",
       "lift_fresh_copy",
       "_reshape_alias",
       "_unsafe_view",
       "view_copy",
       "permute_copy",
       "expand_copy",
       "cartesian_prod",
       "combinations",
       "block_diag",
       "view_as_complex",
       "view_as_real",
       "item",
       "_local_scalar_dense",
       "nonzero",
       "masked_select",
       "numpy_T",
       "is_nonzero",
       "set",
       "_pack_padded_sequence",
       "_pad_packed_sequence",
       "view",
       "slice",
       "select",
       "expand",
       "expand_as",
       "transpose",
       "permute",
       "t",
       "squeeze",
       "unsqueeze",
       "split",
       "chunk",
       "split_with_sizes",
       "tensor_split",
       "unbind",
       "narrow",
       "unflatten",
       "movedim",
       "view_as",
       "swapaxes",
       "diagonal",
       "as_strided",
       "real",
       "imag",
       "adjoint",
       "mT",
       "broadcast_to",
       "broadcast_tensors",
       "atleast_1d",
       "atleast_2d",
       "unsafe_split",
       "unsafe_chunk"});
  add(table, gather,
      {"embedding", "index_select", "gather", "index", "take", "take_along_dim", "embedding_bag",
       "_embedding_bag", "_unsafe_index"});
  add(table, scatter,
      {"scatter", "scatter_add", "scatter_reduce", "index_put", "index_add", "index_copy",
       "index_fill", "masked_scatter", "_index_put_impl", "put", "_unsafe_index_put"});
}

void add_elementwise(Table& table) {
  add(table, per_output<1>,
      {"add",
       "sub",
       "rsub",
       "mul",
       "div",
       "neg",
       "abs",
       "relu",
       "clamp",
       "clamp_min",
       "clamp_max",
       "maximum",
       "minimum",
       "max_other",
       "eq",
       "ne",
       "lt",
       "le",
       "gt",
       "ge",
       "logical_and",
       "logical_or",
       "logical_not",
       "logical_xor",
       "bitwise_and",
       "bitwise_or",
       "bitwise_not",
       "bitwise_xor",
       "where",
       "masked_fill",
       "threshold",
       "sign",
       "square",
       "floor",
       "ceil",
       "round",
       "trunc",
       "hardtanh",
       "relu6",
       "leaky_relu",
       "isnan",
       "isinf",
       "isfinite",
       "floor_divide",
       "remainder",
       "fmod",
       "true_divide",
       "divide",
       "multiply",
       "subtract",
       "positive",
       "reciprocal",
       "sgn",
       "heaviside",
       "bitwise_left_shift",
       "bitwise_right_shift",
       "__and__",
       "__or__",
       "__xor__",
       "__lshift__",
       "__rshift__",
       "isin",
       "isposinf",
       "isneginf",
       "less",
       "greater",
       "greater_equal",
       "less_equal",
       "not_equal",
       "frac",
       "clip",
       "fmax",
       "fmin",
       "one_hot",
       "nan_to_num",
       "masked_fill_",
       "conj",
       "resolve_conj",
       "resolve_neg",
       "_conj",
       "complex",
       "signbit",
       "copysign"});
  add(table, per_output<2>,
      {"addcmul",       "addcdiv",       "lerp",        "hardsigmoid",    "hardswish",
       "prelu",         "_prelu_kernel", "dropout",     "native_dropout", "feature_dropout",
       "alpha_dropout", "bernoulli",     "rand",        "randn",          "randint",
       "rand_like",     "randn_like",    "uniform",     "normal",         "randperm",
       "randint_like",  "multinomial",   "exponential", "dropout_"});
  add(table, per_output<10>,
      {"exp",
       "exp2",
       "expm1",
       "log",
       "log2",
       "log10",
       "log1p",
       "sqrt",
       "rsqrt",
       "sin",
       "cos",
       "tan",
       "tanh",
       "sigmoid",
       "silu",
       "mish",
       "elu",
       "selu",
       "celu",
       "softplus",
       "logsigmoid",
       "log_sigmoid",
       "log_sigmoid_forward",
       "gelu",
       "erf",
       "erfc",
       "pow",
       "glu",
       "atan",
       "atan2",
       "asin",
       "acos",
       "sinh",
       "cosh",
       "softsign",
       "tanhshrink",
       "logaddexp",
       "erfinv",
       "logit",
       "polar",
       "float_power",
       "xlogy",
       "hypot",
       "angle",
       "swish",
       "sinc",
       "asinh",
       "acosh",
       "atanh",
       "digamma",
       "lgamma"});
  add(table, per_output<5>,
      {"softmax", "_softmax", "log_softmax", "_log_softmax", "_safe_softmax", "special_softmax",
       "special_log_softmax", "gumbel_softmax"});
  add(table, per_output<8>,
      {"layer_norm",
       "native_layer_norm",
       "group_norm",
       "native_group_norm",
       "instance_norm",
       "batch_norm",
       "native_batch_norm",
       "_native_batch_norm_legit",
       "_native_batch_norm_legit_no_training",
       "_native_batch_norm_legit_functional",
       "cudnn_batch_norm",
       "rms_norm",
       "_fused_rms_norm",
       "normalize",
       "local_response_norm",
       "_weight_norm",
       "_weight_norm_interface",
       "renorm",
       "_batch_norm_with_update",
       "_batch_norm_no_update"});
}

void add_reductions(Table& table) {
  add(table, per_input<1>,
      {"sum",
       "mean",
       "amax",
       "amin",
       "max",
       "min",
       "argmax",
       "argmin",
       "any",
       "all",
       "prod",
       "count_nonzero",
       "nansum",
       "bincount",
       "aminmax",
       "trace",
       "_is_all_true",
       "_is_any_true",
       "equal",
       "allclose",
       "unique",
       "_unique2",
       "unique_consecutive",
       "unique_dim",
       "histc",
       "bucketize",
       "searchsorted",
       "segment_reduce"});
  add(table, per_input<2>,
      {"cumsum",
       "cumprod",
       "logcumsumexp",
       "cummax",
       "cummin",
       "norm",
       "linalg_vector_norm",
       "frobenius_norm",
       "nuclear_norm",
       "dist",
       "diff",
       "mse_loss",
       "l1_loss",
       "smooth_l1_loss",
       "huber_loss",
       "nll_loss",
       "nll_loss_nd",
       "nll_loss2d",
       "nll_loss_forward",
       "linalg_norm",
       "linalg_matrix_norm",
       "pairwise_distance",
       "cdist",
       "_cdist_forward"});
  add(table, per_input<4>, {"var", "std", "var_mean", "std_mean", "logsumexp"});
  add(table, per_input<10>,
      {"cross_entropy_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
       "cosine_embedding_loss", "ctc_loss"});
  add(table, sort, {"sort", "argsort", "topk", "msort", "median", "kthvalue", "quantile", "mode"});
  add(table, pool,
      {"max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
       "max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices"});
  add(table, per_input<1>,
      {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d",
       "_adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
       "adaptive_max_pool3d"});
  add(table, per_output<8>,
      {"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d",
       "upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d",
       "_upsample_nearest_exact2d", "_upsample_nearest_exact1d", "_upsample_bilinear2d_aa",
       "_upsample_bicubic2d_aa", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d",
       "affine_grid_generator"});
  // n log n with n in the thousands: about 5 log2(n) flops an element.
  add(table, per_input<60>,
      {"fft_rfft", "fft_fft", "fft_irfft", "fft_ifft", "stft", "istft", "_fft_r2c", "_fft_c2r",
       "_fft_c2c", "fft_rfft2", "fft_irfft2", "fft_fft2", "fft_ifft2", "fft_fftn", "fft_ifftn",
       "fft_rfftn", "fft_irfftn"});
}

const Table& table() {
  static const Table all = [] {
    Table made;
    add_products(made);
    add_memory(made);
    add_elementwise(made);
    add_reductions(made);
    return made;
  }();
  return all;
}

// "aten.add_.Tensor" -> "add": the table is about operators, whatever the overload, in place or
// not.
std::string_view base_name(std::string_view op) {
  if (const std::size_t dot = op.find('.'); dot != std::string_view::npos)
    op.remove_prefix(dot + 1);
  op = op.substr(0, op.find('.'));
  const bool dunder = op.size() > 4 && op.ends_with("__");
  if (op.ends_with('_') && !dunder) op.remove_suffix(1);
  return op;
}

// All it returns is memory it was given, and it changes none of it. Told from storages rather than
// from names: `reshape` is a view or a copy, as the case may be.
bool is_view(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (!node.written.empty()) return false;
  bool any = false;
  for (const ValueId output : node.outputs) {
    if (!output.valid() || graph.value(output).scalar) continue;
    any = true;
    const StorageId storage = graph.value(output).storage;
    const auto inputs = graph.inputs_of(id);
    const bool given = std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) {
      return !graph.value(input).scalar && graph.value(input).storage == storage;
    });
    if (!given) return false;
  }
  return any;
}

// Integer arithmetic on sizes and the like: no tensor in, none out.
bool touches_no_tensor(const Graph& graph, NodeId id) {
  const auto is_tensor = [&](ValueId value) { return value.valid() && !graph.value(value).scalar; };
  const auto inputs = graph.inputs_of(id);
  const auto& outputs = graph.node(id).outputs;
  return std::none_of(inputs.begin(), inputs.end(), is_tensor) &&
         std::none_of(outputs.begin(), outputs.end(), is_tensor);
}

}  // namespace

Bytes bytes_touched(const Graph& graph, NodeId node, std::int64_t batch) {
  Bytes sum;
  for (const ValueId id : graph.inputs_of(node)) {
    if (!graph.value(id).scalar) sum += graph.value(id).bytes(batch);
  }
  for (const ValueId id : graph.node(node).outputs) {
    if (id.valid() && !graph.value(id).scalar) sum += graph.value(id).bytes(batch);
  }
  return sum;
}

std::optional<OpCost> op_cost(const Graph& graph, NodeId node, std::int64_t batch) {
  const std::string& op = graph.node(node).op;
  if (op != "opaque" && (is_view(graph, node) || touches_no_tensor(graph, node))) {
    return OpCost{Unit::none, 0, 0, Bytes{0}};
  }
  // Other namespaces may use a name for something else: they are looked up in full.
  const bool aten = op.starts_with("aten.");
  const auto found = table().find(aten ? base_name(op) : std::string_view(op));
  if (found == table().end()) return std::nullopt;
  return found->second(Call(graph, node, batch));
}

}  // namespace kerf
