// Whole files in and out: what fails is named, and nothing is left half-written.
#include "planner/formats/text_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace bayplan {
namespace {

class TextFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "bayplan-text-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(TextFile, WrittenTextReadsBackAndLeavesNothingElse) {
  const std::string text("a\0b\nc", 5);
  ASSERT_TRUE(write_text_file(path("f"), "old").ok());
  ASSERT_TRUE(write_text_file(path("f"), text).ok());
  EXPECT_EQ(*read_text_file(path("f")), text);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(TextFile, MissingFileAndFolderAreToldApart) {
  EXPECT_EQ(read_text_file(path("none")).error().code, "file-not-found");
  EXPECT_EQ(read_text_file(folder_.string()).error().code, "not-a-file");
  EXPECT_EQ(read_text_file(path("none")).error().where, path("none"));
}

TEST_F(TextFile, UnwritableOutputNamesTheFile) {
  const Status status = write_text_file(path("no/such/f"), "x");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "unwritable-output");
  EXPECT_EQ(status.error().where, path("no/such/f"));
  EXPECT_EQ(write_text_file(folder_.string(), "x").error().code, "unwritable-output");
}

TEST_F(TextFile, APipeIsWrittenToNotReplaced) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_text_file(pipe, "xyz").ok());
  char text[8] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 3);
  EXPECT_STREQ(text, "xyz");
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(TextFile, ALinkIsFollowedNotReplaced) {
  ASSERT_TRUE(write_text_file(path("target"), "old").ok());
  std::filesystem::create_symlink(path("target"), path("link"));
  ASSERT_TRUE(write_text_file(path("link"), "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(read_text_file(path("target")).value(), "new");
}

}  // namespace
}  // namespace bayplan
