// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/codegen/emit_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "kerf/emit/codegen/borders.h"
#include "kerf/emit/codegen/both_modes.h"
#include "kerf/emit/codegen/call_spec.h"
#include "kerf/emit/codegen/code.h"
#include "kerf/emit/codegen/config_text.h"
#include "kerf/emit/codegen/forward.h"
#include "kerf/emit/codegen/head_text.h"
#include "kerf/emit/codegen/names.h"
#include "kerf/emit/codegen/python_text.h"
#include "kerf/emit/codegen/stage_names.h"
#include "kerf/emit/codegen/support_text.h"
#include "kerf/emit/codegen/weight_text.h"
#include "kerf/plan/recompute.h"

namespace kerf {
namespace codegen {
namespace {

// A file has what its stages use: they are written first, and the rest around them.
class FileWriter {
 public:
  FileWriter(const Graph& graph, const Plan& plan, const Graph* eval, const EmitOptions& options)
      : graph_(graph),
        plan_(plan),
        options_(options),
        borders_(find_borders(graph, plan, options.relay)),
        names_(graph),
        call_(call_spec(graph, names_)),
        again_(recompute_blocks(graph, plan.recomputed)) {
    check_top_names(graph);
    if (eval != nullptr) modes_ = compare_modes(graph, *eval);
    needs_ = call_.kinds;
  }

  std::string write() {
    Lines stages;
    for (const Border& border : borders_.stages) write_stage(border, stages);
    note_needs(stages.text());
    std::string out = head_text(graph_, plan_, borders_, modes_ ? &*modes_ : nullptr);
    out += imports(stages.text());
    out += "\n" + modes_text() + "\n\n";
    out += support_text(SupportPart::stage, needs_);
    out += stages.text() + "\n\n";
    out += support_text(SupportPart::patterns, needs_);
    out += call_text();
    out += "\n\n" + support_text(SupportPart::run, needs_) + "\n\n";
    out += support_text(SupportPart::check, needs_);
    return out;
  }

 private:
  static Code strings(const std::string& before, const std::vector<std::string>& texts) {
    std::vector<Code> items;
    for (const std::string& text : texts) items.emplace_back(string_literal(text));
    return {before, Bracket::list, std::move(items)};
  }

  std::vector<std::string> names_of(const std::vector<ValueId>& values) const {
    std::vector<std::string> out;
    for (const ValueId id : values) out.push_back(names_.of(id));
    return out;
  }

  // Values that no later stage takes, and that are no results of the model.
  std::vector<std::string> last_uses(const Border& border) const {
    std::vector<std::string> out;
    for (const ValueId id : border.takes) {
      const Travel& travel = borders_.travels[id.index()];
      const bool kept = travel.to[0] == -1 || is_result(id);
      if (!kept && travel.to.back() == static_cast<int>(border.stage.index())) {
        out.push_back(names_.of(id));
      }
    }
    return out;
  }
  bool is_result(ValueId id) const {
    return std::any_of(graph_.outputs().begin(), graph_.outputs().end(), [&](const auto& output) {
      const auto* leaf = output.leaf.template find<ValueId>();
      return leaf != nullptr && *leaf == id;
    });
  }

  void write_stage(const Border& border, Lines& lines) {
    const std::size_t number = border.stage.index();
    lines.blank(2);
    lines.raw(fmt::format("class Stage{}(Stage):", number));
    lines.indent();
    constexpr std::size_t kRoom = kLineWidth - 4 - std::string_view("\"\"\"\"\"\"").size();
    const std::string title = stage_title(graph_, plan_, border.stage);
    lines.raw("\"\"\"" + folded(title, kRoom, "") + "\"\"\"");
    lines.blank();
    std::vector<std::string> inputs = names_of(border.takes);
    if (border.uses_batch && !border.batch) {
      inputs.emplace_back("B");
      needs_.insert("told");
    }
    lines.add(strings("INPUTS = ", inputs));
    lines.add(strings("OUTPUTS = ", names_of(border.gives)));
    lines.add(strings("LAST_USES = ", last_uses(border)));
    const Code weights = weight_table(graph_, border);
    if (!weights.items.empty()) lines.add(weights);
    if (!border.blocks.empty()) lines.add(strings("BLOCKS = ", border.blocks));
    const Code constants = constant_table(graph_, border);
    if (!constants.items.empty()) lines.add(constants);
    lines.blank();
    const ForwardContext context{graph_, names_, modes_ ? &*modes_ : nullptr, again_,
                                 options_.explicit_del};
    const std::set<std::string> kinds = write_forward(context, border, lines);
    needs_.insert(kinds.begin(), kinds.end());
    lines.dedent();
  }

  void note_needs(const std::string& stages) {
    if (stages.find("decoded(") != std::string::npos) needs_.insert("decoded");
    for (const char* kind : {"Row", "Made", "Node", "Member"}) {
      if (needs_.contains(kind)) needs_.insert("classes");
    }
    if (call_.result_uses_batch) needs_.insert("result_batch");
  }

  std::string imports(const std::string& stages) const {
    std::string out = "import argparse\n";
    if (needs_.contains("decoded")) out += "import base64\n";
    if (needs_.contains("Made")) out += "import collections\n";
    if (needs_.contains("keeping")) out += "import contextlib\n";
    out += "import copy\nimport functools\nimport importlib\nimport os\nimport sys\n";
    out += "from typing import NamedTuple\n\nimport torch\n";
    if (stages.find("F.") != std::string::npos) out += "import torch.nn.functional as F\n";
    out += "from torch import nn\n";
    if (needs_.contains("checkpoint")) out += "from torch.utils.checkpoint import checkpoint\n";
    return out;
  }

  std::string modes_text() const {
    const bool training = graph_.data().training;
    const std::string modes = modes_ ? "(True, False)" : training ? "(True,)" : "(False,)";
    return "MODES = " + modes + "  # of `training` that the stages have\n" +
           "DRAWS_IN_ORDER = " + (draws_in_order() ? "True" : "False") +
           "  # random numbers, in the model's order\n";
  }

  bool draws_in_order() const {
    const std::vector<StageId> stage_of = plan_.stage_of_nodes();
    StageId last{0};
    for (std::size_t n = 0; n < graph_.num_nodes(); ++n) {
      if (!graph_.node(NodeId(n)).random) continue;
      if (stage_of[n] < last) return false;
      last = stage_of[n];
    }
    return true;
  }

  std::string call_text() {
    Lines lines;
    lines.blank(2);
    std::vector<Code> classes;
    for (const Border& border : borders_.stages) {
      classes.emplace_back(fmt::format("Stage{}", border.stage.index()));
    }
    lines.add(Code("STAGES = ", Bracket::list, std::move(classes)));
    lines.blank();
    lines.raw("# How the model is called, and what it gives.");
    lines.add(list_of("PARAMETERS = ", call_.parameters));
    lines.add(call_.defaults.after("DEFAULTS = "));
    lines.add(call_.arguments.after("ARGUMENTS = "));
    if (!call_.result_uses_batch) lines.add(call_.result.after("RESULT = "));
    lines.add(strings("WRITTEN = ", written_inputs()));
    lines.blank(2);
    if (call_.result_uses_batch) {
      lines.raw("def result_pattern(B):");
      lines.indent();
      lines.add(call_.result.after("return "));
      lines.dedent();
      lines.blank(2);
    }
    write_config(graph_, plan_, borders_, names_, lines);
    lines.blank(2);
    write_input_check(graph_, names_, modes_ ? &*modes_ : nullptr, lines);
    return lines.text();
  }

  static Code list_of(const std::string& before, const Code& tuple) {
    return {before, Bracket::list, tuple.items};
  }

  std::vector<std::string> written_inputs() const {
    std::vector<std::string> out;
    for (const GraphInput& input : graph_.inputs()) {
      const StorageId storage = graph_.value(input.value).storage;
      if (storage.valid() && graph_.is_written(storage)) out.push_back(names_.of(input.value));
    }
    return out;
  }

  const Graph& graph_;
  const Plan& plan_;
  const EmitOptions& options_;
  Borders borders_;
  Names names_;
  CallSpec call_;
  std::vector<std::uint32_t> again_;
  std::optional<ModeDifferences> modes_;
  std::set<std::string> needs_;
};

}  // namespace
}  // namespace codegen

std::string emit_stages(const Graph& graph, const Plan& plan, const Graph* eval,
                        const EmitOptions& options) {
  check_plan_matches(plan, graph);
  return codegen::FileWriter(graph, plan, eval, options).write();
}

}  // namespace kerf
