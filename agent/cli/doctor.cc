// SPDX-License-Identifier: Apache-2.0
// pollgap doctor: can pollgap work here, and which settings of the machine make gaps.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "agent/cli/check.h"
#include "agent/cli/command.h"
#include "agent/report/escape.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  pid_t pid = 0;
  bool json = false;
};

const char* grade_name(Grade grade) {
  switch (grade) {
    case Grade::ok:
      return "OK";
    case Grade::warn:
      return "WARN";
    case Grade::fail:
      break;
  }
  return "FAIL";
}

std::string text_of(const std::vector<Check>& checks) {
  std::string out;
  for (const Check& check : checks) {
    out += fmt::format("{:<4}  {:<24} {}\n", grade_name(check.grade), terminal_escaped(check.name),
                       terminal_escaped(check.found));
    if (!check.advice.empty())
      out += fmt::format("      {:<24} -> {}\n", "", terminal_escaped(check.advice));
  }
  return out;
}

std::string json_text(const std::vector<Check>& checks) {
  Json list = Json::array();
  for (const Check& check : checks)
    list.push_back({{"grade", grade_name(check.grade)},
                    {"name", check.name},
                    {"found", check.found},
                    {"advice", check.advice}});
  const Json json{{"schema", "pollgap.doctor/1"}, {"checks", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

ExitCode doctor(const Options& options) {
  std::vector<Check> checks = check_machine();
  if (options.pid != 0) {
    const auto target = check_target(options.pid);
    checks.insert(checks.end(), target.begin(), target.end());
  }
  print(options.json ? json_text(checks) : text_of(checks));
  if (Status failed = output_error()) return tell(*failed);
  const auto first = std::ranges::find(checks, Grade::fail, &Check::grade);
  return first == checks.end() ? ExitCode::done : first->code;
}

}  // namespace

void add_doctor(CLI::App& app, ExitCode& exit) {
  auto* command =
      app.add_subcommand("doctor", "Check whether pollgap works here, and what makes gaps here");
  auto options = std::make_shared<Options>();
  command->add_option("--pid", options->pid, "Check this process, too")->check(CLI::PositiveNumber);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options, &exit] { exit = doctor(*options); });
}

}  // namespace pollgap
