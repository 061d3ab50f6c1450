// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <ATen/autocast_mode.h>
#include <torch/library.h>

// PyTorch's macros name its types without a namespace.
namespace at::autocast {

// Under autocast, operators change types as on any accelerator.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define PRETEND_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define PRETEND_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define PRETEND_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define PRETEND_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(PRETEND_LOWER)
  AT_FORALL_FP32(PRETEND_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(PRETEND_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(PRETEND_PROMOTE)
}

}  // namespace at::autocast
