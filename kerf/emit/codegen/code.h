// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Python source as a formatter would leave it: what fits on a line stands on one, and what does not
// is opened at its last bracket. `ruff format` with lines of 100 changes nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kerf::codegen {

inline constexpr std::size_t kLineWidth = 100;

// What a bracket holds decides how it opens.
enum class Bracket {
  none,       // plain text
  call,       // arguments may share one line of their own
  list,       // one item a line
  tuple,      // the same; one item is written "(x,)"
  dict,       // the same; items are "key: value"
  subscript,  // of an index, without a comma at its end
  series,     // a tuple without parentheses where it fits: return a, b
  operation,  // in parentheses where it does not fit: an operand, then an operator with the other
};

// An expression, or a statement that ends with one: text, then perhaps a bracket with items, then
// perhaps more text.
struct Code {
  std::string text;
  Bracket bracket = Bracket::none;
  std::vector<Code> items = {};
  std::string tail = {};

  Code() = default;
  Code(std::string plain) : text(std::move(plain)) {}  // NOLINT: a text is code
  Code(const char* plain) : text(plain) {}             // NOLINT
  Code(std::string head, Bracket kind, std::vector<Code> inside, std::string rest = {})
      : text(std::move(head)), bracket(kind), items(std::move(inside)), tail(std::move(rest)) {}

  // With text in front, as in "name = " or "key: ".
  Code after(std::string_view before) const;
};

// On one line.
std::string flat(const Code& code);

// Lines of a file, with the indentation of the block that is open.
class Lines {
 public:
  void add(const Code& statement);
  void blank(std::size_t count = 1);
  // As it is, line by line: comments, and text that is known to be formatted.
  void raw(std::string_view text);
  void indent() { depth_ += 4; }
  void dedent() { depth_ -= 4; }
  std::size_t depth() const { return depth_; }
  bool empty() const { return text_.empty(); }
  const std::string& text() const { return text_; }

 private:
  void line(std::size_t depth, std::string_view text);
  void open(const Code& code, std::size_t depth, std::string_view after);
  void open_on_one_line(const Code& code, std::string_view between, std::size_t depth,
                        std::string_view after);
  void write(const Code& code, std::size_t depth, std::string_view after);

  std::string text_;
  std::size_t depth_ = 0;
};

}  // namespace kerf::codegen
