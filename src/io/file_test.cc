// Goal: a file's bytes arrive unchanged, and every wrong path or size is one clear error.
// Method: files in a fresh folder; the kernel's own odd files (a folder, a pipe, /proc).
#include "io/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "io/scratch_folder.h"

namespace tandem::io {
namespace {

using ::testing::HasSubstr;

TEST(ReadFile, ReturnsEveryByte) {
  ScratchFolder folder;
  std::string all;
  for (int i = 0; i < 70'000; ++i) all.push_back(static_cast<char>(i * 31));
  EXPECT_EQ(*read_file(folder.write("all", all), 1 << 20), all);
  EXPECT_EQ(*read_file(folder.write("empty", ""), 1 << 20), "");
}

TEST(ReadFile, LimitIsInclusive) {
  ScratchFolder folder;
  const std::filesystem::path path = folder.write("ten", "0123456789");
  EXPECT_EQ(read_file(path, 10).value(), "0123456789");
  const Result<std::string> too_large = read_file(path, 9);
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.error().code, Code::kResourceExhausted);
  EXPECT_THAT(too_large.error().what, HasSubstr("limit of 9 bytes"));
}

TEST(ReadFile, AbsentFileIsNotFound) {
  ScratchFolder folder;
  const Result<std::string> absent = read_file(folder.path() / "absent.json", 10);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Code::kNotFound);
  EXPECT_THAT(absent.error().what, HasSubstr("absent.json: No such file"));
}

TEST(ReadFile, RefusesWhatIsNotARegularFile) {
  ScratchFolder folder;
  EXPECT_THAT(read_file(folder.path(), 10).error().what, HasSubstr("is a folder"));
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(read_file(pipe, 10).error().what, HasSubstr("not a regular file"));
}

TEST(ReadFile, TheSizeOfAFileIsOnlyAHint) {
  // /proc files say that they are empty.
  EXPECT_THAT(read_file("/proc/self/status", 1 << 20).value(), HasSubstr("Pid:"));
  EXPECT_EQ(read_file("/proc/self/status", 5).error().code, Code::kResourceExhausted);
}

TEST(PathExists, FollowsLinks) {
  ScratchFolder folder;
  const std::filesystem::path file = folder.write("a", "");
  std::filesystem::create_symlink(file, folder.path() / "link");
  std::filesystem::create_symlink(folder.path() / "absent", folder.path() / "broken");
  EXPECT_TRUE(path_exists(file));
  EXPECT_TRUE(path_exists(folder.path()));
  EXPECT_TRUE(path_exists(folder.path() / "link"));
  EXPECT_FALSE(path_exists(folder.path() / "broken"));
  EXPECT_FALSE(path_exists(folder.path() / "absent"));
}

}  // namespace
}  // namespace tandem::io
