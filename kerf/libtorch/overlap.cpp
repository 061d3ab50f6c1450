// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/overlap.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kerf {
namespace {

// A whole number of steps from `least` to `most`, each of so many bytes.
struct Term {
  std::int64_t step;  // positive
  std::int64_t least;
  std::int64_t most;
};

// Looks for steps that add up to a distance. Strides of real tensors nest, so that each leaves one
// or two choices; a search that takes longer is given up.
class StepSearch {
 public:
  explicit StepSearch(std::vector<Term> terms) : terms_(std::move(terms)) {
    std::sort(terms_.begin(), terms_.end(),
              [](const Term& a, const Term& b) { return a.step > b.step; });
    least_.resize(terms_.size() + 1, 0);
    most_.resize(terms_.size() + 1, 0);
    for (std::size_t t = terms_.size(); t-- > 0;) {
      least_[t] = least_[t + 1] + terms_[t].step * terms_[t].least;
      most_[t] = most_[t + 1] + terms_[t].step * terms_[t].most;
    }
  }

  bool may_reach(std::int64_t distance) { return reaches(0, distance); }

 private:
  static std::int64_t floor_div(std::int64_t a, std::int64_t b) {
    return a / b - (a % b != 0 && a < 0 ? 1 : 0);
  }

  bool reaches(std::size_t t, std::int64_t distance) {
    if (--budget_ < 0) return true;
    if (distance < least_[t] || distance > most_[t]) return false;
    if (t == terms_.size()) return true;
    const Term& term = terms_[t];
    const std::int64_t from = -floor_div(most_[t + 1] - distance, term.step);
    const std::int64_t to = floor_div(distance - least_[t + 1], term.step);
    for (std::int64_t k = std::max(from, term.least); k <= std::min(to, term.most); ++k) {
      if (reaches(t + 1, distance - k * term.step)) return true;
    }
    return false;
  }

  std::vector<Term> terms_;
  std::vector<std::int64_t> least_;  // of the sum from a term on
  std::vector<std::int64_t> most_;
  int budget_ = 10000;
};

void add_dims(const at::Tensor& tensor, std::int64_t but, bool negative, std::vector<Term>& terms) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    const std::int64_t step = tensor.stride(d) * tensor.element_size();
    const std::int64_t last = tensor.size(d) - 1;
    if (d == but || step == 0 || last == 0) continue;
    terms.push_back(negative ? Term{step, -last, 0} : Term{step, 0, last});
  }
}

// From the first byte of `a` to the first of `b`, in bytes.
std::int64_t distance(const at::Tensor& a, const at::Tensor& b) {
  const auto address = [](const at::Tensor& tensor) {
    return reinterpret_cast<std::intptr_t>(tensor.const_data_ptr());
  };
  return address(b) - address(a);
}

// From the first byte of a tensor to one past its last.
std::int64_t extent(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return (last + 1) * tensor.element_size();
}

bool ranges_meet(const at::Tensor& a, const at::Tensor& b) {
  if (a.device() != b.device() || a.numel() == 0 || b.numel() == 0) return false;
  const std::int64_t apart = distance(a, b);
  return apart < extent(a) && -apart < extent(b);
}

// Bytes within an element.
Term within(const at::Tensor& a, const at::Tensor& b) {
  return {1, -(b.element_size() - 1), a.element_size() - 1};
}

}  // namespace

bool may_share_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (!ranges_meet(a, b)) return false;
  std::vector<Term> terms{within(a, b)};
  add_dims(a, -1, false, terms);
  add_dims(b, -1, true, terms);
  return StepSearch(std::move(terms)).may_reach(distance(a, b));
}

bool may_share_across(const at::Tensor& a, std::int64_t dim_a, const at::Tensor& b,
                      std::int64_t dim_b) {
  if (!ranges_meet(a, b)) return false;
  if (dim_a < 0 || dim_b < 0) return may_share_bytes(a, b);
  const std::int64_t step = a.stride(dim_a) * a.element_size();
  const std::int64_t rows = std::max(a.size(dim_a), b.size(dim_b));
  if (step != b.stride(dim_b) * b.element_size()) return may_share_bytes(a, b);
  if (rows < 2) return false;
  if (step == 0) return may_share_bytes(a, b);
  for (const std::int64_t sign : {1, -1}) {
    std::vector<Term> terms{within(a, b)};
    add_dims(a, dim_a, false, terms);
    add_dims(b, dim_b, true, terms);
    terms.push_back(sign > 0 ? Term{step, 1, rows - 1} : Term{step, 1 - rows, -1});
    if (StepSearch(std::move(terms)).may_reach(distance(a, b))) return true;
  }
  return false;
}

}  // namespace kerf
