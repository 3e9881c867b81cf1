// SPDX-License-Identifier: Apache-2.0
// What must hold for every evidence stream whatsoever.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <set>

#include "agent/capture_file/capture_reader.h"
#include "agent/capture_file/capture_writer.h"
#include "tests/unit/ledger_random_stream.h"

namespace pollgap::test {
namespace {

bool same_gaps(const std::vector<Gap>& left, const std::vector<Gap>& right) {
  return left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin(), same);
}

std::vector<Gap> through_a_capture(const EvidenceStream& stream, const std::string& path) {
  Result<CaptureWriter> writer = CaptureWriter::create(path);
  EXPECT_TRUE(writer);
  size_t count = 0;
  for (const auto& record : stream.records()) {
    EXPECT_FALSE(writer->append(record));
    if (++count % 37 == 0) {
      EXPECT_FALSE(writer->flush());
    }
  }
  EXPECT_FALSE(writer->finish());
  Result<CaptureReader> reader = CaptureReader::open(path);
  EXPECT_TRUE(reader);
  Correlator correlator({});
  std::vector<Gap> gaps;
  for (;;) {
    const auto record = reader->next();
    EXPECT_TRUE(record);
    if (!record || !record.value()) {
      break;
    }
    correlator.accept(*record.value(), gaps);
  }
  correlator.finish(gaps);
  return gaps;
}

TEST(Property, LedgersAreExactAndReplayIsIdentical) {
  constexpr uint64_t kStreams = 20'000;
  const std::string path =
      std::filesystem::temp_directory_path() / ("pollgap-property-" + std::to_string(getpid()));
  size_t gaps_seen = 0;
  std::set<Cause> causes;
  for (uint64_t seed = 1; seed <= kStreams && !testing::Test::HasFailure(); ++seed) {
    const EvidenceStream stream = random_stream(seed, 60);
    SessionFacts facts;
    const std::vector<Gap> gaps = correlate(stream, &facts);
    EXPECT_EQ(facts.malformed, 0u) << "seed " << seed;
    for (size_t i = 0; i < gaps.size(); ++i) {
      SCOPED_TRACE(seed);
      expect_exact(gaps[i]);
      EXPECT_EQ(gaps[i].id, i + 1);
      causes.insert(gaps[i].verdict.cause);
    }
    gaps_seen += gaps.size();
    EXPECT_TRUE(same_gaps(gaps, correlate(stream))) << "seed " << seed;
    if (seed % 40 == 0) {
      EXPECT_TRUE(same_gaps(gaps, through_a_capture(stream, path))) << "seed " << seed;
    }
  }
  std::filesystem::remove(path);
  // The streams are worth something only if they reach the rules: all causes but nmi, of which
  // there is no evidence.
  EXPECT_GT(gaps_seen, kStreams);
  EXPECT_EQ(causes.size(), static_cast<size_t>(Cause::unexplained));
}

TEST(Property, LongStreamsToo) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const EvidenceStream stream = random_stream(seed, 20'000);
    const std::vector<Gap> gaps = correlate(stream);
    for (const Gap& gap : gaps) {
      expect_exact(gap);
    }
    EXPECT_TRUE(same_gaps(gaps, correlate(stream)));
  }
}

}  // namespace
}  // namespace pollgap::test
