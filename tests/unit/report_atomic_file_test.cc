// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "agent/report/atomic_file.h"

namespace pollgap {
namespace {

namespace fs = std::filesystem;

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "pollgap-atomic.XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = directory_ / "report.json";
  }
  void TearDown() override { fs::remove_all(directory_); }

  void write_previous() { std::ofstream(path_) << "previous"; }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), {}));
  }

  fs::path directory_, path_;
};

TEST_F(AtomicFileTest, ReplacesOnCommitAndNotBefore) {
  write_previous();
  auto file = AtomicFile::create(path_);
  ASSERT_TRUE(file) << file.error().message;
  file->write("new");
  EXPECT_EQ(contents_of(path_), "previous");
  EXPECT_FALSE(file->commit());
  EXPECT_EQ(contents_of(path_), "new");
  EXPECT_EQ(files(), 1u);
}

TEST_F(AtomicFileTest, LeavesNothingWhenNotCommitted) {
  write_previous();
  {
    auto file = AtomicFile::create(path_);
    ASSERT_TRUE(file);
    file->write(std::string(4 << 20, 'x'));
    EXPECT_EQ(files(), 2u);
  }
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(contents_of(path_), "previous");
}

TEST_F(AtomicFileTest, WritesThroughALinkToWhatItNames) {
  const fs::path link = directory_ / "link.json";
  write_previous();
  fs::create_symlink("report.json", link);
  auto file = AtomicFile::create(link);
  ASSERT_TRUE(file);
  file->write("new");
  EXPECT_FALSE(file->commit());
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(contents_of(path_), "new");
}

TEST_F(AtomicFileTest, NamesThePathThatCannotBeWritten) {
  for (const fs::path& path : {directory_ / "none" / "report.json", directory_, fs::path()}) {
    const auto file = AtomicFile::create(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().code, ExitCode::other);
    EXPECT_NE(file.error().message.find(path), std::string::npos);
    EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
  }
}

TEST_F(AtomicFileTest, WritesADeviceInPlace) {
  auto file = AtomicFile::create("/dev/null");
  ASSERT_TRUE(file) << file.error().message;
  file->write("anything");
  EXPECT_FALSE(file->commit());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));

  auto full = AtomicFile::create("/dev/full");
  ASSERT_TRUE(full) << full.error().message;
  full->write("anything");
  const Status status = full->commit();
  ASSERT_TRUE(status);
  EXPECT_NE(status->message.find("/dev/full"), std::string::npos);
  EXPECT_NE(status->message.find("space"), std::string::npos);
}

TEST_F(AtomicFileTest, KeepsThePreviousFileWhenTheSizeLimitIsReached) {
  write_previous();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{4096, before.rlim_max};
  auto file = AtomicFile::create(path_);
  ASSERT_TRUE(file);
  file->write(std::string(100'000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Status status = file->commit();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_TRUE(status);
  EXPECT_NE(status->message.find(path_), std::string::npos);
  EXPECT_EQ(contents_of(path_), "previous");
  EXPECT_EQ(files(), 1u);
}

// A full disk, for real. Mounting needs root: the reason is shown where it is refused.
TEST_F(AtomicFileTest, KeepsThePreviousFileOnAFullDisk) {
  if (mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "mounting a small tmpfs was refused: run as root";
  write_previous();
  {
    auto file = AtomicFile::create(path_);
    ASSERT_TRUE(file);
    file->write(std::string(1 << 20, 'x'));
    const Status status = file->commit();
    ASSERT_TRUE(status);
    EXPECT_NE(status->message.find("space"), std::string::npos) << status->message;
    EXPECT_EQ(contents_of(path_), "previous");
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(umount(directory_.c_str()), 0);
}

}  // namespace
}  // namespace pollgap
