// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/saved/attention_layout.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kerf/graph/arguments.h"
#include "kerf/graph/batch_flow/call.h"

namespace kerf {
namespace {

using Numbers = std::vector<std::int64_t>;

struct Layout {
  Numbers sizes;
  Numbers strides;
};

Numbers evaluate(const Sizes& sizes, std::int64_t batch) {
  Numbers out;
  for (const Expr& size : sizes) out.push_back(size.eval(batch));
  return out;
}

// {batch, heads, queries, width}; of a fused kernel a view of {batch, queries, heads, width}.
Layout as_written(const Numbers& sizes, bool is_fused) {
  const std::int64_t heads = sizes[1];
  const std::int64_t queries = sizes[2];
  const std::int64_t width = sizes[3];
  const std::int64_t matrix = queries * width;
  if (!is_fused) return {sizes, {heads * matrix, matrix, width, 1}};
  return {sizes, {heads * matrix, width, heads * width, 1}};
}

// at::detail::computeStride: the strides that show the same memory in other sizes; nothing where
// that takes a copy.
std::optional<Layout> seen_as(const Layout& in, const Numbers& sizes) {
  Layout out{sizes, Numbers(sizes.size())};
  auto to = static_cast<std::ptrdiff_t>(sizes.size()) - 1;
  std::int64_t chunk_stride = in.strides.empty() ? 1 : in.strides.back();
  std::int64_t in_chunk = 1;
  std::int64_t placed = 1;
  for (auto from = static_cast<std::ptrdiff_t>(in.sizes.size()) - 1; from >= 0; --from) {
    const auto f = static_cast<std::size_t>(from);
    in_chunk *= in.sizes[f];
    const bool chunk_ends =
        from == 0 || (in.sizes[f - 1] != 1 && in.strides[f - 1] != in_chunk * chunk_stride);
    if (!chunk_ends) continue;
    while (to >= 0 && (placed < in_chunk || sizes[static_cast<std::size_t>(to)] == 1)) {
      const auto t = static_cast<std::size_t>(to--);
      out.strides[t] = placed * chunk_stride;
      placed *= sizes[t];
    }
    if (placed != in_chunk) return std::nullopt;
    if (from > 0) chunk_stride = in.strides[f - 1];
    in_chunk = placed = 1;
  }
  return to < 0 ? std::optional(out) : std::nullopt;
}

bool is_row_by_row(const Layout& layout) {
  std::int64_t expected = 1;
  for (std::size_t d = layout.sizes.size(); d-- > 0;) {
    if (layout.sizes[d] == 1) continue;
    if (layout.strides[d] != expected) return false;
    expected *= layout.sizes[d];
  }
  return true;
}

std::optional<std::int64_t> number_of(const Argument* argument) {
  const auto* const number = argument == nullptr ? nullptr : argument->find<Expr>();
  return number == nullptr ? std::nullopt : std::optional(number->eval(0));
}

std::size_t from_front(std::int64_t dim, std::size_t rank) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim);
}

// By dimension of the result: which one of the operand it is. Nothing for other operators.
std::optional<std::vector<std::size_t>> new_order(const Node& node, std::size_t rank) {
  const std::string_view name = operator_name(node.op);
  std::vector<std::size_t> order(rank);
  for (std::size_t d = 0; d < rank; ++d) order[d] = d;
  if (name == "transpose") {
    const auto a = number_of(find_argument(node, 1, "dim0"));
    const auto b = number_of(find_argument(node, 2, "dim1"));
    if (!a || !b) return std::nullopt;
    std::swap(order[from_front(*a, rank)], order[from_front(*b, rank)]);
    return order;
  }
  const Argument* const given = name == "permute" ? find_argument(node, 1, "dims") : nullptr;
  const auto* const dims = given == nullptr ? nullptr : given->find<Argument::List>();
  if (dims == nullptr || dims->size() != rank) return std::nullopt;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::optional<std::int64_t> dim = number_of(&(*dims)[d]);
    if (!dim) return std::nullopt;
    order[d] = from_front(*dim, rank);
  }
  return order;
}

// What a node makes of a tensor that lies in memory as `in`.
enum class Makes : std::uint8_t { view, copy, other };
struct Seen {
  Makes makes = Makes::other;
  Layout layout;  // of a view
};

Seen apply(const Node& node, const Layout& in, const Numbers& result_sizes) {
  if (const auto order = new_order(node, in.sizes.size())) {
    Layout out;
    for (const std::size_t d : *order) {
      out.sizes.push_back(in.sizes[d]);
      out.strides.push_back(in.strides[d]);
    }
    return {Makes::view, std::move(out)};
  }
  const std::string_view name = operator_name(node.op);
  if (name == "contiguous") {
    return is_row_by_row(in) ? Seen{Makes::view, in} : Seen{Makes::copy, {}};
  }
  if (name != "reshape" && name != "view" && name != "flatten") return {};
  std::optional<Layout> view = seen_as(in, result_sizes);
  return view ? Seen{Makes::view, *std::move(view)} : Seen{Makes::copy, {}};
}

bool is_attention(const Node& node) {
  return operator_name(node.op) == "scaled_dot_product_attention";
}

class Walk {
 public:
  explicit Walk(const SavedCall& call) : call_(call), graph_(call.graph()) {}

  // Of the memory that attention wrote; nothing where the value is no view of it.
  std::optional<Layout> layout_of(ValueId id, bool& is_copy) const {
    const Value& value = graph_.value(id);
    if (value.origin != Origin::node || value.shape.empty()) return std::nullopt;
    const Node& maker = graph_.node(value.producer);
    if (is_attention(maker)) {
      if (value.shape.size() != 4) return std::nullopt;
      std::vector<SavedTensor> unused;
      const SavedCall attention(graph_, value.producer, call_.batch(), true, unused);
      return as_written(evaluate(value.shape, call_.batch()), is_fused_attention(attention));
    }
    const ValueId* const operand = find_tensor(maker, 0, "self");
    const bool shares = operand != nullptr && graph_.value(*operand).storage == value.storage;
    if (!shares) return std::nullopt;
    const std::optional<Layout> before = layout_of(*operand, is_copy);
    if (!before || is_copy) return before;
    Seen seen = apply(maker, *before, evaluate(value.shape, call_.batch()));
    if (seen.makes == Makes::other) return std::nullopt;
    is_copy = seen.makes == Makes::copy;
    return std::move(seen.layout);
  }

  // The first value made of `from`, which lies as `in`, that the graph has in a storage of its own
  // though it is a view; invalid when there is none.
  ValueId copy_in_graph(ValueId from, const Layout& in) const {
    for (const NodeId reader : graph_.consumers(from)) {
      const Node& node = graph_.node(reader);
      const ValueId* const operand = find_tensor(node, 0, "self");
      const ValueId made = node.outputs.empty() ? ValueId{} : node.outputs.front();
      if (operand == nullptr || *operand != from || !made.valid()) continue;
      Seen seen = apply(node, in, evaluate(graph_.value(made).shape, call_.batch()));
      if (seen.makes != Makes::view) continue;
      if (graph_.value(made).storage != graph_.value(from).storage) return made;
      const ValueId found = copy_in_graph(made, seen.layout);
      if (found.valid()) return found;
    }
    return {};
  }

 private:
  const SavedCall& call_;
  const Graph& graph_;
};

}  // namespace

bool is_copied_from_attention(const SavedCall& call, ValueId value) {
  bool is_copy = false;
  return Walk(call).layout_of(value, is_copy).has_value() && is_copy;
}

ValueId result_as_written(const SavedCall& attention) {
  const ValueId result = attention.result();
  const Layout layout = as_written({attention.size(result, 0), attention.size(result, 1),
                                    attention.size(result, 2), attention.size(result, 3)},
                                   is_fused_attention(attention));
  const ValueId copy = Walk(attention).copy_in_graph(result, layout);
  return copy.valid() ? copy : result;
}

}  // namespace kerf
