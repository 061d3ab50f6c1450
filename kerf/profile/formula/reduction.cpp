// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/pointwise.h"

namespace kerf::formula {
namespace {

// A comparison sort of n elements: about 20 steps deep for the sizes models have.
std::optional<OpCost> sort(const Call& call) { return per_input<20>(call); }

}  // namespace

void add_reductions(Table& table) {
  // The gradient of a sum is the output's, expanded: a view.
  table.add({per_input<1>, passed_on},
            {"sum", "nansum", "argmax", "argmin", "any", "all", "count_nonzero", "bincount",
             "_is_all_true", "_is_any_true", "equal", "allclose", "unique", "_unique2",
             "unique_consecutive", "unique_dim", "histc", "bucketize", "searchsorted"});
  table.add({per_input<1>, of_each_input<1, 1>}, {"mean", "max", "min", "trace"});
  table.add({per_input<1>, of_each_input<3, 4>},
            {"amax", "amin", "aminmax", "prod", "segment_reduce", "nanmedian"});
  table.add({per_input<2>, of_each_input<2, 4>},
            {"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "diff"});
  table.add(
      {per_input<2>, of_each_input<3, 2>},
      {"norm", "linalg_vector_norm", "frobenius_norm", "nuclear_norm", "dist", "linalg_norm",
       "linalg_matrix_norm", "pairwise_distance", "cdist", "_cdist_forward", "_euclidean_dist"});
  table.add({per_input<4>, of_each_input<3, 2>}, {"var", "std", "var_mean", "std_mean"});
  table.add({per_input<4>, of_each_input<12, 2>}, {"logsumexp"});
  // Zeros, and the output's gradient where it was taken from.
  table.add({sort, of_each_input<1, 1>},
            {"sort", "argsort", "topk", "msort", "median", "kthvalue", "quantile", "mode"});
  // n log n with n in the thousands: about 5 log2(n) flops an element, there and back.
  table.add({per_input<60>, of_each_input<60, 1>},
            {"fft_rfft", "fft_fft", "fft_irfft", "fft_ifft", "stft", "istft", "_fft_r2c",
             "_fft_c2r", "_fft_c2c", "fft_rfft2", "fft_irfft2", "fft_fft2", "fft_ifft2", "fft_fftn",
             "fft_ifftn", "fft_rfftn", "fft_irfftn"});
}

void add_losses(Table& table) {
  table.add({per_input<2>, of_each_input<3, 3>},
            {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "multi_margin_loss",
             "multilabel_margin_loss_forward"});
  table.add({per_input<2>, of_each_input<0, 1>},
            {"nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward"});
  // Of a cross entropy: the gradient of nll_loss, then that of log_softmax.
  table.add({per_input<10>, of_each_input<13, 4>},
            {"cross_entropy_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits",
             "kl_div", "cosine_embedding_loss", "ctc_loss", "_ctc_loss", "soft_margin_loss"});
}

}  // namespace kerf::formula
