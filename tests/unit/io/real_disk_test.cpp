// SPDX-License-Identifier: Apache-2.0
// Devices that fail for real: small ext4 file systems on loop devices, which only root can mount.
// Each is in a child's own mount namespace, and ends with it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "../os/child_process.h"
#include "disk.h"
#include "io/file_io.h"
#include "io/swap_file.h"

namespace meron {
namespace {

using test::Bytes;
using test::finish;

constexpr int kCannotMount = 250;  // a child's exit status
#define NEED_MOUNT(condition)              \
  do {                                     \
    if (!(condition)) return kCannotMount; \
  } while (0)
#define EXPECT_CHILD(status)                                                                    \
  do {                                                                                          \
    const int status_ = (status);                                                               \
    if (status_ == kCannotMount) GTEST_SKIP() << "cannot mount a file system on a loop device"; \
    EXPECT_EQ(status_, 0);                                                                      \
  } while (0)

class RealDisk : public test::OnDisk {
 protected:
  void SetUp() override {
    OnDisk::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "takes root, to mount";
  }

  std::string below(const char* name) const { return directory_.path() + "/" + name; }

  // An ext4 of `mebibytes` in the image file `image`, at mount(). For a child.
  bool mount_ext4(const std::string& image, int mebibytes) const {
    const std::string command = "truncate -s " + std::to_string(mebibytes) + "M " + image +
                                " && mkfs.ext4 -q -F -O ^has_journal -E lazy_itable_init=1 " +
                                image + " && mkdir " + mount() + " && mount -o loop " + image +
                                " " + mount() + " >/dev/null 2>&1";
    return std::system(command.c_str()) == 0;
  }
  static bool own_mounts() {
    return ::unshare(CLONE_NEWNS) == 0 &&
           ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }
  std::string mount() const { return below("mount"); }
};
INSTANTIATE_TEST_SUITE_P(Backends, RealDisk,
                         testing::Values(test::Backend::uring, test::Backend::threads),
                         test::name_of);

TEST_P(RealDisk, AFileSystemThatStopsGivesErrors) {
  EXPECT_CHILD(test::run_in_child([&] {
    NEED_MOUNT(own_mounts() && mount_ext4(below("image"), 32));
    const auto engine = this->engine({.block = 65536});
    auto made = SwapFile::create(engine, mount());
    CHILD_EXPECT(made.ok());
    const auto swap = *made;
    const auto extent = swap->allocate(1 << 20);
    CHILD_EXPECT(extent.ok());
    Bytes bytes(1 << 20);
    CHILD_EXPECT(finish(engine->write(swap->file(), 0, bytes.data(), bytes.size())).ok());
    const int root = ::open(mount().c_str(), O_RDONLY | O_DIRECTORY);
    uint32_t without_flushing = 2;
    constexpr unsigned long kShutdown = _IOR('X', 125, uint32_t);  // EXT4_IOC_SHUTDOWN
    NEED_MOUNT(::ioctl(root, kShutdown, &without_flushing) == 0);
    for (const bool write : {true, false}) {
      const auto ticket = write ? engine->write(swap->file(), 65536, bytes.data(), bytes.size() / 2)
                                : engine->read(swap->file(), 65536, bytes.data(), bytes.size() / 2);
      const Status status = finish(ticket);
      CHILD_EXPECT(!status.ok() && status.error().code() == MERON_E_IO);
      CHILD_EXPECT(status.error().info().what.find("at offset") != std::string::npos);
      CHILD_EXPECT(status.error().info().subject == swap->file()->path());
    }
    return 0;
  }));
}

TEST_P(RealDisk, AFullDiskRefusesToGrow) {
  EXPECT_CHILD(test::run_in_child([&] {
    NEED_MOUNT(own_mounts() && mount_ext4(below("image"), 16));
    const auto engine = this->engine();
    const auto too_big = SwapFile::create(engine, mount(), {.expected = 64 << 20});
    CHILD_EXPECT(!too_big.ok() && too_big.error().code() == MERON_E_NO_SPACE);
    CHILD_EXPECT(too_big.error().info().what.find("64.0 MiB are needed") != std::string::npos);
    const auto made = SwapFile::create(engine, mount());
    CHILD_EXPECT(made.ok());
    const auto swap = *made;
    const auto first = swap->allocate(2 << 20);
    CHILD_EXPECT(first.ok());
    const auto refused = swap->allocate(64 << 20);
    CHILD_EXPECT(!refused.ok() && refused.error().code() == MERON_E_NO_SPACE);
    CHILD_EXPECT(refused.error().info().subject == mount());
    CHILD_EXPECT(refused.error().info().what.find("are needed") != std::string::npos);
    // Existing objects still work, and the failed allocation is free again.
    Bytes from(2 << 20), to(2 << 20);
    std::mt19937_64 random(41);
    from.draw(random);
    CHILD_EXPECT(finish(engine->write(swap->file(), 0, from.data(), from.size())).ok());
    CHILD_EXPECT(finish(engine->read(swap->file(), 0, to.data(), to.size())).ok());
    CHILD_EXPECT(std::memcmp(from.data(), to.data(), from.size()) == 0);
    CHILD_EXPECT(swap->allocate(4 << 20).ok());
    return 0;
  }));
}

// Of a file with a name, which keeps its size and its bytes; what was taken for it is free again.
TEST_P(RealDisk, AFullDiskLeavesANamedFileAsItWas) {
  EXPECT_CHILD(test::run_in_child([&] {
    NEED_MOUNT(own_mounts() && mount_ext4(below("image"), 16));
    const auto made = FileIo::open({.backend = GetParam()}, 60'000'000'000);
    CHILD_EXPECT(made.ok());
    const auto io = *made;
    const std::string path = mount() + "/file";
    Bytes from(64 << 20), to(1 << 20);
    std::mt19937_64 random(43);
    from.draw(random);
    const auto first = io->write(path, 0, from.data(), 1 << 20);
    CHILD_EXPECT(first.ok() && io->wait(*first, -1).ok());
    const auto refused = io->write(path, 1 << 19, from.data(), 64 << 20);
    CHILD_EXPECT(!refused.ok() && refused.error().code() == MERON_E_NO_SPACE);
    CHILD_EXPECT(refused.error().info().what.find("are needed") != std::string::npos);
    CHILD_EXPECT(std::filesystem::file_size(path) == 1 << 20);
    const auto back = io->read(path, 0, to.data(), 1 << 20);
    CHILD_EXPECT(back.ok() && io->wait(*back, -1).ok());
    CHILD_EXPECT(std::memcmp(from.data(), to.data(), 1 << 20) == 0);
    const auto again = io->write(path, 1 << 20, from.data(), 8 << 20);
    CHILD_EXPECT(again.ok() && io->wait(*again, -1).ok());
    CHILD_EXPECT(io->close().ok());
    return 0;
  }));
}

// The write reports a full disk; a later read never does.
TEST_P(RealDisk, RoomThatIsNotThereFailsTheWrite) {
  EXPECT_CHILD(test::run_in_child([&] {
    NEED_MOUNT(own_mounts());
    const std::string memory = below("memory");
    NEED_MOUNT(::mkdir(memory.c_str(), 0700) == 0);
    NEED_MOUNT(::mount("none", memory.c_str(), "tmpfs", 0, "size=4m") == 0);
    NEED_MOUNT(mount_ext4(memory + "/image", 32));
    const auto engine = this->engine();
    const auto made = SwapFile::create(engine, mount());
    CHILD_EXPECT(made.ok());
    const auto refused = (*made)->allocate(16 << 20);
    CHILD_EXPECT(!refused.ok());
    CHILD_EXPECT(refused.error().info().what.find("cannot write") != std::string::npos);
    return 0;
  }));
}

TEST_P(RealDisk, AReadOnlyFileSystemIsRefused) {
  EXPECT_CHILD(test::run_in_child([&] {
    NEED_MOUNT(own_mounts() && mount_ext4(below("image"), 16));
    NEED_MOUNT(::mount("none", mount().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0);
    const auto refused = SwapFile::create(this->engine(), mount());
    CHILD_EXPECT(!refused.ok() && refused.error().code() == MERON_E_ARGUMENT);
    CHILD_EXPECT(refused.error().info().what.find("EROFS") != std::string::npos);
    return 0;
  }));
}

}  // namespace
}  // namespace meron
