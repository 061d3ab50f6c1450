// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Plain data as Python writes it. Texts may come from a file: whatever is in them, what comes out
// is one literal, one identifier or one line of a comment.
#pragma once

#include <complex>
#include <string>
#include <string_view>

#include "kerf/graph/expr.h"
#include "kerf/graph/sizes.h"

namespace kerf::codegen {

std::string string_literal(std::string_view text);
std::string number_literal(double number);
std::string number_literal(std::complex<double> number);
// "8 * B", with B as the name of the batch. `in_product` puts brackets around what has operators.
std::string size_text(const Expr& size, bool in_product = false);
std::string sizes_text(const Sizes& sizes);  // "(B, 32)"

// A name that Python code of this file may give a value: letters, digits and "_", no keyword.
std::string identifier(std::string_view text);
bool is_identifier(std::string_view text);
// The same behind a dot, or of an argument: it may be one that the code uses otherwise.
bool is_attribute(std::string_view text);

// For comments and docstrings: printable, on one line, without quotes that would end them.
std::string comment_text(std::string_view text);

// The same on lines of at most `room` columns where its words are that short; further lines begin
// with `indent`, which is not counted.
std::string folded(std::string text, std::size_t room, std::string_view indent);

}  // namespace kerf::codegen
