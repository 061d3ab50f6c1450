// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators whose backward needs sizes alone.
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

void nothing(SavedCall& /*call*/) {}

// Modes that mirror or repeat edges know the input; numbers, and copies of slices, do not.
void pad(SavedCall& call) {
  const Argument* const mode = call.argument(2, "mode");
  const auto* const name = mode == nullptr ? nullptr : mode->find<std::string>();
  if (name != nullptr && *name != "constant" && *name != "circular") {
    call.keep(call.tensor(0, "self"));
  }
}

// By a number it is a view that is copied; by a tensor it picks rows.
void repeat_interleave(SavedCall& call) {
  if (call.tensor(1, "repeats").valid()) call.give_up();
}

}  // namespace

void add_saved_view_rules(SavedRules& rules) {
  // Views, copies, and other places for the same elements.
  rules.add({"alias",
             "as_strided",
             "broadcast_tensors",
             "broadcast_to",
             "cat",
             "channel_shuffle",
             "chunk",
             "clone",
             "concat",
             "constant_pad_nd",
             "contiguous",
             "copy",
             "detach",
             "block_diag",
             "diag",
             "diag_embed",
             "diagonal",
             "meshgrid",
             "rot90",
             "expand",
             "expand_as",
             "fill",
             "flatten",
             "flip",
             "lift_fresh",
             "lift_fresh_copy",
             "movedim",
             "narrow",
             "numpy_T",
             "permute",
             "pixel_shuffle",
             "pixel_unshuffle",
             "repeat",
             "reshape",
             "reshape_as",
             "roll",
             "select",
             "slice",
             "split",
             "split_with_sizes",
             "squeeze",
             "stack",
             "swapaxes",
             "t",
             "tensor_split",
             "tile",
             "to",
             "transpose",
             "tril",
             "triu",
             "type_as",
             "unbind",
             "unflatten",
             "unfold",
             "unsqueeze",
             "view",
             "view_as",
             "zero",
             "_to_copy",
             "_unsafe_view",
             "float",
             "half",
             "bfloat16",
             "double",
             "hstack",
             "vstack",
             "T",
             "mT",
             "moveaxis",
             "swapdims",
             "unsafe_chunk",
             "unsafe_split",
             "_conj",
             "_conj_physical",
             "_neg_view",
             "conj_physical",
             "resolve_conj",
             "resolve_neg",
             "as_strided_scatter",
             "diagonal_scatter",
             "select_scatter",
             "slice_scatter",
             "alias_copy",
             "as_strided_copy",
             "diagonal_copy",
             "expand_copy",
             "narrow_copy",
             "permute_copy",
             "view_copy"},
            nothing);
  rules.add({"pad"}, pad);
  rules.add({"repeat_interleave"}, repeat_interleave);
  // Sums of elements, each with the factor that the sizes or the other arguments say.
  rules.add({"add",
             "sub",
             "rsub",
             "neg",
             "sum",
             "mean",
             "cumsum",
             "floor",
             "ceil",
             "round",
             "trunc",
             "sign",
             "real",
             "imag",
             "view_as_real",
             "view_as_complex",
             "upsample_nearest1d",
             "upsample_nearest2d",
             "upsample_nearest3d",
             "upsample_linear1d",
             "upsample_bilinear2d",
             "upsample_bicubic2d",
             "upsample_trilinear3d",
             "_upsample_nearest_exact1d",
             "_upsample_nearest_exact2d",
             "_upsample_nearest_exact3d",
             "_upsample_bilinear2d_aa",
             "_upsample_bicubic2d_aa",
             "affine_grid_generator",
             "col2im",
             "deg2rad",
             "diff",
             "floor_divide",
             "frac",
             "im2col",
             "rad2deg",
             "trace",
             "_fft_c2c",
             "_fft_c2r"},
            nothing);
}

}  // namespace kerf
