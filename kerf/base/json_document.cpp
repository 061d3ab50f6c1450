// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <unordered_set>

#include "kerf/base/file.h"
#include "kerf/base/utf8.h"

namespace kerf {
namespace {

constexpr std::size_t kMaxDepth = 200;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Characters that stand for themselves inside a string: not the end, an escape, a control character
// or part of a longer one.
constexpr std::array<bool, 256> make_plain() {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}
constexpr std::array<bool, 256> kPlain = make_plain();
bool is_plain(char c) { return kPlain[static_cast<unsigned char>(c)]; }

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0U | (code >> 6));
  } else if (code < 0x10000) {
    put(0xe0U | (code >> 12));
    put(0x80U | ((code >> 6) & 0x3fU));
  } else {
    put(0xf0U | (code >> 18));
    put(0x80U | ((code >> 12) & 0x3fU));
    put(0x80U | ((code >> 6) & 0x3fU));
  }
  put(0x80U | (code & 0x3fU));
}

bool is_high_surrogate(std::uint32_t code) { return code >= 0xd800 && code <= 0xdbff; }
bool is_low_surrogate(std::uint32_t code) { return code >= 0xdc00 && code <= 0xdfff; }

// Four hex digits; the text is known to hold them.
std::uint32_t hex4(std::string_view digits) {
  std::uint32_t code = 0;
  std::from_chars(digits.data(), digits.data() + 4, code, 16);
  return code;
}

// Adds the character of the escape that starts after a backslash at `at`; returns where it ends.
std::size_t append_escaped(std::string_view text, std::size_t at, std::string& out) {
  switch (const char c = text[at]) {
    case 'b': out += '\b'; return at + 1;
    case 'f': out += '\f'; return at + 1;
    case 'n': out += '\n'; return at + 1;
    case 'r': out += '\r'; return at + 1;
    case 't': out += '\t'; return at + 1;
    case 'u': break;
    default: out += c; return at + 1;
  }
  const std::uint32_t code = hex4(text.substr(at + 1));
  if (!is_high_surrogate(code)) {
    append_utf8(out, code);
    return at + 5;
  }
  const std::uint32_t low = hex4(text.substr(at + 7));
  append_utf8(out, 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00));
  return at + 11;
}

// Does a number that no double can hold have too large a magnitude, or too small a one? Asked when
// one or the other is certain, so the place of its first digit decides.
bool is_too_large(std::string_view token) {
  if (token.starts_with('-')) token.remove_prefix(1);
  const std::size_t mark = token.find_first_of("eE");
  const std::string_view mantissa = token.substr(0, mark);
  const auto point = static_cast<std::int64_t>(std::min(mantissa.find('.'), mantissa.size()));
  const std::size_t digit = mantissa.find_first_of("123456789");
  if (digit == std::string_view::npos) return false;
  if (mark == std::string_view::npos) return static_cast<std::int64_t>(digit) < point;
  std::string_view power = token.substr(mark + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  std::int64_t exponent = 0;
  const auto [rest, status] = std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (status != std::errc{}) return !power.starts_with('-');
  // A text is shorter than 2^31, so nothing here overflows.
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  return std::clamp(exponent, -kMost, kMost) + point - static_cast<std::int64_t>(digit) > 0;
}

// An upper bound of the entries a text needs, so that they are allocated once.
std::size_t count_entries(std::string_view text) {
  std::size_t count = 1;
  for (const char c : text) {
    count += static_cast<std::size_t>(c == ',') + static_cast<std::size_t>(c == ':');
    count += static_cast<std::size_t>((c | 0x20) == '{') * 2;  // '[' and '{' differ by one bit
  }
  return count;
}

}  // namespace

// One pass, no recursion: the open containers are a list of their numbers.
class JsonParser {
 public:
  JsonParser(std::string_view text, std::string_view source, ErrorKind kind) : text_(text) {
    document_.text_ = text;
    document_.source_ = std::string(source);
    document_.kind_ = kind;
  }

  JsonDocument run() {
    if (text_.size() >= std::numeric_limits<std::uint32_t>::max() / 2) {
      fail_with(0, "2 GiB of text or more; expected less; split the file");
    }
    starts().reserve(count_entries(text_));
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    skip();
    value();
    while (!open_.empty()) continue_container();
    skip();
    if (at_ != text_.size()) fail("the end of the text");
    return std::move(document_);
  }

 private:
  std::vector<std::uint32_t>& starts() { return document_.starts_; }

  [[noreturn]] void fail(std::string_view expected) const { fail_at(at_, expected); }
  [[noreturn]] void fail_at(std::size_t at, std::string_view expected) const {
    const std::string_view rest = text_.substr(std::min(at, text_.size()));
    fail_with(at,
              fmt::format("found {}; expected {}; the file may be truncated: write it again",
                          rest.empty() ? "the end of the text" : shown(rest.front()), expected));
  }
  [[noreturn]] void fail_with(std::size_t at, std::string_view message) const {
    const std::string_view before = text_.substr(0, std::min(at, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const std::size_t last = before.rfind('\n');
    const std::size_t column = before.size() - (last == std::string_view::npos ? 0 : last + 1) + 1;
    throw Error(document_.kind_,
                fmt::format("[base.json] {}:{}:{}: {}", document_.source_, line, column, message));
  }
  static std::string shown(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < 0x7f ? fmt::format("'{}'", c)
                                       : fmt::format("the byte 0x{:02x}", byte);
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  // A scalar as a whole; of a container the opening bracket.
  void value() {
    const char c = peek();
    switch (c) {
      case '{':
      case '[': return open_container();
      case '"': return string();
      case 't': return literal("true");
      case 'f': return literal("false");
      case 'n': return literal("null");
      default: break;
    }
    if (c != '-' && !is_digit(c)) fail("a value");
    number();
  }

  void note() { starts().push_back(static_cast<std::uint32_t>(at_)); }

  void open_container() {
    if (open_.size() == kMaxDepth) {
      fail_with(at_, fmt::format("nested deeper than {} levels; expected a file written by Kerf; "
                                 "write it again",
                                 kMaxDepth));
    }
    open_.push_back(static_cast<std::uint32_t>(starts().size()));
    first_keys_.push_back(keys_.size());
    note();
    starts().push_back(0);
    ++at_;
    skip();
    fresh_ = true;
  }

  // From a place before an element or a key, or before the closing bracket.
  void continue_container() {
    const std::uint32_t container = open_.back();
    const bool object = text_[starts()[container]] == '{';
    const char close = object ? '}' : ']';
    if (peek() == close) {
      ++at_;
      starts()[container + 1] = static_cast<std::uint32_t>(starts().size());
      open_.pop_back();
      check_keys(first_keys_.back());
      first_keys_.pop_back();
      fresh_ = false;
      return skip();
    }
    if (!fresh_) {
      if (peek() != ',') fail(object ? "',' or '}'" : "',' or ']'");
      ++at_;
      skip();
    }
    fresh_ = false;
    if (object) key();
    value();
    skip();
  }

  void key() {
    if (peek() != '"') fail("a key in quotes");
    const std::size_t start = at_ + 1;
    string();
    keys_.push_back(text_.substr(start, at_ - 1 - start));
    skip();
    if (peek() != ':') fail("':'");
    ++at_;
    skip();
  }

  // Of two fields with one name some readers take the first and some the last. Takes the keys of a
  // closed object off the list. A key with escapes counts as it is written.
  void check_keys(std::size_t first) {
    const auto begin = keys_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto length = static_cast<std::size_t>(keys_.end() - begin);
    const auto refuse = [&](std::string_view key) {
      fail_with(static_cast<std::size_t>(key.data() - text_.data()) - 1,
                fmt::format("the key \"{}\" a second time; expected each key of an object once; "
                            "remove one of them",
                            key));
    };
    if (length <= 16) {
      for (auto key = begin; key != keys_.end(); ++key) {
        if (std::find(begin, key, *key) != key) refuse(*key);
      }
    } else {
      std::unordered_set<std::string_view> seen;
      seen.reserve(length);
      for (auto key = begin; key != keys_.end(); ++key) {
        if (!seen.insert(*key).second) refuse(*key);
      }
    }
    keys_.resize(first);
  }

  void literal(std::string_view word) {
    note();
    for (const char c : word) {
      if (peek() != c) fail(word);
      ++at_;
    }
  }

  void string() {
    note();
    ++at_;
    for (;;) {
      while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
      if (at_ == text_.size()) fail("a closing quote");
      if (text_[at_] == '"') break;
      if (text_[at_] == '\\') {
        escape();
        continue;
      }
      const std::size_t length = utf8_length(text_, at_);
      if (length == 0) fail("a character of UTF-8, control characters as \\u00HH");
      at_ += length;
    }
    ++at_;
  }

  void escape() {
    ++at_;
    if (peek() != 'u') {
      if (peek() == '\0' || std::string_view("\"\\/bfnrt").find(peek()) == std::string_view::npos) {
        fail("one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
      }
      ++at_;
      return;
    }
    const std::uint32_t code = unicode();
    if (is_low_surrogate(code)) fail("a high surrogate before a low one");
    if (!is_high_surrogate(code)) return;
    if (text_.substr(at_, 2) != "\\u") fail("the low surrogate of a pair");
    ++at_;
    if (!is_low_surrogate(unicode())) fail("the low surrogate of a pair");
  }
  // From the 'u' on.
  std::uint32_t unicode() {
    ++at_;
    const std::string_view digits = text_.substr(at_, 4);
    const auto is_hex = [](char c) {
      return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    };
    const auto bad = std::find_if_not(digits.begin(), digits.end(), is_hex);
    at_ += static_cast<std::size_t>(bad - digits.begin());
    if (digits.size() < 4 || bad != digits.end()) fail("four hex digits");
    return hex4(digits);
  }

  void digits() {
    if (!is_digit(peek())) fail("a digit");
    while (is_digit(peek())) ++at_;
  }
  void number() {
    note();
    const std::size_t start = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else {
      digits();
    }
    if (peek() == '.') {
      ++at_;
      digits();
    }
    const bool exponent = peek() == 'e' || peek() == 'E';
    if (exponent) {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
    // Without an exponent it takes more digits than this to leave the range of a double.
    if (exponent || at_ - start > 300) check_range(start);
  }
  void check_range(std::size_t start) const {
    double number = 0;
    const char* const end = text_.data() + at_;
    const auto [rest, status] = std::from_chars(text_.data() + start, end, number);
    if (status == std::errc{} || !is_too_large(text_.substr(start, at_ - start))) return;
    fail_with(start, "a number too large for a double; expected a finite one; fix the file");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::uint32_t> open_;
  std::vector<std::string_view> keys_;   // of the open objects, innermost last
  std::vector<std::size_t> first_keys_;  // of each open container, in keys_
  bool fresh_ = false;                   // just after an opening bracket
  JsonDocument document_;
};

std::string_view to_string(JsonType type) {
  constexpr std::string_view kNames[] = {"null", "boolean", "number", "string", "array", "object"};
  return kNames[static_cast<std::size_t>(type)];
}

JsonType JsonDocument::type(Index value) const {
  switch (text_[starts_[value]]) {
    case '{': return JsonType::object;
    case '[': return JsonType::array;
    case '"': return JsonType::string;
    case 't':
    case 'f': return JsonType::boolean;
    case 'n': return JsonType::null;
    default: return JsonType::number;
  }
}

bool JsonDocument::equals(Index value, std::string_view expected) const {
  std::size_t at = starts_[value] + 1;
  for (const char c : expected) {
    if (text_[at] == '\\') return string(value) == expected;
    if (text_[at] != c || c == '"') return false;
    ++at;
  }
  return text_[at] == '"';
}

std::string JsonDocument::string(Index value) const {
  std::size_t at = starts_[value] + 1;
  std::size_t end = at;
  while (text_[end] != '"' && text_[end] != '\\') ++end;
  std::string out(text_.substr(at, end - at));
  for (at = end; text_[at] != '"';) {
    if (text_[at] == '\\') {
      at = append_escaped(text_, at + 1, out);
    } else {
      out += text_[at++];
    }
  }
  return out;
}

std::string_view JsonDocument::token(Index value) const {
  const std::size_t start = starts_[value];
  std::size_t end = start;
  while (end < text_.size() && (is_digit(text_[end]) || text_[end] == '-' || text_[end] == '+' ||
                                text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E')) {
    ++end;
  }
  return text_.substr(start, end - start);
}

double JsonDocument::number(Index value) const {
  const std::string_view digits = token(value);
  double out = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return out;  // as it was, 0, where the number is too small for a double
}

std::string JsonDocument::path(Index value) const {
  std::string out = source_;
  for (Index container = 0; container != value;) {
    const bool object = text_[starts_[container]] == '{';
    Index child = first(container);
    Index key = child;
    std::size_t position = 0;
    for (;; ++position) {
      key = child;
      if (object) ++child;
      if (value < next(child)) break;
      child = next(child);
    }
    out += object ? ": " + string(key) : fmt::format("[{}]", position);
    container = child;
  }
  return out;
}

JsonDocument parse_json(std::string_view text, std::string_view source, ErrorKind kind) {
  return JsonParser(text, source, kind).run();
}

JsonDocument load_json(const std::string& path, ErrorKind kind) {
  auto text = std::make_unique<const std::string>(read_file(path));
  JsonDocument document = parse_json(std::string_view(*text), path, kind);
  document.owned_ = std::move(text);
  return document;
}

}  // namespace kerf
