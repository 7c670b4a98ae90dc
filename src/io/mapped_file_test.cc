// Goal: a mapped file shows the file's bytes, survives drop() and moves, and gives memory back.
// Method: files in a fresh folder; drop() is observed in the count of file pages that the kernel
// says this process holds in memory.
#include "io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "io/scratch_folder.h"

namespace tandem::io {
namespace {

using ::testing::HasSubstr;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// File-backed pages of this process that are in memory.
int64_t shared_pages() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  statm >> size >> resident >> shared;
  return shared;
}

uint64_t sum(std::span<const std::byte> bytes) {
  uint64_t total = 0;
  for (std::byte b : bytes) total += static_cast<uint64_t>(b);
  return total;
}

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  ScratchFolder folder;
  const MappedFile file = MappedFile::open(folder.write("a", "some bytes")).value();
  EXPECT_EQ(text_of(file.bytes()), "some bytes");
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  ScratchFolder folder;
  const MappedFile file = MappedFile::open(folder.write("empty", "")).value();
  EXPECT_TRUE(file.bytes().empty());
  file.drop(0, 0);
  file.prefetch(0, 0);
}

TEST(MappedFile, WrongPathsAreErrors) {
  ScratchFolder folder;
  const Result<MappedFile> absent = MappedFile::open(folder.path() / "absent");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, Code::kNotFound);
  EXPECT_THAT(absent.error().what, HasSubstr("absent"));
  EXPECT_THAT(MappedFile::open(folder.path()).error().what, HasSubstr("is a folder"));
}

TEST(MappedFile, MovingKeepsTheBytesInPlace) {
  ScratchFolder folder;
  MappedFile first = MappedFile::open(folder.write("a", "first")).value();
  const std::byte* address = first.bytes().data();
  MappedFile second = MappedFile::open(folder.write("b", "second")).value();
  second = std::move(first);
  EXPECT_EQ(second.bytes().data(), address);
  EXPECT_EQ(text_of(second.bytes()), "first");
}

TEST(MappedFile, DropGivesMemoryBackAndKeepsTheBytesReadable) {
  ScratchFolder folder;
  const size_t page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::string content(1024 * page_bytes + 17, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 4096);
  const MappedFile file = MappedFile::open(folder.write("large", content)).value();

  file.prefetch(0, file.bytes().size());
  const uint64_t before = sum(file.bytes());
  const int64_t touched = shared_pages();
  file.drop(100, file.bytes().size() - 100);
  // Other pages of the process may come and go; most of the 1024 must be gone.
  EXPECT_LT(shared_pages(), touched - 900);
  EXPECT_EQ(sum(file.bytes()), before);
  EXPECT_EQ(text_of(file.bytes()), content);
}

TEST(MappedFileDeathTest, RangesOutsideTheFileAreDefects) {
  ScratchFolder folder;
  const MappedFile file = MappedFile::open(folder.write("a", "0123456789")).value();
  EXPECT_DEATH(file.drop(11, 0), "starts past the end");
  EXPECT_DEATH(file.drop(5, 6), "ends past the end");
}

}  // namespace
}  // namespace tandem::io
