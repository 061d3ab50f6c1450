// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/portfolio/split_methods.h"

#include <utility>

#include "kerf/place/acyclic/acyclic_split.h"
#include "kerf/place/binpack2d/binpack2d.h"
#include "kerf/place/ideals/ideals.h"
#include "kerf/place/metis/kway.h"
#include "kerf/place/metis/metis_split.h"
#include "kerf/place/mixed_pipe/mixed_pipe.h"
#include "kerf/place/mixed_pipe/one_stage_each.h"
#include "kerf/place/pipedream/pipedream.h"

namespace kerf::place {
namespace {

using enum SplitStep::Kind;
using enum When;

LoadAnswer chain(const Instance& instance, const LoadOptions& options) {
  return find_chain(instance, options);
}
LoadAnswer single_level(const Instance& instance, const LoadOptions& options) {
  return acyclic_split(instance, options, false);
}
LoadAnswer multilevel(const Instance& instance, const LoadOptions& options) {
  return acyclic_split(instance, options, true);
}

constexpr bool kMixes = true;

SplitMethod one_solver(Solver solve, Shape shape) {
  return {{{solver, 1, always, solve, shape == Shape::any}}, {}, shape};
}

}  // namespace

LoadAnswer solve(const SplitStep& step, const Instance& instance, const LoadOptions& options) {
  if (instance.num_units() == 0) return {};
  LoadAnswer answer = step.solver(instance, options);
  if (options.mixed || !step.mixes || answer.device.empty()) return answer;
  return one_stage_each(instance, answer.device, options);
}

const SplitMethod& chain_split() {
  static const SplitMethod method = one_solver(chain, Shape::contiguous);
  return method;
}

const SplitMethod& ideals_split() {
  static const SplitMethod method{{{contiguous, 1}}, {}, Shape::contiguous};
  return method;
}

const SplitMethod& refine_split() {
  static const SplitMethod method{{{any_split, 1}}, {}, Shape::any};
  return method;
}

const SplitMethod& one_stage_split() {
  static const SplitMethod method{
      {{contiguous, 0.5}, {solver, 0.5, always, multilevel}}, {}, Shape::contiguous};
  return method;
}

const SplitMethod& exact_split() {
  static const SplitMethod method{
      {{contiguous, 0.25}, {proof, 0.35}, {any_split, 0.2}, {proof, 0.3}}, {}, Shape::as_asked};
  return method;
}

// Minimum cuts decide where tensors are expensive. Where they cost next to nothing the question is
// one of sums alone: searching pays better than proving, and has no need of other starts. A search
// takes some six tenths of what it is given.
const SplitMethod& auto_split() {
  static const SplitMethod method = [] {
    SplitMethod out{{{contiguous, 0.25}}, {}, Shape::as_asked};
    out.rounds = {
        {proof, 0.4, expensive},
        {proof, 0.05, cheap},
        {solver, 0.05, expensive_and_small, metis_split, kMixes},
        {solver, 0.05, expensive_and_small, pipedream},
        {solver, 0.05, expensive_and_small, binpack2d, kMixes},
        {solver, 0.2, expensive, mixed_pipe, kMixes},
        {solver, 0.05, cheap, mixed_pipe, kMixes},
        {any_split, 0.6, expensive},
        {any_split, 1.15, cheap},
        {solver, 0.1, expensive_or_large, multilevel},
        {proof, 0.1, expensive},
        {proof, 0.05, cheap},
    };
    if (!has_metis()) {
      std::erase_if(out.rounds, [](const SplitStep& step) { return step.solver == metis_split; });
    }
    return out;
  }();
  return method;
}

const SplitMethod& mixed_pipe_split() {
  static const SplitMethod method = [] {
    SplitMethod out = one_solver(mixed_pipe, Shape::any);
    out.for_short_memory = true;
    return out;
  }();
  return method;
}

const SplitMethod& multilevel_split() {
  static const SplitMethod method = one_solver(multilevel, Shape::contiguous);
  return method;
}

const SplitMethod& acyclic_split_method() {
  static const SplitMethod method = one_solver(single_level, Shape::contiguous);
  return method;
}

const SplitMethod& metis_split_method() {
  static const SplitMethod method = one_solver(metis_split, Shape::any);
  return method;
}

const SplitMethod& pipedream_split() {
  static const SplitMethod method = one_solver(pipedream, Shape::contiguous);
  return method;
}

const SplitMethod& binpack2d_split() {
  static const SplitMethod method = one_solver(binpack2d, Shape::any);
  return method;
}

}  // namespace kerf::place
