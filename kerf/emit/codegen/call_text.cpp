// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/call_text.h"

#include <fmt/format.h>

#include <limits>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/emit/codegen/spelling.h"
#include "kerf/emit/codegen/value_text.h"
#include "kerf/graph/arguments.h"
#include "kerf/graph/refused_operators.h"

namespace kerf::codegen {
namespace {

constexpr std::int64_t kOpenEnd = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMostColons = 3;  // x[:, :, :, 0] is still readable

class CallWriter {
 public:
  CallWriter(const Graph& graph, NodeId id, const StageNames& names, const ModeDifferences* modes)
      : graph_(graph), id_(id), node_(graph.node(id)), names_(names), modes_(modes) {}

  Code write() const {
    if (std::optional<Code> code = indexing()) return *code;
    SpokenCall call{node_.op, {}, {}};
    for (std::size_t i = 0; i < node_.args.size(); ++i) {
      if (node_.args[i].name.empty()) {
        call.positional.push_back(spoken(i));
      } else {
        call.named.emplace_back(node_.args[i].name, spoken(i));
      }
    }
    if (std::optional<Code> code = einsum(call)) return *code;
    if (std::optional<Code> code = spell(call)) return *code;
    return plain(call);
  }

 private:
  Code code_of(const Argument& argument) const {
    return argument_code(argument, [&](ValueId id) { return names_.text(id); });
  }

  // An argument, with what it is in each mode where that differs.
  Spoken spoken(std::size_t i) const {
    const Argument& argument = node_.args[i].value;
    Spoken out{code_of(argument)};
    const auto* id = argument.find<ValueId>();
    out.tensor = id != nullptr && !graph_.value(*id).scalar;
    out.local = id != nullptr && names_.is_local(*id);
    if (modes_ == nullptr) return out;
    const auto found = modes_->in_eval.find({id_, i});
    if (found == modes_->in_eval.end()) return out;
    const std::string training = flat(out.code);
    const std::string eval = flat(code_of(found->second));
    if (training == "True" && eval == "False") {
      out.code = Code("self.training");
    } else if (training == "False" && eval == "True") {
      out.code = Code("not self.training");
    } else {
      out.code = Code(training + " if self.training else " + eval);
    }
    out.conditional = true;
    return out;
  }

  bool differs() const {
    return modes_ != nullptr &&
           modes_->in_eval.lower_bound({id_, 0}) != modes_->in_eval.lower_bound({next(), 0});
  }
  NodeId next() const { return NodeId(id_.index() + 1); }

  // torch.einsum chooses a path of its own for three tensors and more.
  std::optional<Code> einsum(const SpokenCall& call) const {
    if (node_.op != "aten.einsum.default" || !call.named.empty() || call.positional.size() != 2) {
      return std::nullopt;
    }
    std::vector<Code> items{call.positional[0].code};
    const std::vector<Code>& tensors = call.positional[1].code.items;
    if (tensors.empty() || tensors.size() > 2) return std::nullopt;
    items.insert(items.end(), tensors.begin(), tensors.end());
    return Code("torch.einsum", Bracket::call, std::move(items));
  }

  Code plain(const SpokenCall& call) const {
    std::vector<Code> items;
    for (const Spoken& argument : call.positional) items.push_back(argument.code);
    for (const auto& [name, argument] : call.named) {
      if (!is_attribute(name)) malformed();
      items.push_back(argument.code.after(name + "="));
    }
    return {"torch.ops." + checked_name(), Bracket::call, std::move(items)};
  }

  std::string checked_name() const {
    if (const std::string reason = why_name_refused(node_.op); !reason.empty()) {
      throw Error(ErrorKind::unsupported_operator,
                  fmt::format("[emit.stages] {} calls {}, which no graph may call: {}; expected "
                              "operators that compute on tensors; remove it from the model, or put "
                              "it into an opaque block",
                              graph_.describe(id_), printable_op(), reason));
    }
    std::string_view rest = node_.op;
    std::size_t parts = 0;
    while (!rest.empty()) {
      const std::size_t dot = rest.find('.');
      const std::string_view part = rest.substr(0, dot);
      for (const char c : part) {
        const bool word =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        if (!word) malformed();
      }
      if (part.empty()) malformed();
      ++parts;
      rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    }
    if (parts != 3) malformed();
    return node_.op;
  }

  [[noreturn]] void malformed() const {
    throw Error(ErrorKind::unsupported_operator,
                fmt::format("[emit.stages] {} calls '{}'; expected an operator of PyTorch, such as "
                            "aten.linear.default; trace the model again",
                            graph_.describe(id_), printable_op()));
  }
  std::string printable_op() const { return comment_text(node_.op); }

  // x[:, 1:3], x[:, 0] and x[mask].
  std::optional<Code> indexing() const {
    if (differs()) return std::nullopt;
    const auto* self = find_tensor(node_, 0, "self");
    if (self == nullptr || graph_.value(*self).scalar) return std::nullopt;
    std::optional<std::string> inside;
    if (node_.op == "aten.slice.Tensor") inside = slice(*self);
    if (node_.op == "aten.select.int") inside = select(*self);
    if (node_.op == "aten.index.Tensor") inside = index();
    if (!inside) return std::nullopt;
    return Code(names_.text(*self), Bracket::subscript, {*inside});
  }

  // The colons in front of a dimension; nothing where there would be too many.
  std::optional<std::string> dimensions(ValueId self, std::size_t position,
                                        std::int64_t preset) const {
    std::int64_t dim = preset;
    if (const Argument* argument = find_argument(node_, position, "dim")) {
      const auto* given = argument->find<Expr>();
      if (given == nullptr || !given->is_constant()) return std::nullopt;
      dim = given->constant();
    }
    const auto rank = static_cast<std::int64_t>(graph_.value(self).shape.size());
    if (dim == -1 || (dim == rank - 1 && dim > static_cast<std::int64_t>(kMostColons))) {
      return rank == 1 ? "" : "..., ";
    }
    if (dim < 0) dim += rank;
    if (dim < 0 || dim > static_cast<std::int64_t>(kMostColons)) return std::nullopt;
    std::string out;
    for (std::int64_t d = 0; d < dim; ++d) out += ":, ";
    return out;
  }

  // A bound of a slice: nothing where it is that of the whole, and only numbers of one word.
  struct Bound {
    std::string text;
    bool simple = true;
  };
  std::optional<Bound> bound(std::size_t position, std::string_view name,
                             std::int64_t whole) const {
    const Argument* argument = find_argument(node_, position, name);
    if (argument == nullptr || argument->is_none()) return Bound{};
    const auto* size = argument->find<Expr>();
    if (size == nullptr) return std::nullopt;
    if (size->is_constant() && size->constant() == whole) return Bound{};
    const std::string text = size_text(*size);
    return Bound{text, text.find_first_of(" (") == std::string::npos};
  }

  std::optional<std::string> slice(ValueId self) const {
    const auto before = dimensions(self, 1, 0);
    const auto start = bound(2, "start", 0);
    const auto end = bound(3, "end", kOpenEnd);
    const auto step = bound(4, "step", 1);
    if (!before || !start || !end || !step) return std::nullopt;
    const bool simple = start->simple && end->simple && step->simple;
    const auto colon = [&](const std::string& left, const std::string& right) {
      if (simple) return left + ":" + right;
      return left + (left.empty() ? "" : " ") + ":" + (right.empty() ? "" : " ") + right;
    };
    std::string out = colon(start->text, end->text);
    if (!step->text.empty()) out = colon(out, step->text);
    return *before + out;
  }

  std::optional<std::string> select(ValueId self) const {
    const auto before = dimensions(self, 1, 0);
    const Argument* argument = find_argument(node_, 2, "index");
    const auto* at = argument == nullptr ? nullptr : argument->find<Expr>();
    if (!before || at == nullptr) return std::nullopt;
    return *before + size_text(*at);
  }

  // Python turns an index without dimensions into a number, and bytes into a mask.
  std::optional<std::string> index() const {
    const Argument* argument = find_argument(node_, 1, "indices");
    const auto* list = argument == nullptr ? nullptr : argument->find<Argument::List>();
    if (list == nullptr) return std::nullopt;
    std::string out;
    for (const Argument& item : *list) {
      const auto* id = item.find<ValueId>();
      if (id != nullptr && !is_plain_index(graph_.value(*id))) return std::nullopt;
      out += (out.empty() ? "" : ", ") + (id == nullptr ? std::string(":") : names_.text(*id));
    }
    if (out.empty()) return std::nullopt;
    return out;
  }
  static bool is_plain_index(const Value& value) {
    return !value.scalar && !value.shape.empty() &&
           (value.dtype == DType::i64 || value.dtype == DType::boolean);
  }

  const Graph& graph_;
  NodeId id_;
  const Node& node_;
  const StageNames& names_;
  const ModeDifferences* modes_;
};

}  // namespace

Code operator_call(const Graph& graph, NodeId node, const StageNames& names,
                   const ModeDifferences* modes) {
  return CallWriter(graph, node, names, modes).write();
}

}  // namespace kerf::codegen
