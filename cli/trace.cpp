// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Tracing runs the user's model, so it is Python's: this verb reads the command line, finds the
// Python that has the package kerf, and becomes it.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "kerf/base/error.h"
#include "kerf/base/json.h"

namespace kerf::cli {
namespace {

namespace fs = std::filesystem;

struct TraceOptions {
  std::string make_case;
  std::string out;
  std::string mode;
  std::vector<std::string> basic_blocks;
  int batch_dim = 0;
  bool is_static = false;
  bool keep_masks = false;
  bool export_all = false;
};

constexpr const char* kStart = R"(
import sys
try:
    from kerf._command import main
except ImportError as error:
    sys.stderr.write(
        f"kerf: error: [kerf.trace] {sys.executable} has no package kerf with PyTorch ({error}); "
        "expected the Python that Kerf is installed in; set KERF_PYTHON to it\n"
    )
    sys.exit(2)
main(sys.argv[1])
)";

fs::path program_folder() {
  std::error_code failed;
  const fs::path program = fs::read_symlink("/proc/self/exe", failed);
  return failed ? fs::path() : program.parent_path();
}

// KERF_PYTHON, or the one that stands beside this program, or the first of the path.
std::string find_python() {
  if (const char* named = std::getenv("KERF_PYTHON"); named != nullptr && *named != '\0') {
    return named;
  }
  std::error_code ignored;
  for (const char* name : {"python3", "python"}) {
    const fs::path beside = program_folder() / name;
    if (!program_folder().empty() && fs::is_regular_file(beside, ignored)) return beside.string();
  }
  return "python3";
}

// The package of a build tree stands beside the program too.
void add_package_of_build() {
  const fs::path folder = program_folder() / "python";
  std::error_code ignored;
  if (!fs::exists(folder / "kerf" / "__init__.py", ignored)) return;
  const char* others = std::getenv("PYTHONPATH");
  const std::string path =
      folder.string() + (others != nullptr && *others != '\0' ? std::string(":") + others : "");
  setenv("PYTHONPATH", path.c_str(), 1);
}

[[noreturn]] void run_trace(const TraceOptions& options, bool has_batch_dim) {
  Json request = {{"make_case", options.make_case},
                  {"out", options.out},
                  {"mode", options.mode},
                  {"basic_blocks", options.basic_blocks},
                  {"fold_masks", !options.keep_masks},
                  {"batch_dims", nullptr},
                  {"opaque", options.export_all ? "never" : "auto"}};
  if (has_batch_dim) request["batch_dims"] = options.batch_dim;
  if (options.is_static) request["batch_dims"] = Json::object();
  const std::string python = find_python();
  const std::string text = request.dump();
  add_package_of_build();
  execlp(python.c_str(), python.c_str(), "-c", kStart, text.c_str(), nullptr);
  throw Error(ErrorKind::missing_backend,
              "[kerf.trace] cannot run '" + python + "': " + std::strerror(errno) +
                  "; expected the Python that Kerf is installed in; set KERF_PYTHON to it");
}

}  // namespace

void add_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  CLI::App* verb = app.add_subcommand("trace", "Capture a model as a graph (runs Python)");
  verb->add_option("case", options->make_case,
                   "package.module:function that gives the model, its positional and its named "
                   "arguments; modules of the current folder are found")
      ->required();
  verb->add_option("--out", options->out, "model.graph to write")->required();
  verb->add_option("--mode", options->mode, "train or eval; default: the mode the model is in")
      ->check(CLI::IsMember({"train", "eval"}));
  verb->add_option("--basic-block", options->basic_blocks,
                   "a module to keep whole, by class name or path; may be given several times");
  CLI::Option* dim =
      verb->add_option("--batch-dim", options->batch_dim, "the batch dimension of all inputs");
  verb->add_flag("--static", options->is_static, "a graph of one fixed batch size")->excludes(dim);
  verb->add_flag("--keep-masks", options->keep_masks,
                 "keep attention masks that no call can change");
  verb->add_flag("--export-all", options->export_all,
                 "refuse a model of which a module would have to run as Python");
  verb->callback([options, dim] { run_trace(*options, dim->count() > 0); });
}

}  // namespace kerf::cli
