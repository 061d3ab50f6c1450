// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kerf/base/file.h"
#include "kerf/graph/text.h"
#include "kerf/graph/text_impl.h"

namespace kerf {
namespace {

bool is_plain_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\t': out += "\\t"; break;
      case '\r': out += "\\r"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

// Shortest digits that read back as the same double; always recognisable as not an integer.
std::string floating(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string out = fmt::format("{}", value);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

std::string hex(std::string_view bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

// Everything is added to one text: a graph of a million nodes is hashed by printing it.
class Printer {
 public:
  Printer(const GraphData& data, PrintOptions options, std::string& out)
      : data_(data),
        options_(options),
        out_(out),
        owner_(data.storages.size()),
        marks_(data.values.size(), "") {}

  void run() {
    if (options_.for_hash) {
      out_ += data_.training ? "training\n" : "eval\n";
      print_scope(0);
    } else {
      header();
    }
    for (std::size_t i = 1; i < data_.scopes.size(); ++i) print_scope(i);
    for (const Condition& condition : data_.conditions) print_condition(condition);
    if (!options_.for_hash) {
      for (const Attribute& attribute : data_.attributes) print_attribute(attribute);
    }
    for (const GraphInput& input : data_.inputs) {
      out_ += "input ";
      definition(input.value);
      out_ += " = ";
      quoted_line("", input.path);
    }
    for (const Weight& weight : data_.weights) print_weight(weight);
    for (const Node& node : data_.nodes) print_node(node);
    for (const GraphOutput& output : data_.outputs) {
      out_ += "output ";
      append_quoted(out_, output.path);
      out_ += " = ";
      argument(output.leaf, nullptr);
      out_ += '\n';
    }
    if (!data_.in_spec.empty()) quoted_line("in_spec ", data_.in_spec);
    if (!data_.out_spec.empty()) quoted_line("out_spec ", data_.out_spec);
  }

 private:
  void number(std::uint64_t value) { out_ += fmt::format_int(value).c_str(); }

  void quoted_line(std::string_view before, std::string_view text) {
    out_ += before;
    append_quoted(out_, text);
    out_ += '\n';
  }

  void header() {
    out_ += "kerf-graph 1.1\ngraph ";
    append_quoted(out_, data_.name);
    out_ += data_.training ? " training\n" : "\n";
    if (data_.example_batch != 0) out_ += fmt::format("batch {}\n", data_.example_batch);
    for (const std::string& note : data_.notes) quoted_line("note ", note);
    const Scope& root = data_.scopes[0];
    if (!root.class_name.empty() || !root.path.empty()) print_scope(0);
  }

  void print_scope(std::size_t index) {
    out_ += "scope ";
    number(index);
    out_ += ' ';
    append_quoted(out_, data_.scopes[index].path);
    quoted_line(" ", data_.scopes[index].class_name);
  }

  void print_condition(const Condition& condition) {
    out_ += "require ";
    out_ += condition.str();
    if (options_.for_hash || condition.source.empty()) {
      out_ += '\n';
    } else {
      quoted_line(" ; source=", condition.source);
    }
  }

  void print_attribute(const Attribute& attribute) {
    out_ += "attribute ";
    append_quoted(out_, attribute.path);
    out_ += ' ';
    append_quoted(out_, attribute.name);
    out_ += " = ";
    argument(attribute.value, nullptr);
    out_ += '\n';
  }

  void print_weight(const Weight& weight) {
    out_ += "weight ";
    definition(weight.value);
    out_ += " = ";
    out_ += to_string(weight.kind);
    const char* before = " ";
    for (const std::string& name : weight.names) {
      out_ += std::exchange(before, ", ");
      append_quoted(out_, name);
    }
    if (!weight.data.empty() && !options_.for_hash) out_ += " data " + hex(weight.data);
    out_ += '\n';
  }

  void reference(ValueId id) {
    const Value& value = data_.values[id.index()];
    out_ += value.origin == Origin::weight ? '@' : '%';
    if (is_plain_name(value.name)) {
      out_ += value.name;
    } else {
      append_quoted(out_, value.name);
    }
  }

  void size(const Expr& value) {
    if (value.is_constant() && value.constant() >= 0) {
      number(static_cast<std::uint64_t>(value.constant()));
    } else {
      out_ += value.str();
    }
  }
  void sizes(const Sizes& list) {
    const char* before = "";
    for (const Expr& each : list) {
      out_ += std::exchange(before, ", ");
      size(each);
    }
  }

  bool is_contiguous(const Value& value) {
    // Values share their lists: the last answer is nearly always the next one.
    if (!(value.shape == last_shape_)) {
      last_shape_ = value.shape;
      last_strides_ = contiguous_strides(value.shape);
    }
    return value.strides == last_strides_;
  }

  // "%x: f32[B, 4]{1, 4} in %base + 16 grad"
  void definition(ValueId id) {
    const Value& value = data_.values[id.index()];
    reference(id);
    out_ += value.scalar ? ": scalar " : ": ";
    out_ += to_string(value.dtype);
    if (value.scalar) return;
    out_ += '[';
    sizes(value.shape);
    out_ += ']';
    if (!is_contiguous(value)) {
      out_ += '{';
      sizes(value.strides);
      out_ += '}';
    }
    ValueId& owner = owner_[value.storage.index()];
    if (owner.valid()) {
      out_ += " in ";
      reference(owner);
    } else {
      owner = id;
      const Expr& actual = data_.storages[value.storage.index()].bytes;
      if (!(actual == element_bytes(value.dtype, value.shape))) {
        out_ += " bytes ";
        size(actual);
      }
    }
    if (!(value.offset == Expr(0))) {
      out_ += " + ";
      size(value.offset);
    }
    if (value.requires_grad) out_ += " grad";
  }

  void argument(const Argument& argument, const Node* node) {
    std::visit([&](const auto& data) { text(data, node); }, argument.data);
  }
  void text(std::monostate, const Node*) { out_ += "none"; }
  void text(bool value, const Node*) { out_ += value ? "true" : "false"; }
  void text(const Expr& value, const Node*) { size(value); }
  void text(double value, const Node*) { out_ += floating(value); }
  void text(const std::complex<double>& value, const Node*) {
    out_ += fmt::format("complex({}, {})", floating(value.real()), floating(value.imag()));
  }
  void text(const std::string& value, const Node*) { append_quoted(out_, value); }
  void text(DType value, const Node*) { out_ += fmt::format("dtype({})", to_string(value)); }
  void text(const DeviceName& value, const Node*) {
    out_ += "device(";
    if (!options_.for_hash && !value.name.empty()) append_quoted(out_, value.name);
    out_ += ')';
  }
  void text(const BoxedEnumName& value, const Node*) {
    out_ += fmt::format("{}({})", (*value).type, (*value).name);
  }
  void text(ValueId id, const Node* node) {
    if (node != nullptr) out_ += marks_[id.index()];
    reference(id);
  }
  void text(const Argument::List& list, const Node* node) {
    const char* before = "[";
    for (const Argument& element : list) {
      out_ += std::exchange(before, ", ");
      argument(element, node);
    }
    out_ += list.empty() ? "[]" : "]";
  }

  void print_node(const Node& node) {
    const char* before = "";
    for (const ValueId id : node.outputs) {
      out_ += std::exchange(before, ", ");
      if (id.valid()) {
        definition(id);
      } else {
        out_ += '_';
      }
    }
    for (const ValueId id : node.may_alias) marks_[id.index()] = "~";
    for (const ValueId id : node.written) {
      marks_[id.index()] = *marks_[id.index()] == '~' ? "&~" : "&";
    }
    out_ += node.outputs.empty() ? "() = " : " = ";
    out_ += node.op;
    before = "(";
    for (const NamedArgument& entry : node.args) {
      out_ += std::exchange(before, ", ");
      if (!entry.name.empty()) out_ += entry.name + "=";
      argument(entry.value, &node);
    }
    out_ += node.args.empty() ? "()" : ")";
    for (const ValueId id : node.may_alias) marks_[id.index()] = "";
    for (const ValueId id : node.written) marks_[id.index()] = "";
    print_attributes(node);
    out_ += '\n';
  }

  void print_attributes(const Node& node) {
    const char* before = " ; ";
    const auto attribute = [&](std::string_view name) {
      out_ += std::exchange(before, " ");
      out_ += name;
    };
    const auto quoted = [&](std::string_view name, std::string_view text) {
      attribute(name);
      append_quoted(out_, text);
    };
    const bool named_by_output = !node.outputs.empty() && node.outputs[0].valid() &&
                                 data_.values[node.outputs[0].index()].name == node.name;
    if (!named_by_output) quoted("name=", node.name);
    if (node.scope.index() != 0) {
      attribute("scope=");
      number(node.scope.index());
    }
    if (!node.source.empty() && !options_.for_hash) quoted("source=", node.source);
    if (!node.region.empty()) quoted("region=", node.region);
    if (!node.grad_enabled) attribute("no_grad");
    if (node.random) attribute("random");
    for (const Autocast& state : node.autocast) {
      attribute(fmt::format("autocast={}:{}:{}", state.device_type, to_string(state.dtype),
                            state.enabled ? "on" : "off"));
    }
  }

  const GraphData& data_;
  PrintOptions options_;
  std::string& out_;
  std::vector<ValueId> owner_;      // the value that introduced each storage
  std::vector<const char*> marks_;  // of the values of the node in hand: written, may alias
  Sizes last_shape_;
  Sizes last_strides_;  // row-major ones of last_shape_
};

}  // namespace

std::vector<Expr> contiguous_strides(const std::vector<Expr>& shape) {
  std::vector<Expr> strides(shape.size());
  Expr stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride = stride * shape[d];
  }
  return strides;
}

Expr element_bytes(DType dtype, const std::vector<Expr>& shape) {
  Expr bytes = element_size(dtype);
  for (const Expr& size : shape) bytes = bytes * size;
  return bytes;
}

void print_lines(const GraphData& data, PrintOptions options, std::string& out) {
  Printer(data, options, out).run();
}

void hash_graph(const GraphData& data, Hasher& hasher) {
  std::string text;
  print_lines(data, {.for_hash = true}, text);
  hasher.add(text);
}

std::string print_graph(const Graph& graph) {
  std::string out;
  print_lines(graph.data(), {}, out);
  return out;
}

void save_graph(const Graph& graph, const std::string& path) {
  write_file(path, print_graph(graph) + "end\n");
}

}  // namespace kerf
