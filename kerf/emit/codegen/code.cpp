// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/code.h"

namespace kerf::codegen {
namespace {

std::string_view opening(Bracket bracket) {
  switch (bracket) {
    case Bracket::none: return "";
    case Bracket::list:
    case Bracket::subscript: return "[";
    case Bracket::dict: return "{";
    default: return "(";
  }
}

std::string_view closing(Bracket bracket) {
  switch (bracket) {
    case Bracket::none: return "";
    case Bracket::list:
    case Bracket::subscript: return "]";
    case Bracket::dict: return "}";
    default: return ")";
  }
}

std::string joined(const std::vector<Code>& items, std::string_view between = ", ") {
  std::string out;
  for (const Code& item : items) {
    if (!out.empty()) out += between;
    out += flat(item);
  }
  return out;
}

// Columns, not bytes: continuation bytes of UTF-8 take none.
std::size_t width(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

}  // namespace

Code Code::after(std::string_view before) const {
  Code out = *this;
  out.text.insert(0, before);
  return out;
}

std::string flat(const Code& code) {
  if (code.bracket == Bracket::none) return code.text + code.tail;
  if (code.bracket == Bracket::operation) return code.text + joined(code.items, " ") + code.tail;
  const bool lone = code.items.size() == 1;
  const std::string inside = joined(code.items);
  if (code.bracket == Bracket::series) return code.text + inside + (lone ? "," : "") + code.tail;
  const bool comma = code.bracket == Bracket::tuple && lone;
  return code.text + std::string(opening(code.bracket)) + inside + (comma ? "," : "") +
         std::string(closing(code.bracket)) + code.tail;
}

void Lines::line(std::size_t depth, std::string_view text) {
  if (!text.empty()) text_.append(depth, ' ');
  text_ += text;
  text_ += '\n';
}

void Lines::blank(std::size_t count) { text_.append(count, '\n'); }

void Lines::raw(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    line(depth_, text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

void Lines::add(const Code& statement) { write(statement, depth_, ""); }

void Lines::write(const Code& code, std::size_t depth, std::string_view after) {
  const std::string whole = flat(code) + std::string(after);
  const bool fits = depth + width(whole) <= kLineWidth;
  if (fits || code.bracket == Bracket::none || code.items.empty()) {
    line(depth, whole);
  } else if (code.bracket == Bracket::call) {
    open_on_one_line(code, ", ", depth, after);
  } else if (code.bracket == Bracket::operation) {
    open_on_one_line(code, " ", depth, after);
  } else {
    open(code, depth, after);
  }
}

void Lines::open_on_one_line(const Code& code, std::string_view between, std::size_t depth,
                             std::string_view after) {
  const std::string inside = joined(code.items, between);
  if (depth + 4 + width(inside) > kLineWidth) return open(code, depth, after);
  line(depth, code.text + "(");
  line(depth + 4, inside);
  line(depth, ")" + code.tail + std::string(after));
}

void Lines::open(const Code& code, std::size_t depth, std::string_view after) {
  line(depth, code.text + std::string(opening(code.bracket)));
  const bool comma = code.bracket != Bracket::subscript && code.bracket != Bracket::operation;
  for (const Code& item : code.items) write(item, depth + 4, comma ? "," : "");
  line(depth, std::string(closing(code.bracket)) + code.tail + std::string(after));
}

}  // namespace kerf::codegen
