// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "cli/verbs.h"
#include "kerf/base/error.h"
#include "kerf/base/printable.h"
#include "kerf/device/kind.h"
#include "kerf/partition/registry/registry.h"
#include "kerf/plan/comm_model.h"
#include "kerf/plan/schedule/schedule.h"

namespace kerf::cli {
namespace {

std::string names() {
  std::string out = "Methods:\n";
  for (const partition::Entry& entry : partition::methods()) {
    out += fmt::format("  {:<8} {}\n", entry.name, entry.description);
  }
  out += fmt::format("Schedules:            {}\n", fmt::join(schedule_names(), ", "));
  out += fmt::format("Communication models: {}\n", fmt::join(comm_model_names(), ", "));
  out += fmt::format("Device kinds:         {}\n", fmt::join(device_kind_names(), ", "));
  out += "Exit codes: 0 success, 1 nothing fits or the plan is not sound, 2 invalid input, 3 a bug";
  return out;
}

int complain(std::string_view message, ExitCode code) {
  fmt::print(stderr, "kerf: error: {}\n", printable(message));
  return code;
}

// `--profile ""` is a slip, such as a shell variable that is not set, and no wish for the default.
void refuse_empty_values(CLI::App& app) {
  const CLI::Validator given(
      [](std::string& value) {
        return value.empty()
                   ? std::string("an empty value; expected a value; give one, or omit the option")
                   : std::string();
      },
      "");
  for (CLI::Option* option : app.get_options([](const CLI::Option* o) {
         return o->get_items_expected_max() > 0;  // no flag
       })) {
    option->check(given);
  }
  for (CLI::App* part : app.get_subcommands([](const CLI::App*) { return true; })) {
    refuse_empty_values(*part);  // verbs, and groups of options
  }
}

int run(int argc, char** argv) {
  CLI::App app("Cuts models into pipeline stages, places them on devices and proves bounds.",
               "kerf");
  int exit_code = kOk;
  app.set_version_flag("--version", "kerf " KERF_VERSION);
  app.require_subcommand(1);
  app.footer(names);
  add_trace(app);
  add_estimate(app);
  add_plan(app, exit_code);
  add_compare(app, exit_code);
  add_simulate(app);
  add_memory(app);
  add_place(app, exit_code);
  add_verify(app, exit_code);
  add_report(app);
  add_emit(app);
  add_schedules(app);
  add_score(app, exit_code);
  add_bounds(app, exit_code);
  refuse_empty_values(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    // The parser asks for a verb before it looks at what stands in its place.
    const bool unknown_verb = app.get_subcommands().empty() && !app.remaining().empty();
    return complain(unknown_verb
                        ? fmt::format("unknown verb '{}'; see kerf --help", app.remaining()[0])
                        : fmt::format("{}; see kerf --help", error.what()),
                    kBadInput);
  }
  return exit_code;
}

}  // namespace
}  // namespace kerf::cli

int main(int argc, char** argv) {
  using namespace kerf::cli;
  try {
    return run(argc, argv);
  } catch (const kerf::Error& error) {
    return complain(error.what(), error.kind() == kerf::ErrorKind::internal ? kBug : kBadInput);
  } catch (const std::exception& error) {
    return complain(error.what(), kBug);
  }
}
