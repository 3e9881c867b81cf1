// SPDX-License-Identifier: Apache-2.0
// Text, HTML and trace output against golden files. POLLGAP_UPDATE_GOLDEN=1 writes them anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "agent/report/html.h"
#include "agent/report/text.h"
#include "agent/report/trace.h"
#include "tests/unit/report_sample.h"

namespace pollgap {
namespace {

class Rendering : public testing::Test {
 protected:
  void SetUp() override {
    for (const Gap& gap : sample::gaps_of_every_cause()) gaps_.push_back(builder_.add(gap, facts_));
    gaps_.push_back(builder_.add(sample::mixed_gap(), facts_));
    head_ = builder_.head(facts_, {});
  }

  static void expect_golden(const std::string& name, const std::string& text) {
    const std::string path = std::string(POLLGAP_GOLDEN_DIR) + "/" + name;
    if (std::getenv("POLLGAP_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    EXPECT_EQ(text, std::string(std::istreambuf_iterator<char>(file), {})) << path;
  }

  SessionFacts facts_ = sample::facts();
  ReportBuilder builder_;
  std::vector<ReportedGap> gaps_;
  ReportHead head_;
};

TEST_F(Rendering, GapLines) {
  std::string text = gap_line_titles({}) + "\n";
  for (const ReportedGap& gap : gaps_) text += gap_line(gap, {}) + "\n";
  expect_golden("gap_lines.txt", text);
}

TEST_F(Rendering, Ledger) {
  std::string text;
  for (const ReportedGap& gap : gaps_) text += gap_ledger(gap, {}) + "\n";
  expect_golden("ledgers.txt", text);
}

TEST_F(Rendering, SummaryOfASession) { expect_golden("summary.txt", summary_text(head_, {})); }

TEST_F(Rendering, SummaryOfAQuietSession) {
  SessionFacts facts = sample::facts();
  facts.coverage_json = "{}";
  expect_golden("summary_quiet.txt", summary_text(ReportBuilder().head(facts, {}), {}));
}

TEST_F(Rendering, ColorsOnlyWhenAsked) {
  EXPECT_EQ(gap_line(gaps_[0], {.color = false}).find('\x1b'), std::string::npos);
  EXPECT_NE(gap_line(gaps_[0], {.color = true}).find("\x1b["), std::string::npos);
  EXPECT_EQ(summary_text(head_, {.color = false}).find('\x1b'), std::string::npos);
  EXPECT_NE(summary_text(head_, {.color = true}).find("\x1b["), std::string::npos);
}

TEST_F(Rendering, HostileNamesStayOnTheirLine) {
  Gap gap = sample::mixed_gap();
  gap.thread = "\x1b[2J\n";
  gap.verdict.text = "by \x1b]0;x\a";
  gap.culprits[0].name = "\x1b[1m\r";
  gap.segments[1].detail.task->comm = "a\nb\x9b";
  const ReportedGap reported = builder_.add(gap, facts_);
  EXPECT_EQ(gap_line(reported, {}).find_first_of("\x1b\n\r\a"), std::string::npos);
  EXPECT_EQ(gap_ledger(reported, {}).find_first_of("\x1b\r\a"), std::string::npos);
  EXPECT_EQ(summary_text(builder_.head(facts_, {}), {}).find_first_of("\x1b\r\a"),
            std::string::npos);
}

TEST_F(Rendering, LineOfAGapWithoutWallTime) {
  ReportedGap gap = gaps_[15];
  gap.start.clear();
  EXPECT_TRUE(gap_line(gap, {}).starts_with("1003.000000 ")) << gap_line(gap, {});
}

std::string html_of(HtmlReport& report, const ReportHead& head) {
  std::string text;
  report.write(head, [&](std::string_view bytes) { text += bytes; });
  return text;
}

TEST_F(Rendering, HtmlHoldsEveryGapAndNoForeignMarkup) {
  HtmlReport report;
  for (ReportedGap gap : gaps_) {
    gap.gap.thread = "<script>alert(1)</script>";
    gap.gap.verdict.text = "\"><img src=x>";
    report.add(std::move(gap));
  }
  const std::string html = html_of(report, head_);
  for (int id = 1; id <= 16; ++id)
    EXPECT_NE(html.find("<details id=\"gap-" + std::to_string(id) + "\">"), std::string::npos);
  for (const char* part : {"<script", "<img", "<link", "@import", "url("})
    EXPECT_EQ(html.find(part), std::string::npos) << part;
  EXPECT_NE(html.find("&lt;script&gt;"), std::string::npos);
}

TEST_F(Rendering, HtmlKeepsTheLongestGaps) {
  HtmlReport report(3);
  for (ReportedGap gap : gaps_) report.add(std::move(gap));
  const std::string html = html_of(report, head_);
  EXPECT_NE(html.find("The 3 longest; 13 shorter ones"), std::string::npos);
  EXPECT_NE(html.find("id=\"gap-15\""), std::string::npos);  // 19 ms
  EXPECT_EQ(html.find("id=\"gap-1\""), std::string::npos);   // 5 ms
}

TEST_F(Rendering, TraceNestsSegmentsInGaps) {
  std::string text;
  TraceWriter trace([&](std::string_view bytes) { text += bytes; });
  for (const ReportedGap& gap : gaps_) trace.add(gap);
  trace.finish();
  const auto events = nlohmann::json::parse(text)["traceEvents"];
  size_t gaps = 0, segments = 0, names = 0;
  double gap_start = 0, gap_end = 0;
  for (const auto& event : events) {
    if (event["ph"] == "M") {
      ++names;
      continue;
    }
    ASSERT_EQ(event["ph"], "X");
    const double start = event["ts"], end = start + event["dur"].get<double>();
    if (event["cat"] == "gap") {
      ++gaps;
      gap_start = start;
      gap_end = end;
    } else {
      ++segments;
      EXPECT_GE(start, gap_start);
      EXPECT_LE(end, gap_end + 1e-3);
    }
  }
  EXPECT_EQ(gaps, 16u);
  EXPECT_EQ(segments, 15u + 5u);
  EXPECT_EQ(names, 2u);  // between_polls and late_completion of one CQ
}

}  // namespace
}  // namespace pollgap
