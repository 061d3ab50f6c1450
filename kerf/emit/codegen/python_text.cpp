// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "kerf/base/printable.h"

namespace kerf::codegen {
namespace {

constexpr std::array<std::string_view, 35> kKeywords{
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};

// Names that the written code itself uses in a stage, and some that read like numbers.
constexpr std::array<std::string_view, 44> kUsed{
    "match",      "case",    "type",    "self",  "torch",  "F",       "nn",     "B",
    "checkpoint", "tuple",   "list",    "dict",  "super",  "int",     "float",  "bool",
    "str",        "zip",     "slice",   "print", "len",    "max",     "min",    "sum",
    "abs",        "getattr", "complex", "fill",  "unpack", "keeping", "Tensor", "Number",
    "Row",        "Made",    "Node",    "Again", "Member", "bytes",   "set",    "frozenset",
    "ANY_DEVICE", "l",       "I",       "O"};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

template <std::size_t n>
bool has(const std::array<std::string_view, n>& words, std::string_view text) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool is_reserved(std::string_view text) { return has(kKeywords, text) || has(kUsed, text); }

// As ruff chooses: double quotes, unless single ones need fewer escapes.
char quote_for(std::string_view text) {
  const auto doubles = std::count(text.begin(), text.end(), '"');
  const auto singles = std::count(text.begin(), text.end(), '\'');
  return doubles > singles ? '\'' : '"';
}

// May the operand of ** stand next to it without a space, as formatters have it?
bool is_simple(std::string_view operand) {
  return !operand.empty() &&
         std::all_of(operand.begin(), operand.end(), [](char c) { return is_word(c); });
}

// "(B**2)" -> "B**2", and "(B+1)*(B+2)" as it is.
std::string_view without_outer_brackets(std::string_view text) {
  if (!text.starts_with('(')) return text;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0) return i + 1 == text.size() ? text.substr(1, text.size() - 2) : text;
  }
  return text;
}

// Puts spaces around binary operators: "12*B+1" -> "12 * B + 1".
std::string spaced(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool doubled = i + 1 < text.size() && text[i + 1] == c && (c == '*' || c == '/');
    const char before = out.empty() ? '(' : out[out.find_last_not_of(' ')];
    if (c == ' ') continue;
    if (c == ',') {
      out += ", ";
    } else if (std::string_view("+-*/%").find(c) == std::string_view::npos ||
               std::string_view("(,+-*/%").find(before) != std::string_view::npos) {
      out += c;  // a digit, a name, a bracket, or a sign
    } else {
      const bool tight = doubled && c == '*' && is_simple(text.substr(i + 2, 1)) && before != ')';
      const std::string op(doubled ? 2 : 1, c);
      out += tight ? op : " " + op + " ";
      i += doubled ? 1 : 0;
    }
  }
  return out;
}

}  // namespace

std::string string_literal(std::string_view text) {
  const char quote = quote_for(text);
  std::string out(1, quote);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string number_literal(double number) {
  if (std::isnan(number)) return "torch.nan";
  if (std::isinf(number)) return number < 0 ? "-torch.inf" : "torch.inf";
  std::string out = fmt::format("{}", number);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  std::erase(out, '+');  // 1e38, as formatters write it
  return out;
}

std::string number_literal(std::complex<double> number) {
  return fmt::format("complex({}, {})", number_literal(number.real()),
                     number_literal(number.imag()));
}

std::string size_text(const Expr& size, bool in_product) {
  const std::string out = spaced(without_outer_brackets(size.str()));
  const bool plain = out.find(' ') == std::string::npos;
  return in_product && !plain ? "(" + out + ")" : out;
}

std::string sizes_text(const Sizes& sizes) {
  std::string out = "(";
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    out += (d > 0 ? ", " : "") + size_text(sizes[d]);
  }
  return out + (sizes.size() == 1 ? ",)" : ")");
}

bool is_attribute(std::string_view text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
         std::all_of(text.begin(), text.end(), is_word) && !has(kKeywords, text);
}

bool is_identifier(std::string_view text) { return is_attribute(text) && !has(kUsed, text); }

std::string identifier(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_word(c)) {
      out += c;
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
  }
  const std::size_t first = out.find_first_not_of('_');
  out = first == std::string::npos ? "value" : out.substr(first);
  out.resize(std::min<std::size_t>(out.find_last_not_of('_') + 1, 40));
  if (std::isdigit(static_cast<unsigned char>(out[0])) != 0) out.insert(0, "value_");
  if (is_reserved(out)) out += "_value";
  return out;
}

std::string comment_text(std::string_view text) {
  std::string out = printable(text);
  std::replace(out.begin(), out.end(), '\n', ' ');
  std::replace(out.begin(), out.end(), '"', '\'');
  std::replace(out.begin(), out.end(), '\\', '/');
  return out;
}

std::string folded(std::string text, std::size_t room, std::string_view indent) {
  std::size_t start = 0;
  while (text.size() - start > room) {
    std::size_t space = text.rfind(' ', start + room);
    if (space == std::string::npos || space <= start) space = text.find(' ', start + room);
    if (space == std::string::npos) break;
    text.replace(space, 1, "\n" + std::string(indent));
    start = space + 1 + indent.size();
  }
  return text;
}

}  // namespace kerf::codegen
