// SPDX-License-Identifier: Apache-2.0
// Writes a report of sample gaps to standard output, for tests in other languages.
//   report_sample full|empty|no-session
#include <cstdio>
#include <string_view>

#include "agent/report/json_report.h"
#include "tests/unit/report_sample.h"

int main(int argc, char** argv) {
  using namespace pollgap;
  const std::string_view mode = argc == 2 ? argv[1] : "";
  const SessionFacts facts = mode == "no-session" ? SessionFacts() : sample::facts();
  ReportBuilder builder;
  if (mode != "empty") {
    for (const Gap& gap : sample::gaps_of_every_cause()) builder.add(gap, facts);
    builder.add(sample::mixed_gap(), facts);
    Gap odd = sample::gap_of(Cause::preemption, sample::full_detail());
    odd.cq = 0;
    odd.open = true;
    odd.waited_for_event = true;
    odd.thread = "\x1b[31m\xff<b>";
    builder.add(odd, facts);
  }
  builder.write(builder.head(facts, {}),
                [](std::string_view bytes) { std::fwrite(bytes.data(), 1, bytes.size(), stdout); });
  return std::fflush(stdout) == 0 ? 0 : 1;
}
