// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The command line: one function a verb. Each adds its subcommand to the program; when the user
// asks for it, its callback loads files, calls the library and prints. No decisions are made here.
#pragma once

#include <CLI/CLI.hpp>

namespace kerf::cli {

// What the program returns to the shell; part of its contract.
enum ExitCode : int {
  kOk = 0,
  kNo = 1,        // an honest no: nothing fits, or the plan is not sound
  kBadInput = 2,  // usage, files, values
  kBug = 3,       // a fault of Kerf's own
};

// Callbacks throw kerf::Error for bad input and set `exit_code` to kNo for an honest no.
void add_trace(CLI::App& app);
void add_estimate(CLI::App& app);
void add_plan(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_simulate(CLI::App& app);
void add_memory(CLI::App& app);
void add_place(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_report(CLI::App& app);
void add_emit(CLI::App& app);
void add_schedules(CLI::App& app);
void add_score(CLI::App& app, int& exit_code);
void add_bounds(CLI::App& app, int& exit_code);

}  // namespace kerf::cli
