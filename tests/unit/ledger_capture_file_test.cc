// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "agent/capture_file/capture_format.h"
#include "agent/capture_file/capture_reader.h"
#include "agent/capture_file/capture_writer.h"
#include "tests/unit/ledger_stream.h"

namespace pollgap::test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes record_number(uint32_t number) {
  ev_lost record = make_record<ev_lost>(EV_LOST, number, number, number + 1);
  record.records = number;
  const auto bytes = std::as_bytes(std::span(&record, 1));
  return {bytes.begin(), bytes.end()};
}

class CaptureFile : public testing::Test {
 protected:
  CaptureFile() {
    std::string pattern = std::filesystem::temp_directory_path() / "pollgap-capture-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/events.pgc";
  }
  ~CaptureFile() override { std::filesystem::remove_all(directory_); }

  // Writes records 0..count-1, flushing every `block` of them.
  void write(uint32_t count, uint32_t block, bool finish = true) {
    Result<CaptureWriter> writer = CaptureWriter::create(path_);
    ASSERT_TRUE(writer) << writer.error().message;
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_FALSE(writer->append(record_number(i)));
      if ((i + 1) % block == 0) {
        ASSERT_FALSE(writer->flush());
      }
    }
    if (finish) {
      ASSERT_FALSE(writer->finish());
    }
  }

  // Reads to the end: how many records came, in order and whole, and the error, if any.
  uint32_t read(Status& error, bool* cut_off = nullptr) {
    Result<CaptureReader> reader = CaptureReader::open(path_);
    if (!reader) {
      error = reader.error();
      return 0;
    }
    for (uint32_t count = 0;; ++count) {
      const auto record = reader->next();
      if (!record) {
        error = record.error();
        EXPECT_FALSE(reader->next()) << "an error stays";
        if (cut_off != nullptr) {
          *cut_off = reader->cut_off();
        }
        return count;
      }
      if (!record.value()) {
        return count;
      }
      const Bytes expected = record_number(count);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), record.value()->begin(),
                             record.value()->end()));
    }
  }

  std::string contents() {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void replace_contents(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  std::string directory_;
  std::string path_;
};

TEST_F(CaptureFile, ReadsBackWhatWasWritten) {
  write(100'000, 1'000'000);  // more than one block of 1 MiB
  Status error;
  EXPECT_EQ(read(error), 100'000u);
  EXPECT_FALSE(error);
  EXPECT_LT(std::filesystem::file_size(path_), 100'000u * 32 / 2) << "it is compressed";
  EXPECT_EQ(std::filesystem::status(path_).permissions() & std::filesystem::perms::others_read,
            std::filesystem::perms::none);
}

TEST_F(CaptureFile, EmptyButFinished) {
  write(0, 1);
  Status error;
  EXPECT_EQ(read(error), 0u);
  EXPECT_FALSE(error);
}

TEST_F(CaptureFile, WithoutFinishWhatWasFlushedIsRead) {
  write(25, 10, false);  // 20 flushed, 5 not
  Status error;
  bool cut_off = false;
  EXPECT_EQ(read(error, &cut_off), 20u);
  ASSERT_TRUE(error);
  EXPECT_TRUE(cut_off);
  EXPECT_NE(error->message.find(path_), std::string::npos);
  EXPECT_NE(error->message.find("ends at byte"), std::string::npos);
}

TEST_F(CaptureFile, TruncatedAnywhere) {
  write(50, 10);
  const std::string whole = contents();
  uint32_t last = 0;
  for (size_t length = 0; length < whole.size(); ++length) {
    replace_contents(whole.substr(0, length));
    Status error;
    bool cut_off = false;
    const uint32_t count = read(error, &cut_off);
    ASSERT_TRUE(error) << "at " << length;
    EXPECT_EQ(cut_off, length >= CaptureFormat::kHeaderBytes);
    EXPECT_EQ(count % 10, 0u);
    EXPECT_GE(count, last);
    last = count;
  }
  EXPECT_EQ(last, 50u);
}

// Bits that carry nothing exist (in the frame's own tables); records that come out are the written
// ones in any case.
TEST_F(CaptureFile, NoChangedByteChangesARecord) {
  write(50, 10);
  const std::string whole = contents();
  size_t noticed = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
    replace_contents(changed);
    Status error;
    const uint32_t count = read(error);
    EXPECT_EQ(error.has_value(), count < 50 || at >= whole.size() - 8) << "byte " << at;
    noticed += error.has_value();
  }
  EXPECT_GT(noticed, whole.size() * 9 / 10);
}

TEST_F(CaptureFile, DamageInTheMiddleKeepsWhatLiesBefore) {
  write(50, 10);
  std::string bytes = contents();
  bytes[bytes.size() - 20] = static_cast<char>(bytes[bytes.size() - 20] ^ 1);  // the last block
  replace_contents(bytes);
  Status error;
  EXPECT_EQ(read(error), 40u);
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("damaged at byte"), std::string::npos);
}

TEST_F(CaptureFile, ForeignFilesAndOtherVersions) {
  Status error;
  replace_contents("ELF or something else altogether");
  EXPECT_EQ(read(error), 0u);
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find("is not a pollgap capture"), std::string::npos);

  write(1, 1);
  std::string bytes = contents();
  bytes[8] = 9;
  replace_contents(bytes);
  read(error);
  ASSERT_TRUE(error);
  EXPECT_NE(error->message.find(fmt::format("has format 9.{}", CaptureFormat::kRecordAbi)),
            std::string::npos);

  std::filesystem::remove(path_);
  read(error);
  EXPECT_NE(error->message.find("No such file"), std::string::npos);
  path_ = directory_;
  read(error);
  EXPECT_NE(error->message.find("Is a directory"), std::string::npos);
}

TEST_F(CaptureFile, AHugeClaimAllocatesNothing) {
  write(1, 1);
  std::string bytes = contents();
  bytes.replace(CaptureFormat::kHeaderBytes, 8, std::string(8, '\xff'));
  replace_contents(bytes);
  Status error;
  EXPECT_EQ(read(error), 0u);
  EXPECT_TRUE(error);
}

TEST_F(CaptureFile, ARecordMustHaveTheLengthItClaims) {
  Result<CaptureWriter> writer = CaptureWriter::create(path_);
  ASSERT_TRUE(writer);
  Bytes record = record_number(0);
  record.pop_back();
  EXPECT_TRUE(writer->append(record));
  EXPECT_TRUE(writer->append(Bytes(4)));
  EXPECT_FALSE(writer->append(record_number(0)));
  EXPECT_FALSE(writer->finish());
  Status error;
  EXPECT_EQ(read(error), 1u);
  EXPECT_FALSE(error);
}

TEST_F(CaptureFile, UnwritablePathIsAnError) {
  const Result<CaptureWriter> writer = CaptureWriter::create(directory_ + "/no/such/events.pgc");
  ASSERT_FALSE(writer);
  EXPECT_NE(writer.error().message.find("/no/such/events.pgc"), std::string::npos);
}

TEST_F(CaptureFile, AFullDiskIsAnErrorThatStays) {
  path_ = "/dev/full";
  const Result<CaptureWriter> writer = CaptureWriter::create(path_);
  ASSERT_FALSE(writer) << "already the header does not fit";
  EXPECT_NE(writer.error().message.find("No space left on device"), std::string::npos);
}

TEST_F(CaptureFile, ADiskThatFillsUpKeepsWhatWasWritten) {
  // A file size limit acts as a disk that fills up while the capture grows.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = 300;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  Status failed;
  uint32_t written = 0;
  {
    Result<CaptureWriter> writer = CaptureWriter::create(path_);
    ASSERT_TRUE(writer);
    for (; written < 1000 && !failed; ++written) {
      ASSERT_FALSE(writer->append(record_number(written)));
      failed = writer->flush();
    }
    EXPECT_TRUE(failed);
    EXPECT_TRUE(writer->append(record_number(0)));
    EXPECT_TRUE(writer->finish());
  }
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_TRUE(failed);
  EXPECT_NE(failed->message.find("File too large"), std::string::npos);
  Status error;
  EXPECT_EQ(read(error), written - 1);
  EXPECT_TRUE(error);
}

}  // namespace
}  // namespace pollgap::test
