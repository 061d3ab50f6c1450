// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The parser of the text form: one line a record, recursive descent inside a line. Every mistake is
// answered with file, line and column; nothing in a file can make it recurse or allocate without
// bound.
#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <limits>
#include <unordered_map>

#include "kerf/base/error.h"
#include "kerf/base/file.h"
#include "kerf/base/printable.h"
#include "kerf/base/utf8.h"
#include "kerf/graph/name_index.h"
#include "kerf/graph/text.h"
#include "kerf/graph/text_impl.h"

namespace kerf {
namespace {

constexpr int kMajor = 1;
constexpr int kMinor = 1;
constexpr int kMaxListDepth = 64;

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

// One line of text with a reading position.
class Cursor {
 public:
  Cursor(std::string_view line, std::size_t number, std::string_view source)
      : line_(line), number_(number), source_(source) {}

  [[noreturn]] void fail(std::string_view expected) const { fail_at(at_, expected); }
  [[noreturn]] void fail_at(std::size_t at, std::string_view expected) const {
    const std::string_view rest = line_.substr(std::min(at, line_.size()));
    const std::string found =
        rest.empty() ? "the end of the line" : fmt::format("'{}'", printable(rest.substr(0, 24)));
    throw Error(ErrorKind::invalid_graph,
                fmt::format("[graph.parse] {}:{}:{}: found {}; expected {}; fix the line, or write "
                            "the file again if it is truncated",
                            source_, number_, at + 1, found, expected));
  }
  // Something below (an expression, a size) threw: add the place.
  [[noreturn]] void rethrow(const Error& error, std::size_t at) const {
    throw Error(ErrorKind::invalid_graph,
                fmt::format("[graph.parse] {}:{}:{}: {}", source_, number_, at + 1, error.what()));
  }

  void skip() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t')) ++at_;
  }
  bool at_end() {
    skip();
    return at_ == line_.size();
  }
  char peek() {
    skip();
    return at_ < line_.size() ? line_[at_] : '\0';
  }
  std::size_t position() {
    skip();
    return at_;
  }
  bool take(std::string_view token) {
    skip();
    if (line_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  // A whole word: `take_word("in")` does not take the start of "input".
  bool take_word(std::string_view word) {
    skip();
    if (line_.substr(at_, word.size()) != word) return false;
    if (at_ + word.size() < line_.size() && is_name_char(line_[at_ + word.size()])) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail(fmt::format("'{}'", token));
  }
  // The text up to the character, which is left; empty when the line has none.
  std::string_view ahead_to(char c) {
    skip();
    const std::size_t end = line_.find(c, at_);
    return end == std::string_view::npos ? std::string_view{} : line_.substr(at_, end - at_);
  }
  void pass(std::size_t characters) { at_ += characters; }
  std::string_view word() {
    skip();
    const std::size_t start = at_;
    while (at_ < line_.size() && is_name_char(line_[at_])) ++at_;
    return line_.substr(start, at_ - start);
  }
  std::string_view relation() {
    skip();
    const std::size_t start = at_;
    while (at_ < line_.size() && std::string_view("=!<>").find(line_[at_]) != std::string::npos) {
      ++at_;
    }
    return line_.substr(start, at_ - start);
  }
  std::int64_t integer() {
    skip();
    std::int64_t out = 0;
    const auto [end, status] =
        std::from_chars(line_.data() + at_, line_.data() + line_.size(), out);
    if (status != std::errc{}) fail("a whole number");
    at_ = static_cast<std::size_t>(end - line_.data());
    return out;
  }
  std::string quoted() {
    expect("\"");
    // Few texts have escapes; the rest is taken whole.
    const std::size_t end = line_.find_first_of("\"\\", at_);
    std::string out(line_.substr(at_, end - at_));
    bool escaped = false;
    at_ = std::min(end, line_.size());
    while (at_ < line_.size()) {
      const char c = line_[at_++];
      if (c == '"') {
        // The line is UTF-8; only escapes can make something else of it.
        if (escaped && find_invalid_utf8(out) < out.size()) fail("UTF-8 text");
        return out;
      }
      escaped = escaped || c == '\\';
      out += c == '\\' ? escape() : c;
    }
    fail("a closing quote");
  }
  // The text up to a delimiter outside of parentheses.
  std::string_view until(std::string_view delimiters) {
    skip();
    const std::size_t start = at_;
    int depth = 0;
    for (; at_ < line_.size(); ++at_) {
      const char c = line_[at_];
      if (depth == 0 && delimiters.find(c) != std::string_view::npos) break;
      if (c == '(') ++depth;
      if (c == ')') --depth;
    }
    return line_.substr(start, at_ - start);
  }

 private:
  char escape() {
    if (at_ >= line_.size()) fail("an escaped character");
    const char c = line_[at_++];
    switch (c) {
      case '"': return '"';
      case '\\': return '\\';
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'x': {
        unsigned value = 0;
        if (at_ + 2 > line_.size() ||
            std::from_chars(line_.data() + at_, line_.data() + at_ + 2, value, 16).ptr !=
                line_.data() + at_ + 2) {
          fail("two hex digits");
        }
        at_ += 2;
        return static_cast<char>(value);
      }
      default: fail_at(at_ - 1, "one of \\\" \\\\ \\n \\t \\r \\x");
    }
  }

  std::string_view line_;
  std::size_t number_;
  std::string_view source_;
  std::size_t at_ = 0;
};

std::string_view strip(std::string_view text) {
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool looks_floating(std::string_view token) {
  if (token == "inf" || token == "-inf" || token == "nan") return true;
  if (token.find_first_of(".e") == std::string_view::npos) return false;
  return token.find_first_not_of("0123456789.e+-") == std::string_view::npos;
}

// Lists of sizes that were read before, by their text.
using SizesByText = std::unordered_map<std::string_view, Sizes>;

class GraphParser {
 public:
  GraphParser(std::string_view text, std::string_view source) : text_(text), source_(source) {
    data_.scopes.push_back({});
  }

  // `whole`: the text must say where it ends, so that a file cut short at a line end is noticed.
  GraphData run(bool whole) {
    std::size_t number = 0;
    bool first = true;
    while (!text_.empty()) {
      ++number;
      const std::size_t end = text_.find('\n');
      std::string_view line = text_.substr(0, end);
      text_ = end == std::string_view::npos ? std::string_view{} : text_.substr(end + 1);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      Cursor cursor(line, number, source_);
      if (const std::size_t bad = find_invalid_utf8(line); bad < line.size()) {
        throw Error(ErrorKind::invalid_graph,
                    fmt::format("[graph.parse] {}:{}:{}: a byte that is not UTF-8; expected UTF-8 "
                                "text; give a graph that kerf.trace wrote",
                                source_, number, bad + 1));
      }
      if (cursor.at_end() || cursor.peek() == '#') continue;
      if (ended_) cursor.fail("nothing after 'end'");
      if (first) {
        parse_header(cursor);
        first = false;
      } else {
        parse_line(cursor);
        if (!cursor.at_end()) cursor.fail("the end of the line");
      }
    }
    if (first) Cursor("", 1, source_).fail("'kerf-graph 1.1'");
    if (whole && !ended_) Cursor("", number + 1, source_).fail("the line 'end'");
    return std::move(data_);
  }

 private:
  void parse_header(Cursor& cursor) {
    cursor.expect("kerf-graph");
    const std::int64_t major = cursor.integer();
    cursor.expect(".");
    const std::int64_t minor = cursor.integer();
    if (major != kMajor || minor > kMinor || minor < 0) {
      throw Error(ErrorKind::invalid_graph,
                  fmt::format("[graph.parse] {} has graph format {}.{}; this Kerf reads {}.0 to "
                              "{}.{}; install a newer Kerf or trace the model again",
                              source_, major, minor, kMajor, kMajor, kMinor));
    }
    if (!cursor.at_end()) cursor.fail("the end of the line");
  }

  void parse_line(Cursor& cursor) {
    if (cursor.peek() == '%') return parse_node(cursor);
    if (cursor.take_word("end")) return void(ended_ = true);
    if (cursor.take_word("graph")) return parse_graph_line(cursor);
    if (cursor.take_word("batch")) {
      data_.example_batch = cursor.integer();
      if (data_.example_batch < 1) cursor.fail("a batch of at least 1");
      return;
    }
    if (cursor.take_word("note")) return data_.notes.push_back(cursor.quoted());
    if (cursor.take_word("require")) return parse_condition(cursor);
    if (cursor.take_word("attribute")) return parse_attribute(cursor);
    if (cursor.take_word("scope")) return parse_scope(cursor);
    if (cursor.take_word("input")) {
      const ValueId id = parse_definition(cursor);
      cursor.expect("=");
      return data_.inputs.push_back({id, cursor.quoted()});
    }
    if (cursor.take_word("weight")) return parse_weight(cursor);
    if (cursor.take_word("output")) {
      std::string path = cursor.quoted();
      cursor.expect("=");
      return data_.outputs.push_back({parse_argument(cursor, nullptr, 0), std::move(path)});
    }
    if (cursor.take_word("in_spec")) return void(data_.in_spec = cursor.quoted());
    if (cursor.take_word("out_spec")) return void(data_.out_spec = cursor.quoted());
    parse_node(cursor);
  }

  void parse_graph_line(Cursor& cursor) {
    data_.name = cursor.quoted();
    data_.training = cursor.take_word("training");
  }

  void parse_condition(Cursor& cursor) {
    Condition condition;
    condition.left = parse_size(cursor, "=!<");
    const std::size_t at = cursor.position();
    const auto relation = find_relation(cursor.relation());
    if (!relation) cursor.fail_at(at, "==, !=, < or <=");
    condition.relation = *relation;
    condition.right = parse_size(cursor, ";");
    if (cursor.take(";")) {
      cursor.expect("source=");
      condition.source = cursor.quoted();
    }
    data_.conditions.push_back(std::move(condition));
  }

  void parse_attribute(Cursor& cursor) {
    Attribute attribute;
    attribute.path = cursor.quoted();
    attribute.name = cursor.quoted();
    cursor.expect("=");
    attribute.value = parse_argument(cursor, nullptr, 0);
    data_.attributes.push_back(std::move(attribute));
  }

  void parse_scope(Cursor& cursor) {
    const std::size_t at = cursor.position();
    const std::int64_t index = cursor.integer();
    const std::int64_t next = static_cast<std::int64_t>(data_.scopes.size());
    if (index != next && index != 0) {
      cursor.fail_at(at, fmt::format("scope {}: scopes are numbered in order", next));
    }
    Scope scope;
    scope.path = cursor.quoted();
    scope.class_name = cursor.quoted();
    if (index == 0) {
      data_.scopes[0] = std::move(scope);
    } else {
      data_.scopes.push_back(std::move(scope));
    }
  }

  void parse_weight(Cursor& cursor) {
    Weight weight;
    weight.value = parse_definition(cursor);
    cursor.expect("=");
    const std::size_t at = cursor.position();
    const auto kind = find_weight_kind(cursor.word());
    if (!kind) cursor.fail_at(at, "parameter, buffer, non_persistent_buffer or constant");
    weight.kind = *kind;
    do weight.names.push_back(cursor.quoted());
    while (cursor.take(","));
    if (cursor.take_word("data")) weight.data = parse_hex(cursor);
    data_.weights.push_back(std::move(weight));
  }

  static std::string parse_hex(Cursor& cursor) {
    const std::size_t at = cursor.position();
    const std::string_view digits = cursor.word();
    std::string out(digits.size() / 2, '\0');
    for (std::size_t i = 0; i < out.size(); ++i) {
      unsigned byte = 0;
      const char* start = digits.data() + 2 * i;
      if (std::from_chars(start, start + 2, byte, 16).ptr != start + 2) {
        cursor.fail_at(at, "pairs of hex digits");
      }
      out[i] = static_cast<char>(byte);
    }
    if (digits.empty() || digits.size() % 2 != 0) cursor.fail_at(at, "pairs of hex digits");
    return out;
  }

  auto name_of() const {
    return [this](std::uint32_t value) -> std::string_view { return data_.values[value].name; };
  }

  // Refers to the text where it can; else to `unquoted`.
  static std::string_view parse_name(Cursor& cursor, std::string& unquoted) {
    if (cursor.peek() == '"') return unquoted = cursor.quoted();
    const std::string_view name = cursor.word();
    if (name.empty()) cursor.fail("a name");
    return name;
  }

  ValueId parse_reference(Cursor& cursor) {
    const std::size_t at = cursor.position();
    if (!cursor.take("%") && !cursor.take("@")) cursor.fail("a value, %name or @name");
    std::string unquoted;
    const std::uint32_t found = by_name_.find(parse_name(cursor, unquoted), name_of());
    if (found == NameIndex::kNone) cursor.fail_at(at, "a value made on a line above");
    return ValueId(found);
  }

  Expr parse_size(Cursor& cursor, std::string_view delimiters) {
    const std::size_t at = cursor.position();
    try {
      return Expr::parse(strip(cursor.until(delimiters)));
    } catch (const Error& error) {
      cursor.rethrow(error, at);
    }
  }

  Sizes parse_sizes(Cursor& cursor, char close) {
    const std::string_view text = cursor.ahead_to(close);
    const auto known = sizes_.find(text);
    if (known != sizes_.end() && !text.empty()) {
      cursor.pass(text.size() + 1);
      return known->second;
    }
    std::vector<Expr> out;
    if (cursor.take({&close, 1})) return out;
    do out.push_back(parse_size(cursor, close == ']' ? ",]" : ",}"));
    while (cursor.take(","));
    cursor.expect({&close, 1});
    return sizes_.emplace(text, std::move(out)).first->second;
  }

  ValueId parse_definition(Cursor& cursor) {
    const std::size_t at = cursor.position();
    if (!cursor.take("%") && !cursor.take("@")) {
      cursor.fail(
          "a record: graph, batch, note, require, attribute, scope, input, weight, output, or "
          "%name: type = operator(...)");
    }
    Value value;
    std::string unquoted;
    const std::string_view name = parse_name(cursor, unquoted);
    value.name = std::string(name);
    if (by_name_.find(name, name_of()) != NameIndex::kNone) {
      cursor.fail_at(at, "a name that is not used above");
    }
    cursor.expect(":");
    value.scalar = cursor.take_word("scalar");
    const std::size_t dtype_at = cursor.position();
    const auto dtype = find_dtype(cursor.word());
    if (!dtype) cursor.fail_at(dtype_at, "a dtype such as f32, bf16, i64 or bool");
    value.dtype = *dtype;
    if (!value.scalar) parse_layout(cursor, value, at);
    const ValueId id(data_.values.size());
    data_.values.push_back(std::move(value));
    by_name_.add(name, static_cast<std::uint32_t>(id.index()), name_of());
    return id;
  }

  void parse_layout(Cursor& cursor, Value& value, std::size_t at) {
    cursor.expect("[");
    const std::string_view shape = cursor.ahead_to(']');
    value.shape = parse_sizes(cursor, ']');
    value.strides = contiguous(cursor, value.shape, shape, at);
    if (cursor.take("{")) value.strides = parse_sizes(cursor, '}');
    if (cursor.take_word("in")) {
      value.storage = data_.values[parse_reference(cursor).index()].storage;
    } else {
      value.storage = StorageId(data_.storages.size());
      data_.storages.push_back({parse_storage_bytes(cursor, value, at)});
    }
    if (cursor.take("+")) value.offset = parse_size(cursor, " ,=");
    value.requires_grad = cursor.take_word("grad");
  }

  const Sizes& contiguous(const Cursor& cursor, const Sizes& shape, std::string_view text,
                          std::size_t at) {
    const auto known = contiguous_.find(text);
    if (known != contiguous_.end()) return known->second;
    try {
      return contiguous_.emplace(text, contiguous_strides(shape)).first->second;
    } catch (const Error& error) {
      cursor.rethrow(error, at);
    }
  }

  Expr parse_storage_bytes(Cursor& cursor, const Value& value, std::size_t at) {
    if (cursor.take_word("bytes")) return parse_size(cursor, " ,=");
    try {
      return element_bytes(value.dtype, value.shape);
    } catch (const Error& error) {
      cursor.rethrow(error, at);
    }
  }

  void parse_node(Cursor& cursor) {
    Node node;
    if (!cursor.take("()")) {
      do {
        node.outputs.push_back(cursor.take_word("_") ? ValueId{} : parse_definition(cursor));
      } while (cursor.take(","));
    }
    cursor.expect("=");
    const std::size_t at = cursor.position();
    node.op = std::string(cursor.until("("));
    if (node.op.empty() || node.op.find(' ') != std::string::npos) {
      cursor.fail_at(at, "an operator such as aten.linear.default");
    }
    cursor.expect("(");
    // Outputs stand left of their arguments, but cannot be used by them.
    arguments_.clear();
    if (!cursor.take(")")) {
      do parse_named_argument(cursor, node);
      while (cursor.take(","));
      cursor.expect(")");
    }
    node.args.assign(std::move_iterator(arguments_.begin()), std::move_iterator(arguments_.end()));
    if (!node.outputs.empty() && node.outputs[0].valid()) {
      node.name = data_.values[node.outputs[0].index()].name;
    }
    if (cursor.take(";")) parse_attributes(cursor, node);
    data_.nodes.push_back(std::move(node));
  }

  void parse_named_argument(Cursor& cursor, Node& node) {
    NamedArgument argument;
    Cursor ahead = cursor;
    const std::string_view name = ahead.word();
    if (!name.empty() && ahead.take("=")) {
      argument.name = std::string(name);
      cursor = ahead;
    }
    argument.value = parse_argument(cursor, &node, 0);
    arguments_.push_back(std::move(argument));
  }

  void parse_attributes(Cursor& cursor, Node& node) {
    while (!cursor.at_end()) {
      if (cursor.take("name=")) {
        node.name = cursor.quoted();
      } else if (cursor.take("scope=")) {
        const std::size_t at = cursor.position();
        const std::int64_t scope = cursor.integer();
        if (scope < 0 || scope >= static_cast<std::int64_t>(data_.scopes.size())) {
          cursor.fail_at(at, "a scope declared above");
        }
        node.scope = ScopeId(scope);
      } else if (cursor.take("source=")) {
        node.source = cursor.quoted();
      } else if (cursor.take("region=")) {
        node.region = cursor.quoted();
      } else if (cursor.take_word("no_grad")) {
        node.grad_enabled = false;
      } else if (cursor.take_word("random")) {
        node.random = true;
      } else if (cursor.take("autocast=")) {
        node.autocast.push_back(parse_autocast(cursor));
      } else {
        cursor.fail("name=, scope=, source=, region=, no_grad, random or autocast=");
      }
    }
  }

  Autocast parse_autocast(Cursor& cursor) {
    Autocast out;
    out.device_type = std::string(cursor.until(": "));
    cursor.expect(":");
    const std::size_t at = cursor.position();
    const auto dtype = find_dtype(cursor.word());
    if (!dtype) cursor.fail_at(at, "a dtype");
    out.dtype = *dtype;
    cursor.expect(":");
    out.enabled = cursor.take_word("on");
    if (!out.enabled && !cursor.take_word("off")) cursor.fail("on or off");
    return out;
  }

  Argument parse_argument(Cursor& cursor, Node* node, int depth) {
    if (depth > kMaxListDepth) cursor.fail("fewer nested lists");
    const char c = cursor.peek();
    if (c == '%' || c == '@' || c == '&' || c == '~') return {parse_value(cursor, node)};
    if (c == '"') return {cursor.quoted()};
    if (cursor.take("[")) return {parse_list(cursor, node, depth)};
    if (cursor.take_word("none")) return {};
    if (cursor.take_word("true")) return {true};
    if (cursor.take_word("false")) return {false};
    return parse_constant(cursor);
  }

  ValueId parse_value(Cursor& cursor, Node* node) {
    const bool written = cursor.take("&");
    const bool aliased = cursor.take("~");
    const std::size_t at = cursor.position();
    const ValueId id = parse_reference(cursor);
    if ((written || aliased) && node == nullptr) cursor.fail_at(at, "a plain value");
    if (written) node->written.push_back(id);
    if (aliased) node->may_alias.push_back(id);
    return id;
  }

  Argument::List parse_list(Cursor& cursor, Node* node, int depth) {
    Argument::List out;
    if (cursor.take("]")) return out;
    do out.push_back(parse_argument(cursor, node, depth + 1));
    while (cursor.take(","));
    cursor.expect("]");
    return out;
  }

  // Numbers, sizes in B, and calls such as dtype(f32), device("cuda:1"), layout(strided).
  Argument parse_constant(Cursor& cursor) {
    const std::size_t at = cursor.position();
    Cursor ahead = cursor;
    const std::string_view word = ahead.word();
    if (!word.empty() && word != "max" && word != "min" && ahead.take("(")) {
      cursor = ahead;
      return parse_call(cursor, word, at);
    }
    const std::string_view token = strip(cursor.until(",)]"));
    if (looks_floating(token)) return {parse_floating(cursor, token, at)};
    try {
      return {Expr::parse(token)};
    } catch (const Error& error) {
      cursor.rethrow(error, at);
    }
  }

  double parse_floating(const Cursor& cursor, std::string_view token, std::size_t at) {
    if (token == "nan") return std::numeric_limits<double>::quiet_NaN();
    double out = 0;
    const auto [end, status] = std::from_chars(token.data(), token.data() + token.size(), out);
    if (status != std::errc{} || end != token.data() + token.size()) cursor.fail_at(at, "a number");
    return out;
  }

  Argument parse_call(Cursor& cursor, std::string_view name, std::size_t at) {
    Argument out;
    if (name == "dtype") {
      const auto dtype = find_dtype(cursor.word());
      if (!dtype) cursor.fail_at(at, "a dtype such as dtype(f32)");
      out.data = *dtype;
    } else if (name == "device") {
      out.data = DeviceName{cursor.peek() == '"' ? cursor.quoted() : ""};
    } else if (name == "complex") {
      const double real = parse_floating(cursor, strip(cursor.until(",)")), at);
      cursor.expect(",");
      const double imaginary = parse_floating(cursor, strip(cursor.until(",)")), at);
      out.data = std::complex<double>(real, imaginary);
    } else {
      out.data = EnumName{std::string(name), std::string(cursor.word())};
    }
    cursor.expect(")");
    return out;
  }

  std::string_view text_;
  std::string_view source_;
  bool ended_ = false;
  GraphData data_;
  std::vector<NamedArgument> arguments_;  // of the node in hand
  NameIndex by_name_;                     // values
  SizesByText sizes_;                     // shapes and strides
  SizesByText contiguous_;                // strides by the text of the shape
};

}  // namespace

Graph parse_graph(std::string_view text, std::string_view source) {
  return Graph::freeze(GraphParser(text, source).run(/*whole=*/false));
}

Graph load_graph(const std::string& path) {
  // The text is gone before the rest is derived: the two need not fit into memory together.
  GraphData data = [&] {
    const std::string text = read_file(path);
    return GraphParser(text, path).run(/*whole=*/true);
  }();
  return Graph::freeze(std::move(data));
}

}  // namespace kerf
