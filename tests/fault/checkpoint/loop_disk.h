// SPDX-License-Identifier: Apache-2.0
// A small ext4 of the test's own, on a file that is mounted by a loop device: it can be full, and
// its power can be cut.
#pragma once

#include <fcntl.h>
#include <linux/ioctl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>

#include "tests/fault/checkpoint/campaign.h"

namespace meron::test {

// Quiet; whether it ended with 0.
inline bool run_command(const std::string& command) {
  std::fflush(nullptr);
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

class LoopDisk {
 public:
  // Of so many bytes. In a mount namespace of this process, which ends with it.
  LoopDisk(const std::string& folder, uint64_t bytes)
      : image_(folder + "/image"), mount_(folder + "/disk") {
    static const bool own_mounts =
        unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    if (!own_mounts) return;
    std::ofstream(image_).close();
    fs::resize_file(image_, bytes);
    fs::create_directory(mount_);
    // Small journals and few reserved blocks, so that most of it can be used.
    mounted_ = run_command("mkfs.ext4 -q -F -m 0 -J size=1 -N 256 -b 1024 " + image_) && mount_it();
  }
  ~LoopDisk() { unmount(); }
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;

  // False where this process may not mount: there is nothing to test then.
  bool mounted() const { return mounted_; }
  std::string checkpoints() const { return mount_ + "/checkpoints"; }

  // From here on nothing reaches the disk, the journal's buffer included, and calls fail with EIO.
  bool shut_down() {
    const int fd = open(mount_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint32_t without_log_flush = 2;
    const bool done = fd >= 0 && ioctl(fd, _IOR('X', 125, uint32_t), &without_log_flush) == 0;
    if (fd >= 0) close(fd);
    return done;
  }
  // The current image becomes the disk. No process may write meanwhile. The kernel may, so the
  // image is copied until two copies are equal.
  bool continue_from_a_copy() {
    const std::string first = image_ + ".1", second = image_ + ".2";
    bool equal = false;
    for (int i = 0; i < 20 && !equal; ++i) {
      equal = run_command("cp --sparse=always " + image_ + " " + first) &&
              run_command("cp --sparse=always " + image_ + " " + second) &&
              run_command("cmp " + first + " " + second);
    }
    copy_ = first;
    return equal;
  }
  // The power is on again: the file system replays its journal.
  bool restart() {
    if (!unmount()) return false;
    if (!copy_.empty()) fs::rename(copy_, image_);
    copy_.clear();
    return mounted_ = mount_it();
  }

 private:
  bool mount_it() const { return run_command("mount -o loop " + image_ + " " + mount_); }
  bool unmount() {
    if (!mounted_) return true;
    mounted_ = false;
    for (int i = 0; i < 100; ++i) {
      if (umount2(mount_.c_str(), 0) == 0) return true;
      if (errno != EBUSY) break;
      sleep_ns(20 * kMilli);
    }
    return false;
  }

  std::string image_, mount_, copy_;
  bool mounted_ = false;
};

}  // namespace meron::test
