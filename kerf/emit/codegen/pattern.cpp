// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/pattern.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kerf/base/error.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/graph/expr.h"

namespace kerf::codegen {
namespace {

constexpr int kDeepest = 100;  // as for whoever runs a graph

// "torch.float32": of a name that a file may hold, so letters and digits only.
bool is_plain_word(const Json& name) {
  if (!name.is_string()) return false;
  const auto& text = name.get_ref<const std::string&>();
  return identifier(text) == text || identifier(text) == text + "_value";
}

std::string plain(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return string_literal(value.get_ref<const std::string&>());
  if (value.is_number_float()) return number_literal(value.get<double>());
  return value.dump();
}

}  // namespace

Json parse_spec(const std::string& text, std::string_view what) {
  Json out = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!out.is_discarded()) return out;
  throw Error(
      ErrorKind::invalid_graph,
      fmt::format("[emit.stages] {} is not JSON text; expected what kerf.trace wrote; trace "
                  "the model again",
                  what));
}

void PatternWriter::refuse(std::string_view found) const {
  throw Error(ErrorKind::unsupported_operator,
              fmt::format("[emit.stages] {} has {}; expected tensors, plain data, containers and "
                          "objects with fields; change the model's call, or run it with "
                          "kerf.Pipeline",
                          what_, found));
}

void PatternWriter::malformed() const {
  throw Error(ErrorKind::invalid_graph,
              fmt::format("[emit.stages] {} is no description of a value; expected what kerf.trace "
                          "wrote; trace the model again",
                          what_));
}

Code PatternWriter::part(const Json& spec, int depth) {
  if (depth > kDeepest) refuse("more than 100 levels");
  if (spec.is_array()) malformed();
  if (!spec.is_object()) return plain(spec);
  if (spec.empty()) malformed();
  if (spec.contains("given")) refuse("an object of the call, which the model changes or returns");
  const std::string& kind = spec.begin().key();
  try {
    return special(kind, spec, depth + 1);
  } catch (const Json::exception&) {
    malformed();
  }
}

std::vector<Code> PatternWriter::parts(const Json& list, int depth) {
  if (!list.is_array()) malformed();
  std::vector<Code> out;
  for (const Json& item : list) out.push_back(part(item, depth));
  return out;
}

Code PatternWriter::pairs(const Json& list, int depth) {
  if (!list.is_array()) malformed();
  std::vector<Code> out;
  for (const Json& pair : list) {
    if (!pair.is_array() || pair.size() != 2) malformed();
    out.push_back(part(pair[1], depth).after(flat(part(pair[0], depth)) + ": "));
  }
  return {"", Bracket::dict, std::move(out)};
}

Code PatternWriter::named(const std::string& kind, std::vector<Code> items) {
  kinds_.insert(kind);
  return {kind, Bracket::call, std::move(items)};
}

Code PatternWriter::object(const Json& spec, int depth) {
  std::vector<Code> items{string_literal(spec.at("object").get<std::string>())};
  Json fields = Json::array();
  for (const Json& pair : spec.at("fields")) fields.push_back(pair);
  items.push_back(pairs(fields, depth));
  if (spec.contains("items")) items.push_back(part(spec.at("items"), depth));
  if (spec.contains("default")) refuse("a defaultdict");
  return named("Made", std::move(items));
}

Code PatternWriter::set(const std::string& kind, const Json& items) {
  std::vector<Code> members;
  for (const Json& item : items) {
    if (item.is_object() && item.contains("t")) refuse("a set of tensors");
    members.push_back(part(item, 0));
  }
  const bool empty = members.empty();
  Code braces("", Bracket::dict, std::move(members));
  if (kind == "set") {
    kinds_.insert(kind);  // whoever is given one may change it
    return empty ? Code("set()") : braces;
  }
  return {kind, Bracket::call, empty ? std::vector<Code>{} : std::vector<Code>{std::move(braces)}};
}

Code PatternWriter::special(const std::string& kind, const Json& spec, int depth) {
  const Json& value = spec.at(kind);
  if (kind == "t") return tensor_(value.get<std::size_t>());
  if (kind == "list") return {"", Bracket::list, parts(value, depth)};
  if (kind == "tuple" && value.empty()) return "()";
  if (kind == "tuple") return {"", Bracket::tuple, parts(value, depth)};
  if (kind == "dict" && value.empty()) return "{}";
  if (kind == "dict") return pairs(value, depth);
  if (kind == "set" || kind == "frozenset") return set(kind, value);
  if (kind == "bytes") {
    return "bytes.fromhex(" + string_literal(value.get<std::string>()) + ")";
  }
  if (kind == "enum") {
    return named("Member", {string_literal(value.get<std::string>()),
                            string_literal(spec.at("name").get<std::string>())});
  }
  if (kind == "size") {
    return {"torch.Size", Bracket::call, {Code("", Bracket::list, parts(value, depth))}};
  }
  if (kind == "slice") return {"slice", Bracket::call, parts(value, depth)};
  if (kind == "float") return number_literal(std::stod(value.get<std::string>()));
  if (kind == "complex") {
    return number_literal(
        std::complex<double>(value.at(0).get<double>(), value.at(1).get<double>()));
  }
  if (kind == "dtype" || kind == "layout" || kind == "memory_format") {
    if (!is_plain_word(value)) malformed();
    return "torch." + value.get<std::string>();
  }
  if (kind == "device" && value == "") {
    if (device_ == "ANY_DEVICE") kinds_.insert(device_);
    return device_;
  }
  if (kind == "device") return "torch.device(" + string_literal(value.get<std::string>()) + ")";
  if (kind == "sym") {
    uses_batch_ = true;
    return size_text(Expr::parse(value.get<std::string>()));
  }
  if (kind == "namedtuple") {
    return named("Row", {string_literal(value.get<std::string>()),
                         Code("", Bracket::list, parts(spec.at("items"), depth))});
  }
  if (kind == "node") {
    return named("Node", {string_literal(value.get<std::string>()),
                          Code("", Bracket::list, parts(spec.at("children"), depth)),
                          part(spec.at("context"), depth)});
  }
  if (kind == "object") return object(spec, depth);
  if (kind == "ref") return named("Again", {std::to_string(value.get<std::size_t>())});
  refuse(fmt::format("a part of kind '{}'", kind));
}

}  // namespace kerf::codegen
