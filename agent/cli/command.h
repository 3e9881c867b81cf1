// SPDX-License-Identifier: Apache-2.0
// The commands of pollgap, and how each meets its user: options in, exit code and one-line errors
// out.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>

#include "agent/report/text.h"
#include "probes/result.h"

namespace pollgap {

// Each adds its command to `app`; when the command line names it, parsing runs it and sets `exit`.
void add_attach(CLI::App& app, ExitCode& exit);
void add_sites(CLI::App& app, ExitCode& exit);
void add_report(CLI::App& app, ExitCode& exit);
void add_replay(CLI::App& app, ExitCode& exit);
void add_doctor(CLI::App& app, ExitCode& exit);
void add_selftest(CLI::App& app, ExitCode& exit);

// Prints "pollgap: MESSAGE" as one line on standard error; returns the error's exit code.
ExitCode tell(const Error& error);

// A duration with a unit (duration.h); anything else is a usage error.
CLI::Option* add_duration_option(CLI::App& app, const std::string& name, uint64_t& duration_ns,
                                 const std::string& help);

// Colors when standard output is a terminal and NO_COLOR is not set (https://no-color.org).
TextStyle output_style();

// Writes to standard output; a failure shows in output_error().
void print(std::string_view text);

// An Error if anything written to standard output was lost (disk full, closed pipe).
Status output_error();

}  // namespace pollgap
