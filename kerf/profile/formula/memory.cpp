// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that make, copy and lay out memory.
#include "kerf/profile/formula/table.h"

namespace kerf::formula {
namespace {

std::optional<OpCost> free_of_charge(const Call&) { return OpCost{Unit::none, 0, 0, Bytes{0}}; }

// Memory is taken, not written.
std::optional<OpCost> allocate(const Call&) { return OpCost{Unit::vector, 0, 0, Bytes{0}}; }

std::optional<OpCost> fill(const Call& call) {
  return OpCost{Unit::vector, 0, 0, call.output_bytes()};
}

std::optional<OpCost> copy(const Call& call) { return OpCost{Unit::vector, 0, 0, call.touched()}; }

// What was there is gone: its gradient is zero.
void zeros(Backward& backward) {
  for (const ValueId input : backward.wanted()) {
    backward.add(input, 0, backward.call().bytes(input));
  }
}

void add_cast(Backward& backward, ValueId input) {
  const Call& call = backward.call();
  const ValueId output = call.node().outputs.front();
  if (call.value(input).dtype == call.value(output).dtype) return;
  backward.add(input, 0, call.bytes(input) + call.output_bytes());
}

void of_cast(Backward& backward) {
  const ValueId input = backward.call().tensor(0);
  if (backward.wanted(input)) add_cast(backward, input);
}

// copy_(target, source)
void of_copy(Backward& backward) {
  const Call& call = backward.call();
  const ValueId target = call.tensor(0);
  const ValueId source = call.tensor(1, "src");
  if (backward.wanted(target)) backward.add(target, 0, call.bytes(target));
  if (!backward.wanted(source)) return;
  add_cast(backward, source);
  backward.sum_to(source, call.elements(target));
}

// Every element of the gradient is that of one element of the output, elsewhere.
void rearranged(Backward& backward) {
  for (const ValueId input : backward.wanted()) {
    backward.add(input, 0, backward.call().bytes(input) + backward.call().output_bytes());
  }
}

// The output holds elements of the input several times.
void repeated(Backward& backward) {
  for (const ValueId input : backward.wanted()) {
    backward.sum_to(input, backward.call().output_elements());
  }
}

// slice_scatter(self, source): the gradient of self is copied to be zeroed in part; that of the
// source is a view.
void of_scatter_view(Backward& backward) {
  const ValueId self = backward.call().tensor(0);
  if (backward.wanted(self)) backward.add(self, 0, backward.call().bytes(self) * 2);
}

}  // namespace

void add_fills(Table& table) {
  table.add({free_of_charge, passed_on},
            {"sym_size", "sym_numel", "sym_stride", "sym_storage_offset", "_assert_async",
             "_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range",
             "sym_constrain_range_for_size", "lift", "lift_fresh", "detach", "alias",
             "_functional_sym_constrain_range"});
  table.add({allocate, passed_on},
            {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
             "empty_permuted", "_empty_affine_quantized", "resize"});
  table.add(
      {fill, zeros},
      {"zeros",        "ones",     "full",          "zeros_like",    "ones_like", "full_like",
       "new_zeros",    "new_ones", "new_full",      "arange",        "linspace",  "eye",
       "fill",         "zero",     "scalar_tensor", "tensor",        "range",     "tril_indices",
       "triu_indices", "logspace", "hann_window",   "hamming_window"});
}

void add_copies(Table& table) {
  // The gradient is the output's as it is, or a view of it.
  table.add({copy, passed_on}, {"clone",
                                "contiguous",
                                "cat",
                                "concat",
                                "concatenate",
                                "stack",
                                "hstack",
                                "vstack",
                                "dstack",
                                "reshape",
                                "flatten",
                                "ravel",
                                "lift_fresh_copy",
                                "_reshape_alias",
                                "_unsafe_view",
                                "view_copy",
                                "permute_copy",
                                "alias_copy",
                                "narrow_copy",
                                "as_strided_copy",
                                "diagonal_copy",
                                "cartesian_prod",
                                "view_as_complex",
                                "view_as_real",
                                "item",
                                "_local_scalar_dense",
                                "nonzero",
                                "numpy_T",
                                "is_nonzero",
                                "set",
                                "combinations"});
  table.add({copy, of_copy}, {"copy"});
  table.add({copy, of_cast}, {"to", "_to_copy", "type_as", "float", "half", "double", "long", "int",
                              "bool", "cpu", "cuda"});
  table.add({copy, repeated, repeated},
            {"repeat", "repeat_interleave", "tile", "expand_copy", "meshgrid"});
  table.add({copy, rearranged}, {"flip",
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
                                 "channel_shuffle",
                                 "pixel_shuffle",
                                 "pixel_unshuffle",
                                 "native_channel_shuffle",
                                 "tril",
                                 "triu",
                                 "diag",
                                 "diag_embed",
                                 "im2col",
                                 "col2im",
                                 "block_diag",
                                 "masked_select",
                                 "_pack_padded_sequence",
                                 "_pad_packed_sequence"});
  table.add({copy, of_scatter_view},
            {"diagonal_scatter", "slice_scatter", "select_scatter", "as_strided_scatter"});
}

void add_views(Table& table) {
  table.add({copy, passed_on},
            {"view", "transpose", "permute", "t", "squeeze", "unsqueeze", "unflatten", "movedim",
             "view_as", "swapaxes", "real", "imag", "adjoint", "mT", "atleast_1d", "atleast_2d"});
  // A gradient of the whole input is made: zeros around a part, or all parts put together.
  table.add({copy, rearranged, rearranged},
            {"slice", "select", "narrow", "diagonal", "as_strided", "unfold", "split", "chunk",
             "split_with_sizes", "tensor_split", "unbind", "unsafe_split", "unsafe_chunk"});
  table.add({copy, repeated, repeated},
            {"expand", "expand_as", "broadcast_to", "broadcast_tensors"});
}

}  // namespace kerf::formula
