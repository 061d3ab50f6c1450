// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/weight_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/emit/codegen/stage_names.h"
#include "kerf/emit/codegen/value_text.h"

namespace kerf::codegen {
namespace {

constexpr std::int64_t kMostNumbers = 16;  // that are written one by one

template <class T>
T element(std::string_view data, std::int64_t i) {
  T out;
  std::memcpy(&out, data.data() + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return out;
}

std::string number_of(float number) {
  // The shortest digits that give this float again.
  std::string text = fmt::format("{}", number);
  std::erase(text, '+');
  const bool plain = std::isfinite(number) && text.find_first_of(".e") != std::string::npos;
  return plain ? text : number_literal(static_cast<double>(number));
}

// Nothing for dtypes whose numbers are not written one by one.
std::optional<std::string> number_at(DType dtype, std::string_view data, std::int64_t i) {
  switch (dtype) {
    case DType::f64: return number_literal(element<double>(data, i));
    case DType::f32: return number_of(element<float>(data, i));
    case DType::i64: return std::to_string(element<std::int64_t>(data, i));
    case DType::i32: return std::to_string(element<std::int32_t>(data, i));
    case DType::boolean: return element<std::uint8_t>(data, i) != 0 ? "True" : "False";
    default: return std::nullopt;
  }
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      word = word << 8U | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      const bool given = i + k <= bytes.size();
      out += given ? kDigits[word >> (18U - 6U * k) & 63U] : '=';
    }
  }
  return out;
}

std::int64_t count_of(const Value& value) {
  std::int64_t count = 1;
  for (const Expr& size : value.shape) count *= size.constant();
  return count;
}

// Numbers in the nesting of a shape, from `first` on.
Code nested(const Value& value, std::string_view data, std::size_t dim, std::int64_t& next) {
  if (dim == value.shape.size()) return *number_at(value.dtype, data, next++);
  std::vector<Code> items;
  for (std::int64_t i = 0; i < value.shape[dim].constant(); ++i) {
    items.push_back(nested(value, data, dim + 1, next));
  }
  return {"", Bracket::list, std::move(items)};
}

std::string kind_text(WeightKind kind) {
  return kind == WeightKind::non_persistent_buffer ? "non-persistent buffer"
                                                   : std::string(to_string(kind));
}

Code weight_row(const Graph& graph, const Weight& weight) {
  const Value& value = graph.value(weight.value);
  std::vector<Code> items{string_literal(weight.names[0]), sizes_text(value.shape),
                          dtype_text(value.dtype)};
  if (weight.kind != WeightKind::parameter) {
    items.emplace_back(string_literal(kind_text(weight.kind)));
  } else if (!value.requires_grad) {
    items.emplace_back("trained=False");
  }
  if (weight.names.size() > 1) {
    std::vector<Code> others;
    for (std::size_t i = 1; i < weight.names.size(); ++i) {
      others.emplace_back(string_literal(weight.names[i]));
    }
    items.push_back(Code("also=", Bracket::list, std::move(others)));
  }
  return {"Weight", Bracket::call, std::move(items)};
}

bool lies_in_block(const std::string& name, const Border& border) {
  return std::any_of(border.blocks.begin(), border.blocks.end(), [&](const std::string& path) {
    return name.size() > path.size() && name.starts_with(path) && name[path.size()] == '.';
  });
}

}  // namespace

Code weight_table(const Graph& graph, const Border& border) {
  std::vector<Code> rows;
  for (const std::size_t w : border.owns) {
    Weight weight = graph.weights()[w];
    // A module that runs as it is brings its own.
    std::erase_if(weight.names,
                  [&](const std::string& name) { return lies_in_block(name, border); });
    if (!weight.names.empty()) rows.push_back(weight_row(graph, weight));
  }
  return {"WEIGHTS = ", Bracket::list, std::move(rows)};
}

Code constant_tensor(const Value& value, const Weight& weight) {
  const std::int64_t count = count_of(value);
  const std::string dtype = "dtype=" + dtype_text(value.dtype);
  if (weight.data.size() != static_cast<std::size_t>(count * element_size(value.dtype))) {
    throw Error(
        ErrorKind::invalid_graph,
        fmt::format("[emit.stages] constant '{}' has {} bytes; expected as many as its shape "
                    "needs; trace the model again",
                    weight.names[0], weight.data.size()));
  }
  const std::string shape = sizes_text(value.shape);
  if (count == 0) return {"torch.empty", Bracket::call, {shape, dtype}};
  const std::optional<std::string> first = number_at(value.dtype, weight.data, 0);
  if (first && count <= kMostNumbers) {
    std::int64_t next = 0;
    return {"torch.tensor", Bracket::call, {nested(value, weight.data, 0, next), dtype}};
  }
  const auto width = static_cast<std::size_t>(element_size(value.dtype));
  const std::string_view data = weight.data;
  bool same = first.has_value();
  for (std::size_t i = width; same && i < data.size(); i += width) {
    same = data.substr(i, width) == data.substr(0, width);
  }
  if (same) return {"torch.full", Bracket::call, {shape, *first, dtype}};
  return {"decoded", Bracket::call, {shape, dtype_text(value.dtype), string_literal(base64(data))}};
}

namespace {

// A tensor that the model has by that name, unregistered: the graph has no numbers of it.
bool is_attribute_of_model(const Value& value, const Weight& weight) {
  return weight.data.empty() && count_of(value) > 0;
}

Code attribute_row(const Value& value, const Weight& weight) {
  std::vector<Code> items{string_literal(weight.names[0]), sizes_text(value.shape),
                          dtype_text(value.dtype), string_literal("attribute")};
  return {"Weight", Bracket::call, std::move(items)};
}

}  // namespace

Code constant_table(const Graph& graph, const Border& border) {
  const std::vector<std::string> names = constant_names(graph);
  std::vector<Code> rows;
  for (const std::size_t w : border.constants) {
    const Weight& weight = graph.weights()[w];
    const Value& value = graph.value(weight.value);
    if (graph.is_written(value.storage)) {
      throw Error(
          ErrorKind::unsupported_operator,
          fmt::format("[emit.stages] the model writes the constant '{}'; expected it to make "
                      "a new one at every call, or a buffer; copy it before the write (.clone()), "
                      "or register it (register_buffer)",
                      weight.names[0]));
    }
    Code tensor = is_attribute_of_model(value, weight) ? attribute_row(value, weight)
                                                       : constant_tensor(value, weight);
    rows.push_back(tensor.after(string_literal(names[w]) + ": "));
  }
  return {"CONSTANTS = ", Bracket::dict, std::move(rows)};
}

}  // namespace kerf::codegen
