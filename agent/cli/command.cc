// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Error.hpp>
#include <cstdio>
#include <cstdlib>

#include "agent/report/duration.h"
#include "agent/report/escape.h"

namespace pollgap {

ExitCode tell(const Error& error) {
  const std::string line = fmt::format("pollgap: {}\n", terminal_escaped(error.message));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return error.code;
}

CLI::Option* add_duration_option(CLI::App& app, const std::string& name, uint64_t& duration_ns,
                                 const std::string& help) {
  const auto parse = [&duration_ns, name](const std::string& text) {
    const auto parsed = parse_duration(text);
    if (!parsed) throw CLI::ValidationError(name, parsed.error().message);
    duration_ns = parsed.value();
  };
  return app.add_option_function<std::string>(name, parse, help)->type_name("DURATION");
}

TextStyle output_style() {
  const char* no_color = std::getenv("NO_COLOR");
  const bool wanted = no_color == nullptr || *no_color == '\0';
  return {.color = wanted && isatty(STDOUT_FILENO) == 1};
}

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Status output_error() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return std::nullopt;
  return Error{ExitCode::other,
               "cannot write all of the standard output: check where it is directed to"};
}

}  // namespace pollgap
