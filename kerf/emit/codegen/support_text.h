// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace kerf::codegen {

// The part of a written file that is the same for all models, of which a file has what it needs:
// `needs` are names such as "Made" or "decoded".
enum class SupportPart {
  stage,     // the class Stage, which gives all stages the names and the weights of the model
  patterns,  // unpack and fill
  run,       // inputs_of and run
  check,     // check, and the program around it
};
std::string support_text(SupportPart part, const std::set<std::string>& needs);

}  // namespace kerf::codegen
