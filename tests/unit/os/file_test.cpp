// SPDX-License-Identifier: Apache-2.0
#include "os/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "os/directory.h"
#include "os/fd.h"
#include "os/random.h"
#include "os/system_error.h"

namespace meron {
namespace {

std::string path_of(const UniqueFd& fd) {
  return "/proc/self/fd/" + std::to_string(fd.get());
}

UniqueFd file_with(const std::string& content) {
  UniqueFd fd(::memfd_create("file_test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  return fd;
}

TEST(Files, ThatAreNoneAreRefusedAtOnce) {
  const std::string folder = ::testing::TempDir() + "/files-that-are-none";
  ASSERT_TRUE(::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST);
  const std::string pipe = folder + "/pipe";
  ASSERT_TRUE(::mkfifo(pipe.c_str(), 0600) == 0 || errno == EEXIST);
  for (const std::string& path : {pipe, folder, std::string("/dev/zero")}) {
    const auto read = read_file(path, 100);
    ASSERT_FALSE(read.ok()) << path;
    EXPECT_EQ(read.error().code(), MERON_E_IO);
    EXPECT_EQ(read.error().info().subject, path);
    EXPECT_FALSE(write_file(path, "x").ok()) << path;
  }
  (void)::unlink(pipe.c_str());
  (void)::rmdir(folder.c_str());
}

TEST(ReadFile, GivesTheContentUpToTheBound) {
  for (const size_t bytes : {0, 1, 16383, 16384, 16385, 50000}) {
    const std::string content(bytes, 'x');
    const UniqueFd fd = file_with(content);
    const auto exact = read_file(path_of(fd), bytes);
    ASSERT_TRUE(exact.ok()) << bytes;
    EXPECT_EQ(*exact, content);
    if (bytes == 0) continue;
    const auto longer = read_file(path_of(fd), bytes - 1);
    ASSERT_FALSE(longer.ok()) << bytes;
    EXPECT_EQ(longer.error().code(), MERON_E_IO);
  }
}

TEST(ReadFile, NamesAMissingFile) {
  const auto result = read_file("/nowhere/at/all", 10);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), MERON_E_NOT_FOUND);
  EXPECT_EQ(result.error().info().subject, "/nowhere/at/all");
  EXPECT_NE(result.error().info().what.find("ENOENT"), std::string::npos);
}

TEST(ReplaceFile, LeavesTheFileAloneAndNothingBeside) {
  std::string folder = ::testing::TempDir() + "replace-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/file";
  for (const char* content : {"first", "second"}) {
    ASSERT_TRUE(replace_file(path, content).ok());
    EXPECT_EQ(*read_file(path, 10), content);
    EXPECT_EQ(*list_directory(folder), std::vector<std::string>{"file"});
  }
  EXPECT_EQ(replace_file(folder + "/no/file", "").error().code(), MERON_E_NOT_FOUND);
  remove_empty_directory(folder);
  EXPECT_TRUE(list_directory(folder).ok()) << "it was not empty";
  EXPECT_TRUE(remove_file(path).ok());
  EXPECT_TRUE(remove_file(path).ok()) << "of what is not there";
  remove_empty_directory(folder);
  EXPECT_EQ(list_directory(folder).error().code(), MERON_E_NOT_FOUND);
}

TEST(MakePrivateDirectory, TakesItsOwnAndRefusesOthers) {
  std::string folder = ::testing::TempDir() + "private-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string own = folder + "/own", file = folder + "/file";
  EXPECT_TRUE(make_private_directory(own).ok());
  EXPECT_TRUE(make_private_directory(own).ok());
  ASSERT_EQ(::chmod(own.c_str(), 0750), 0);
  EXPECT_EQ(make_private_directory(own).error().code(), MERON_E_AUTH);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chmod(own.c_str(), 0700), 0);
    ASSERT_EQ(::chown(own.c_str(), 12345, 12345), 0);
    EXPECT_EQ(make_private_directory(own).error().code(), MERON_E_AUTH);
  }
  ASSERT_TRUE(write_file(file, "").ok());
  EXPECT_EQ(make_private_directory(file).error().code(), MERON_E_AUTH);
  EXPECT_EQ(make_private_directory(folder + "/no/where").error().code(), MERON_E_NOT_FOUND);
  remove_empty_directory(own);
  EXPECT_TRUE(remove_file(file).ok());
  remove_empty_directory(folder);
}

TEST(ReadStream, ReadsToTheEndOrTheDeadline) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  ASSERT_EQ(::write(writer.get(), "token", 5), 5);
  const auto open = read_stream(reader.get(), 100, Deadline::after_ms(10));
  ASSERT_FALSE(open.ok());
  EXPECT_EQ(open.error().code(), MERON_E_TIMEOUT);

  ASSERT_EQ(::write(writer.get(), "token", 5), 5);
  writer.reset();
  const auto closed = read_stream(reader.get(), 5, Deadline::after_ms(1000));
  ASSERT_TRUE(closed.ok());
  EXPECT_EQ(*closed, "token");
}

TEST(UniqueFd, ClosesWhatItOwns) {
  const int number = [] {
    const UniqueFd fd = file_with("x");
    UniqueFd copy = fd.duplicate();
    EXPECT_NE(copy.get(), fd.get());
    EXPECT_EQ(::fcntl(copy.get(), F_GETFD), FD_CLOEXEC);
    UniqueFd moved = std::move(copy);
    EXPECT_FALSE(copy.valid());  // NOLINT: the state after a move is the point
    return moved.get();
  }();
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST(RandomBytes, FillsAllAndDiffers) {
  std::vector<std::byte> a(1000), b(1000);
  ASSERT_TRUE(random_bytes(a).ok());
  ASSERT_TRUE(random_bytes(b).ok());
  EXPECT_NE(a, b);
  EXPECT_TRUE(random_bytes({}).ok());
  // Each tail of 32 zero bytes would be a one in 2^256 event.
  EXPECT_NE(std::vector<std::byte>(a.end() - 32, a.end()), std::vector<std::byte>(32));
}

TEST(ConstantTimeEqual, ComparesContentAndLength) {
  std::vector<std::byte> a(32), b(32);
  ASSERT_TRUE(random_bytes(a).ok());
  b = a;
  EXPECT_TRUE(constant_time_equal(a, b));
  EXPECT_TRUE(constant_time_equal({}, {}));
  EXPECT_FALSE(constant_time_equal(a, std::span(b).first(31)));
  for (size_t i = 0; i < b.size(); ++i) {
    b[i] ^= std::byte{0x80};
    EXPECT_FALSE(constant_time_equal(a, b)) << i;
    b[i] ^= std::byte{0x80};
  }
}

TEST(SystemError, MapsErrnoToStatus) {
  EXPECT_EQ(system_error("x", ENOMEM).code(), MERON_E_NO_MEMORY);
  EXPECT_EQ(system_error("x", ENOSPC).code(), MERON_E_NO_SPACE);
  EXPECT_EQ(system_error("x", EDQUOT).code(), MERON_E_NO_SPACE);
  EXPECT_EQ(memory_error("x", ENOSPC).code(), MERON_E_NO_MEMORY);
  EXPECT_EQ(memory_error("x", EIO).code(), MERON_E_IO);
  EXPECT_EQ(system_error("x", EMFILE).code(), MERON_E_NO_MEMORY);
  EXPECT_FALSE(system_error("x", EMFILE).info().advice.empty());
  EXPECT_EQ(system_error("x", EIO).code(), MERON_E_IO);
  EXPECT_EQ(system_error("cannot y", EIO).info().what, "cannot y: Input/output error (EIO)");
  EXPECT_EQ(errno_text(123456), "error 123456");
}

}  // namespace
}  // namespace meron
