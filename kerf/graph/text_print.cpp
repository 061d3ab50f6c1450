// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::string quoted(std::string_view text) {
  std::string out = "\"";
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
  return out + "\"";
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
      line("scope 0 {} {}", quoted(data_.scopes[0].path), quoted(data_.scopes[0].class_name));
    } else {
      header();
    }
    for (std::size_t i = 1; i < data_.scopes.size(); ++i) {
      line("scope {} {} {}", i, quoted(data_.scopes[i].path), quoted(data_.scopes[i].class_name));
    }
    for (const GraphInput& input : data_.inputs) {
      line("input {} = {}", definition(input.value), quoted(input.path));
    }
    for (const Weight& weight : data_.weights) {
      const bool with_data = !weight.data.empty() && !options_.for_hash;
      line("weight {} = {} {}{}", definition(weight.value), to_string(weight.kind),
           quoted_names(weight), with_data ? " data " + hex(weight.data) : "");
    }
    for (const Node& node : data_.nodes) print_node(node);
    for (const GraphOutput& output : data_.outputs) {
      line("output {} = {}", quoted(output.path), argument(output.leaf, nullptr));
    }
    if (!data_.in_spec.empty()) line("in_spec {}", quoted(data_.in_spec));
    if (!data_.out_spec.empty()) line("out_spec {}", quoted(data_.out_spec));
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void header() {
    line("kerf-graph 1.0");
    line("graph {}{}", quoted(data_.name), data_.training ? " training" : "");
    if (data_.example_batch != 0) line("batch {}", data_.example_batch);
    for (const std::string& note : data_.notes) line("note {}", quoted(note));
    const Scope& root = data_.scopes[0];
    if (!root.class_name.empty() || !root.path.empty()) {
      line("scope 0 {} {}", quoted(root.path), quoted(root.class_name));
    }
  }

  static std::string quoted_names(const Weight& weight) {
    std::string out;
    for (const std::string& name : weight.names) out += (out.empty() ? "" : ", ") + quoted(name);
    return out;
  }

  std::string reference(ValueId id) const {
    const Value& value = data_.values[id.index()];
    const char* sigil = value.origin == Origin::weight ? "@" : "%";
    return sigil + (is_plain_name(value.name) ? value.name : quoted(value.name));
  }

  static std::string list(const std::vector<Expr>& sizes) {
    std::string out;
    for (const Expr& size : sizes) out += (out.empty() ? "" : ", ") + size.str();
    return out;
  }

  // "%x: f32[B, 4]{1, 4} in %base + 16 grad"
  std::string definition(ValueId id) {
    const Value& value = data_.values[id.index()];
    std::string out = reference(id) + ": ";
    if (value.scalar) return out + "scalar " + std::string(to_string(value.dtype));
    out += fmt::format("{}[{}]", to_string(value.dtype), list(value.shape));
    const std::vector<Expr> natural = contiguous_strides(value.shape);
    if (value.strides != natural) out += fmt::format("{{{}}}", list(value.strides));
    ValueId& owner = owner_[value.storage.index()];
    if (owner.valid()) {
      out += " in " + reference(owner);
    } else {
      owner = id;
      const Expr bytes = element_bytes(value.dtype, value.shape);
      const Expr& actual = data_.storages[value.storage.index()].bytes;
      if (!(actual == bytes)) out += " bytes " + actual.str();
    }
    if (!(value.offset == Expr(0))) out += " + " + value.offset.str();
    if (value.requires_grad) out += " grad";
    return out;
  }

  std::string argument(const Argument& argument, const Node* node) const {
    return std::visit([&](const auto& data) { return text(data, node); }, argument.data);
  }
  std::string text(std::monostate, const Node*) const { return "none"; }
  std::string text(bool value, const Node*) const { return value ? "true" : "false"; }
  std::string text(const Expr& value, const Node*) const { return value.str(); }
  std::string text(double value, const Node*) const { return floating(value); }
  std::string text(const std::complex<double>& value, const Node*) const {
    return fmt::format("complex({}, {})", floating(value.real()), floating(value.imag()));
  }
  std::string text(const std::string& value, const Node*) const { return quoted(value); }
  std::string text(DType value, const Node*) const {
    return fmt::format("dtype({})", to_string(value));
  }
  std::string text(const DeviceName& value, const Node*) const {
    if (options_.for_hash) return "device()";
    return value.name.empty() ? "device()" : fmt::format("device({})", quoted(value.name));
  }
  std::string text(const EnumName& value, const Node*) const {
    return fmt::format("{}({})", value.type, value.name);
  }
  std::string text(ValueId id, const Node* node) const {
    return (node == nullptr ? "" : marks_[id.index()]) + reference(id);
  }
  std::string text(const Argument::List& list, const Node* node) const {
    std::string out;
    for (const Argument& element : list) out += (out.empty() ? "" : ", ") + argument(element, node);
    return "[" + out + "]";
  }

  void print_node(const Node& node) {
    std::string defined;
    for (const ValueId id : node.outputs) {
      defined += (defined.empty() ? "" : ", ") + (id.valid() ? definition(id) : std::string("_"));
    }
    for (const ValueId id : node.may_alias) marks_[id.index()] = "~";
    for (const ValueId id : node.written) {
      marks_[id.index()] = *marks_[id.index()] == '~' ? "&~" : "&";
    }
    std::string arguments;
    for (const NamedArgument& entry : node.args) {
      if (!arguments.empty()) arguments += ", ";
      if (!entry.name.empty()) arguments += entry.name + "=";
      arguments += argument(entry.value, &node);
    }
    out_ += fmt::format("{} = {}({})", defined.empty() ? "()" : defined, node.op, arguments);
    for (const ValueId id : node.may_alias) marks_[id.index()] = "";
    for (const ValueId id : node.written) marks_[id.index()] = "";
    const std::string attributes = node_attributes(node);
    if (!attributes.empty()) out_ += " ;" + attributes;
    out_ += '\n';
  }

  std::string node_attributes(const Node& node) const {
    std::string out;
    const bool named_by_output = !node.outputs.empty() && node.outputs[0].valid() &&
                                 data_.values[node.outputs[0].index()].name == node.name;
    if (!named_by_output) out += " name=" + quoted(node.name);
    if (node.scope.index() != 0) out += fmt::format(" scope={}", node.scope.index());
    if (!node.source.empty() && !options_.for_hash) out += " source=" + quoted(node.source);
    if (!node.region.empty()) out += " region=" + quoted(node.region);
    if (!node.grad_enabled) out += " no_grad";
    if (node.random) out += " random";
    for (const Autocast& state : node.autocast) {
      out += fmt::format(" autocast={}:{}:{}", state.device_type, to_string(state.dtype),
                         state.enabled ? "on" : "off");
    }
    return out;
  }

  const GraphData& data_;
  PrintOptions options_;
  std::string& out_;
  std::vector<ValueId> owner_;      // the value that introduced each storage
  std::vector<const char*> marks_;  // of the values of the node in hand: written, may alias
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
