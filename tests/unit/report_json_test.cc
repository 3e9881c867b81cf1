// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/report/json_report.h"
#include "agent/report/jsonl.h"
#include "agent/report/read_report.h"
#include "agent/report/report_parts.h"
#include "tests/unit/report_sample.h"

namespace pollgap {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Gap> sample_gaps() {
  std::vector<Gap> gaps = sample::gaps_of_every_cause();
  gaps.push_back(sample::mixed_gap());
  return gaps;
}

std::string report_of(const std::vector<Gap>& gaps, const SessionFacts& facts,
                      const std::vector<std::string>& notes = {}) {
  ReportBuilder builder;
  for (const Gap& gap : gaps) builder.add(gap, facts);
  std::string out;
  builder.write(builder.head(facts, notes), [&](std::string_view bytes) { out += bytes; });
  return out;
}

class Report : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  Result<ReportHead> read(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    gaps_.clear();
    return read_report(path_, [this](ReportedGap&& gap) { gaps_.push_back(std::move(gap)); });
  }
  std::string error_of(const std::string& text) {
    const auto head = read(text);
    return head ? "read without error" : head.error().message;
  }

  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("pollgap-report." + std::to_string(getpid()));
  std::vector<ReportedGap> gaps_;
};

TEST_F(Report, HasTheMembersOfTheContractInOrder) {
  const Json report = Json::parse(report_of(sample_gaps(), sample::facts()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : report.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"schema", "tool", "host", "target", "options",
                                            "coverage", "summary", "gaps"}));
  EXPECT_EQ(report["schema"], "pollgap.report/1");
  EXPECT_EQ(report["target"]["pid"], 4711);
  EXPECT_EQ(report["coverage"]["records"], 12345);
  const Json& gap = report["gaps"][15];
  EXPECT_EQ(gap["start"], "2025-02-01T00:00:02.000000000Z");
  EXPECT_EQ(gap["cq"], "0x55d0c0de4010");
  EXPECT_EQ(gap["verdict"]["share"], 0.78);
  EXPECT_EQ(gap["segments"][1]["detail"]["task"]["comm"], "stress-ng");
  EXPECT_EQ(gap["segments"][1]["detail"]["rt_priority"], 50);
  EXPECT_EQ(gap["segments"][4]["detail"], Json::object());
  EXPECT_EQ(gap["evidence"]["steal_ns"], 0);  // known to be none, not: unknown
  EXPECT_EQ(gap["evidence"]["smis"], 1);
  EXPECT_FALSE(gap.contains("open"));
}

TEST_F(Report, IsAPureFunctionOfItsInput) {
  EXPECT_EQ(report_of(sample_gaps(), sample::facts()), report_of(sample_gaps(), sample::facts()));
}

TEST_F(Report, WritesOneGapALine) {
  const std::string text = report_of(sample_gaps(), sample::facts());
  size_t lines = 0;
  for (size_t at = text.find("\n    {\"id\":"); at != std::string::npos;
       at = text.find("\n    {\"id\":", at + 1))
    ++lines;
  EXPECT_EQ(lines, sample_gaps().size());
}

TEST_F(Report, SaysWhatTheStreamLacks) {
  SessionFacts facts;
  facts.lost = 7;
  facts.malformed = 2;
  const Json report = Json::parse(report_of({sample::mixed_gap()}, facts, {"cut short"}));
  const std::string warnings = report["coverage"]["warnings"].dump();
  for (const char* part : {"no session record", "before the agent detached", "7 evidence records",
                           "2 evidence records", "cut short"})
    EXPECT_NE(warnings.find(part), std::string::npos) << warnings;
  EXPECT_TRUE(report["gaps"][0]["start"].is_null());
  EXPECT_EQ(report["tool"]["name"], "pollgap");
}

TEST_F(Report, ReplacesBytesThatAreNoUtf8) {
  Gap gap = sample::mixed_gap();
  gap.thread = "\xff\"\n";
  const Json report = Json::parse(report_of({gap}, sample::facts()));
  EXPECT_EQ(report["gaps"][0]["thread"], "\ufffd\"\n");
}

TEST_F(Report, ReadsBackWhatItWrote) {
  std::vector<Gap> gaps = sample_gaps();
  gaps.push_back(sample::gap_of(Cause::preemption, sample::full_detail()));
  gaps.back().open = true;
  gaps.back().waited_for_event = true;
  gaps.back().cq = 0;
  const auto head = read(report_of(gaps, sample::facts()));
  ASSERT_TRUE(head) << head.error().message;
  ASSERT_EQ(gaps_.size(), gaps.size());
  const Json original = Json::parse(report_of(gaps, sample::facts()));
  for (size_t i = 0; i < gaps.size(); ++i) {
    EXPECT_EQ(to_json(gaps_[i]), original["gaps"][i]) << i;
    ASSERT_EQ(gaps_[i].gap.segments.size(), gaps[i].segments.size());
    for (size_t s = 0; s < gaps[i].segments.size(); ++s)
      EXPECT_EQ(gaps_[i].gap.segments[s].detail, gaps[i].segments[s].detail);
  }
  EXPECT_EQ(head->summary.gaps, gaps.size());
  EXPECT_EQ(head->session.target["pid"], 4711);
}

TEST_F(Report, ReadsAnyOrderAndLayout) {
  const auto sorted = nlohmann::json::parse(report_of(sample_gaps(), sample::facts()));
  const auto head = read(sorted.dump(7));
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(gaps_.size(), sample_gaps().size());
}

TEST_F(Report, RefusesWhatIsNoReport) {
  const std::string good = report_of(sample_gaps(), sample::facts());
  EXPECT_NE(error_of("").find("empty"), std::string::npos);
  EXPECT_NE(error_of("{\"schema\":").find("byte"), std::string::npos);
  EXPECT_NE(error_of(good.substr(0, good.size() / 2)).find("byte"), std::string::npos);
  EXPECT_NE(error_of("[]").find("no JSON object"), std::string::npos);
  EXPECT_NE(error_of("{}").find("schema is missing"), std::string::npos);
  EXPECT_NE(error_of(R"({"schema":"pollgap.report/2"})").find("pollgap.report/2"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"schema":"pollgap.report/1"})").find("tool is missing"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(100'000, '[')).find("byte"), std::string::npos);
  for (const std::string& text : {std::string("{}"), good.substr(0, 99)}) {
    const std::string message = error_of(text);
    EXPECT_NE(message.find(path_), std::string::npos);
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST_F(Report, NamesTheGapAndMemberThatDoesNotFit) {
  const Json good = Json::parse(report_of(sample_gaps(), sample::facts()));
  const auto broken = [&](auto&& change) {
    Json json = good;
    change(json["gaps"][2]);
    return error_of(json.dump());
  };
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(broken([](Json& gap) { gap.erase("verdict"); }), "gaps[2]: verdict is missing");
  expect(broken([](Json& gap) { gap["verdict"]["cause"] = "gremlins"; }),
         "gaps[2]: verdict.cause has a value that is not known");
  expect(broken([](Json& gap) { gap["cq"] = "12"; }), "cq is not a hexadecimal");
  expect(broken([](Json& gap) { gap["cpu"] = 1e30; }), "cpu is not an integer");
  expect(broken([](Json& gap) { gap["tid"] = 5'000'000'000; }), "tid is out of range");
  expect(broken([](Json& gap) { gap["segments"][0]["duration_ns"] = 1; }), "segments sum to 1 ns");
  expect(broken([](Json& gap) { gap["segments"][0]["offset_ns"] = 5; }), "segments[0] begins");
  expect(broken([](Json& gap) { gap = 7; }), "gaps[2]: is not an object");
}

TEST_F(Report, TellsTheByteAtFault) {
  std::string text = report_of(sample_gaps(), sample::facts());
  const size_t at = text.find("\"segments\"", text.size() / 2);
  ASSERT_NE(at, std::string::npos);
  text[at + 11] = ';';  // the colon after it
  const std::string message = error_of(text);
  const size_t number = message.find("at byte ");
  ASSERT_NE(number, std::string::npos) << message;
  EXPECT_GT(std::stoul(message.substr(number + 8)), at) << message;
  EXPECT_LT(std::stoul(message.substr(number + 8)), at + 20) << message;
}

TEST(ReportParts, TakesTheGapsOutOfTheDocument) {
  using Gaps = std::vector<std::string_view>;
  const ReportParts parts = split_report(
      R"({"a": {"gaps": [1, 2]}, "b": "gaps", "gaps" : [ {"x": [1,2]} ,{"]": "\\\""}], "c": 3})");
  EXPECT_EQ(parts.head, R"({"a": {"gaps": [1, 2]}, "b": "gaps", "gaps" : [], "c": 3})");
  EXPECT_EQ(parts.gaps, (Gaps{R"({"x": [1,2]})", R"({"]": "\\\""})"}));
  EXPECT_EQ(split_report(R"({"gaps":[ ]})").gaps, Gaps());
  EXPECT_EQ(split_report(R"({"gaps":[1,]})").gaps, (Gaps{"1", ""}));  // "" is no JSON
  EXPECT_EQ(split_report(R"({"gaps":[1 2]})").gaps, (Gaps{"1 2"}));   // nor is "1 2"
  EXPECT_EQ(split_report(R"({"gaps":{"x":1}})").gaps, Gaps());
  for (const char* text :
       {"", "]", "]]]][", "\"", "\"\\", "{\"gaps\":[", "{\"gaps\":[1,", "{\"gaps\":[1}", "}{"})
    EXPECT_FALSE(Json::accept(split_report(text).head)) << text;
}

TEST(Jsonl, IsOneObjectALine) {
  ReportBuilder builder;
  const SessionFacts facts = sample::facts();
  const std::string line = gap_jsonl(builder.add(sample::mixed_gap(), facts));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(line.starts_with("{\"type\":\"gap\",\"id\":16,")) << line;
  const std::string summary = summary_jsonl(builder.head(facts, {}));
  EXPECT_EQ(summary.find('\n'), std::string::npos);
  const Json parsed = Json::parse(summary);
  EXPECT_EQ(parsed["type"], "summary");
  EXPECT_EQ(parsed["summary"]["gaps"], 1);
}

}  // namespace
}  // namespace pollgap
