// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Factorisations, inverses and solutions of linear systems.
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

void results(SavedCall& call, std::size_t first, std::size_t last) {
  for (std::size_t position = first; position <= last; ++position) {
    call.keep(call.result(position));
  }
}

void first_result(SavedCall& call) { results(call, 0, 0); }

void first_two_results(SavedCall& call) { results(call, 0, 1); }

void three_results(SavedCall& call) { results(call, 0, 2); }

// The matrix, the result and the factors that it was found with.
void with_factors(SavedCall& call) {
  call.keep(call.tensor(0, "A"));
  results(call, 0, 2);
}

// The sign; not the logarithm, which is the second result.
void sign_and_factors(SavedCall& call) {
  call.keep(call.tensor(0, "A"));
  results(call, 0, 0);
  results(call, 2, 3);
}

void matrix_and_result(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  results(call, 0, 0);
}

void matrix(SavedCall& call) { call.keep(call.tensor(0, "self")); }

}  // namespace

void add_saved_linalg_rules(SavedRules& rules) {
  rules.add({"linalg_inv_ex", "linalg_cholesky_ex"}, first_result);
  rules.add({"linalg_qr", "_linalg_eigh", "linalg_eig", "linalg_lu_factor_ex"}, first_two_results);
  rules.add({"_linalg_svd"}, three_results);
  rules.add({"_linalg_solve_ex", "_linalg_det"}, with_factors);
  rules.add({"_linalg_slogdet"}, sign_and_factors);
  rules.add({"linalg_solve_triangular"}, matrix_and_result);
  rules.add({"linalg_matrix_exp"}, matrix);
}

}  // namespace kerf
