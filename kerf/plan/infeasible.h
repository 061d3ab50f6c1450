// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/units.h"

namespace kerf {

// How arguments are written: schedule='1f1b', or --schedule 1f1b.
enum class Wording { python, command_line };

// An argument of `plan`, by its name in Python.
struct Setting {
  std::string name;
  std::string value;
  bool is_text = true;  // a text, which Python quotes; false: a number

  std::string str(Wording wording) const;
};

// Which other arguments would do, each found by planning with it.
struct Advice {
  std::vector<Setting> fits;        // any one of them
  std::vector<Setting> not_enough;  // none of them alone
  bool together_tried = false;      // all of `not_enough` at once ...
  bool together_fits = false;       // ... do
  Bytes least;                      // where nothing fits: bytes that are short at best

  bool empty() const { return fits.empty() && not_enough.empty(); }
  std::string str(Wording wording) const;
};

// Why there is no plan: an expected answer, hence a value and not an exception.
struct Infeasible {
  std::string method;
  DeviceId tightest;   // the device that is shortest of memory in the best split that was found
  std::string device;  // its name
  Bytes needed;        // there, in that split
  Bytes limit;
  Bytes short_by;  // needed - limit
  std::string what_would_help;
  bool timed_out = false;  // the clock ended something: another run may find a plan
  // What a search did not find need not be impossible. Empty: it is proved so.
  std::string caveat = "none was found; this is not proved impossible";
  Advice advice = {};  // takes the place of what_would_help

  std::string help(Wording wording = Wording::python) const;
  // "[partition.chain] no plan fits in memory; the tightest device is cpu:1: it needs ..."
  std::string message(Wording wording = Wording::python) const;
};

}  // namespace kerf
