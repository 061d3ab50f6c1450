// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/spelling.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace kerf::codegen {
namespace {

constexpr std::string_view kStyles = "~^&%";

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> out;
  while (true) {
    const std::size_t end = text.find(separator);
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + separator.size());
  }
}

struct Parameter {
  std::string_view name;
  std::vector<std::string_view> presets;  // values that may be left out, as they are written
};

// "self dim=None" -> two of them.
std::vector<Parameter> parse_parameters(std::string_view text) {
  std::vector<Parameter> out;
  for (const std::string_view word : split(text, " ")) {
    const std::size_t equals = word.find('=');
    out.push_back({word.substr(0, equals), {}});
    if (equals != std::string_view::npos) {
      out.back().presets = split(word.substr(equals + 1), "|");
    }
  }
  return out;
}

// One mention of a parameter in a call: "dim^?".
struct Term {
  enum class Mode { always, unless_left_out, keyword, always_keyword } mode = Mode::always;
  std::string_view name;
  char style = 0;
  bool spread = false;  // *size
};

Term parse_term(std::string_view text) {
  Term term;
  if (text.starts_with('*')) {
    term.spread = true;
    text.remove_prefix(1);
  }
  if (text.ends_with("==")) {
    term.mode = Term::Mode::always_keyword;
    text.remove_suffix(2);
  } else if (text.ends_with('=')) {
    term.mode = Term::Mode::keyword;
    text.remove_suffix(1);
  } else if (text.ends_with('?')) {
    term.mode = Term::Mode::unless_left_out;
    text.remove_suffix(1);
  }
  if (!text.empty() && kStyles.find(text.back()) != std::string_view::npos) {
    term.style = text.back();
    text.remove_suffix(1);
  }
  term.name = text;
  return term;
}

const SpellingRow* find_row(std::string_view op) {
  static const auto kRows = [] {
    std::unordered_map<std::string_view, const SpellingRow*> rows;
    for (const SpellingRow& row : spelling_table()) rows.emplace(row.op, &row);
    return rows;
  }();
  const auto found = kRows.find(op);
  return found == kRows.end() ? nullptr : found->second;
}

// The name of a loss's reduction, which schemas number; in each mode where that differs.
Code reduction(const Code& code) {
  constexpr std::array<std::string_view, 3> kNames{"\"none\"", "\"mean\"", "\"sum\""};
  constexpr std::string_view kOr = " if self.training else ";
  const auto is_number = [](char c) { return c >= '0' && c <= '2'; };
  const auto name = [&](char c) { return std::string(kNames[static_cast<std::size_t>(c - '0')]); };
  const std::string& text = code.text;
  if (text.size() == 1 && is_number(text[0])) return Code(name(text[0]));
  const bool differs = text.size() == kOr.size() + 2 && text.substr(1, kOr.size()) == kOr &&
                       is_number(text.front()) && is_number(text.back());
  return differs ? Code(name(text.front()) + std::string(kOr) + name(text.back())) : code;
}

// A list in the way that a form asks for.
Code styled(const Code& code, char style) {
  if (style == '%') return reduction(code);
  if (style == 0 || code.bracket != Bracket::list) return code;
  const auto same = [&](const Code& item) { return flat(item) == flat(code.items[0]); };
  const bool alike = !code.items.empty() && std::all_of(code.items.begin(), code.items.end(), same);
  if (style == '~' && alike) return code.items[0];
  if (style == '~' && code.items.empty()) return code;
  if (style == '^' && code.items.size() == 1) return code.items[0];
  return {"", Bracket::tuple, code.items};
}

// One call, in the forms of one row.
class Speech {
 public:
  Speech(const SpellingRow& row, const SpokenCall& call)
      : parameters_(parse_parameters(row.parameters)), spoken_(parameters_.size()) {
    known_ = call.positional.size() <= parameters_.size();
    for (std::size_t i = 0; known_ && i < call.positional.size(); ++i) {
      spoken_[i] = call.positional[i];
    }
    for (const auto& [name, spoken] : call.named) {
      const std::size_t i = index(name);
      known_ = known_ && i < parameters_.size();
      if (known_) spoken_[i] = spoken;
    }
  }

  // Does the row know all that the call gives?
  bool knows_all() const { return known_; }

  std::optional<Code> in_form(std::string_view form) const {
    if (form.find('(') != std::string_view::npos) return call(form);
    return operation(form);
  }

 private:
  const Spoken* find(std::string_view name) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].name == name) return spoken_[i] ? &*spoken_[i] : nullptr;
    }
    return nullptr;
  }

  // Does the parameter say nothing that a call without it would not?
  bool left_out(std::size_t i, char style = 0) const {
    if (!spoken_[i]) return true;
    const std::string said = flat(styled(spoken_[i]->code, style));
    const auto& presets = parameters_[i].presets;
    return std::find(presets.begin(), presets.end(), said) != presets.end();
  }

  std::size_t index(std::string_view name) const {
    std::size_t i = 0;
    while (i < parameters_.size() && parameters_[i].name != name) ++i;
    return i;
  }

  // Is everything that is not left out among the names?
  bool covers(const std::vector<std::string_view>& names) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const bool named = std::find(names.begin(), names.end(), parameters_[i].name) != names.end();
      if (!named && !left_out(i)) return false;
    }
    return true;
  }

  bool holds_tensor(std::string_view name) const {
    const Spoken* spoken = find(name);
    return spoken != nullptr && spoken->tensor;
  }

  // An operand that stands next to an operator.
  std::string operand(const Spoken& spoken) const {
    const std::string text = flat(spoken.code);
    const bool plain = text.find(' ') == std::string::npos;
    return plain ? text : "(" + text + ")";
  }

  std::optional<Code> operation(std::string_view form) const {
    if (form == "self.T") {
      return holds_tensor("self") ? std::optional<Code>(flat(find("self")->code) + ".T")
                                  : std::nullopt;
    }
    if (form[0] == '-' || form[0] == '~') {
      if (!holds_tensor("self")) return std::nullopt;
      return Code(std::string(1, form[0]) + flat(find("self")->code));
    }
    const std::vector<std::string_view> words = split(form, " ");
    const Spoken* left = find(words[0]);
    const Spoken* right = find(words[2]);
    if (left == nullptr || right == nullptr || !covers({words[0], words[2]})) return std::nullopt;
    if (!holds_tensor("self") || left->conditional || right->conditional) return std::nullopt;
    if (words[1].ends_with('=') && words[1].size() == 2 && is_in_place(words[1])) {
      // `self.bn.count += 1` would set an attribute of the module.
      if (!left->local) return std::nullopt;
      return Code(operand(*left) + " " + std::string(words[1]) + " " + operand(*right));
    }
    if (words[1] == "**") return power(*left, *right);
    return operation(operand(*left), words[1], operand(*right));
  }

  static Code operation(std::string left, std::string_view sign, const std::string& right) {
    return Code("", Bracket::operation, {std::move(left), std::string(sign) + " " + right});
  }

  static bool is_in_place(std::string_view sign) {
    return sign != "==" && sign != "!=" && sign != "<=" && sign != ">=";
  }

  // Formatters leave no spaces around ** between names and numbers.
  std::optional<Code> power(const Spoken& left, const Spoken& right) const {
    const std::string base = operand(left);
    const std::string exponent = operand(right);
    const bool tight = base.find('(') == std::string::npos && base.find('[') == std::string::npos &&
                       exponent.find('(') == std::string::npos &&
                       exponent.find('[') == std::string::npos;
    if (!tight) return operation(base, "**", exponent);
    return Code(base + "**" + exponent);
  }

  std::optional<Code> call(std::string_view form) const {
    const std::size_t open = form.find('(');
    std::string head(form.substr(0, open));
    std::vector<Term> terms;
    std::vector<std::string_view> names;
    if (head.starts_with("self.")) {
      if (!holds_tensor("self")) return std::nullopt;
      head = flat(find("self")->code) + head.substr(4);
      names.emplace_back("self");
    }
    const std::string_view inside = form.substr(open + 1, form.size() - open - 2);
    if (!inside.empty()) {
      for (const std::string_view text : split(inside, ", ")) terms.push_back(parse_term(text));
    }
    for (const Term& term : terms) names.push_back(term.name);
    if (!covers(names)) return std::nullopt;
    std::vector<Code> items;
    for (std::size_t t = 0; t < terms.size(); ++t) {
      if (!say(terms, t, items)) return std::nullopt;
    }
    return Code(std::move(head), Bracket::call, std::move(items));
  }

  bool is_left_out(const Term& term) const {
    const std::size_t i = index(term.name);
    return i < parameters_.size() && left_out(i, term.style);
  }

  // Adds one mention of a form to the arguments; false where the call does not fit the form.
  bool say(const std::vector<Term>& terms, std::size_t t, std::vector<Code>& items) const {
    const Term& term = terms[t];
    if (index(term.name) == parameters_.size()) {  // a constant of the form: inplace=True
      items.emplace_back(std::string(term.name));
      return true;
    }
    const bool may_miss =
        term.mode == Term::Mode::unless_left_out || term.mode == Term::Mode::keyword;
    if (may_miss && is_left_out(term) && !is_followed(terms, t)) return true;
    const Spoken* spoken = find(term.name);
    if (spoken == nullptr) {
      const Parameter& parameter = parameters_[index(term.name)];
      if (parameter.presets.empty()) return false;
      items.emplace_back(std::string(parameter.presets[0]));
      return true;
    }
    const Code code = styled(spoken->code, term.style);
    if (term.spread) return spread(code, items);
    const bool keyword =
        term.mode == Term::Mode::keyword || term.mode == Term::Mode::always_keyword;
    items.push_back(keyword ? code.after(std::string(term.name) + "=") : code);
    return true;
  }

  // Does a later argument by position have to be said, so that this one cannot be left out?
  bool is_followed(const std::vector<Term>& terms, std::size_t t) const {
    if (terms[t].mode != Term::Mode::unless_left_out) return false;
    return std::any_of(terms.begin() + static_cast<std::ptrdiff_t>(t) + 1, terms.end(),
                       [&](const Term& later) {
                         return later.mode == Term::Mode::unless_left_out && !is_left_out(later);
                       });
  }

  // *size: its items; a list without any stays one, since a call needs it.
  static bool spread(const Code& code, std::vector<Code>& items) {
    if (code.bracket != Bracket::list || code.items.empty()) {
      items.push_back(code.bracket == Bracket::list ? Code("()") : code);
      return true;
    }
    items.insert(items.end(), code.items.begin(), code.items.end());
    return true;
  }

  std::vector<Parameter> parameters_;
  std::vector<std::optional<Spoken>> spoken_;
  bool known_ = true;
};

}  // namespace

std::optional<Code> spell(const SpokenCall& call) {
  const SpellingRow* row = find_row(call.op);
  if (row == nullptr) return std::nullopt;
  const Speech speech(*row, call);
  if (!speech.knows_all()) return std::nullopt;
  for (const std::string_view form : split(row->forms, " || ")) {
    if (std::optional<Code> code = speech.in_form(form)) return code;
  }
  return std::nullopt;
}

std::optional<std::string> preset_of(std::string_view op, std::size_t position) {
  const SpellingRow* row = find_row(op);
  if (row == nullptr) return std::nullopt;
  const std::vector<Parameter> parameters = parse_parameters(row->parameters);
  if (position >= parameters.size() || parameters[position].presets.empty()) return std::nullopt;
  return std::string(parameters[position].presets[0]);
}

std::string parameter_at(std::string_view op, std::size_t position) {
  const SpellingRow* row = find_row(op);
  if (row == nullptr) return {};
  const std::vector<Parameter> parameters = parse_parameters(row->parameters);
  return position < parameters.size() ? std::string(parameters[position].name) : std::string();
}

bool gives_list(std::string_view packet) {
  constexpr std::array<std::string_view, 12> kLists{
      "aten.split",        "aten.split_with_sizes", "aten.chunk",
      "aten.unbind",       "aten.unsafe_split",     "aten.unsafe_chunk",
      "aten.tensor_split", "aten.meshgrid",         "aten.broadcast_tensors",
      "aten.hsplit",       "aten.vsplit",           "aten.unsafe_split_with_sizes"};
  return std::find(kLists.begin(), kLists.end(), packet) != kLists.end();
}

}  // namespace kerf::codegen
