// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>

#include "agent/cli/command.h"
#include "agent/version.h"

namespace {

// CLI11 words the error; its own way of printing takes several lines.
int usage_error(std::string message) {
  while (!message.empty() && message.back() == '\n') message.pop_back();
  tell(pollgap::Error{
      pollgap::ExitCode::usage,
      fmt::format("{}; 'pollgap --help' and 'pollgap COMMAND --help' tell how", message)});
  return static_cast<int>(pollgap::ExitCode::usage);
}

bool has_command(const CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands(nullptr);  // no filter: all of them
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return command->get_name() == name; });
}

}  // namespace

int main(int argc, char** argv) {
  // A reader that goes away, or a file size limit, must not end the program before the report is
  // written: the write that fails says so.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);

  CLI::App app(
      "Explains why a thread that busy-polls an RDMA completion queue went silent: attach to a "
      "running process by PID.");
  app.name("pollgap");
  app.set_version_flag("--version", std::string("pollgap ") + pollgap::version);
  app.require_subcommand(1);
  pollgap::ExitCode exit = pollgap::ExitCode::done;
  pollgap::add_attach(app, exit);
  pollgap::add_sites(app, exit);
  pollgap::add_report(app, exit);
  pollgap::add_replay(app, exit);
  pollgap::add_doctor(app, exit);
  pollgap::add_selftest(app, exit);
  // CLI11 would only say that a command is missing.
  if (argc < 2 || (*argv[1] != '-' && !has_command(app, argv[1])))
    return usage_error(argc < 2 ? "no command given" : fmt::format("no command '{}'", argv[1]));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {  // --help, --version
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  return static_cast<int>(exit);
}
