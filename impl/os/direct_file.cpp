// SPDX-License-Identifier: Apache-2.0
#include "os/direct_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/human_bytes.h"
#include "base/layout.h"
#include "os/file.h"
#include "os/host.h"
#include "os/process.h"
#include "os/random.h"
#include "os/system_error.h"

namespace meron {
namespace {

constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kAll = 0666;  // less what umask takes
constexpr std::string_view kAnotherDirectory = "name a directory on a disk with enough room";
constexpr std::string_view kFreeSome = "free some space, or name a directory on another disk";
constexpr std::string_view kLetMeWrite = "change its mode or owner, or name another one";

uint64_t free_bytes_of(const std::string& directory) {
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) return 0;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

Error no_room(const std::string& directory, uint64_t need) {
  return Error(MERON_E_NO_SPACE,
               fmt::format("the file system has {} free, and {} are needed",
                           human_bytes(free_bytes_of(directory)), human_bytes(need)),
               std::string(kFreeSome))
      .on(directory);
}

// A full disk may lack space or inodes for one more file.
Error no_file(const std::string& directory, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return system_error("cannot make a file", error, full ? std::string(kFreeSome) : "")
      .on(directory);
}

Status check_directory(const std::string& directory, uint64_t expected_bytes) {
  struct stat found {};
  if (::stat(directory.c_str(), &found) != 0) {
    const int error = errno;
    const std::string_view advice = error == ENOENT   ? "make it, or name one that is there"
                                    : error == EACCES ? kLetMeWrite
                                                      : kAnotherDirectory;
    return system_error("cannot use the directory", error, std::string(advice)).on(directory);
  }
  if (!S_ISDIR(found.st_mode)) {
    return Error(MERON_E_ARGUMENT, "this is no directory", std::string(kAnotherDirectory))
        .on(directory);
  }
  struct statfs system {};
  if (::statfs(directory.c_str(), &system) != 0) {
    return system_error("cannot look at the file system", errno).on(directory);
  }
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) {
    return Error(MERON_E_ARGUMENT,
                 "the directory is in memory (tmpfs): swapping to it would free nothing",
                 std::string(kAnotherDirectory))
        .on(directory);
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    return Error(MERON_E_ARGUMENT,
                 fmt::format("the directory may not be written: {}", errno_text(errno)),
                 std::string(kLetMeWrite))
        .on(directory);
  }
  if (free_bytes_of(directory) < expected_bytes) return no_room(directory, expected_bytes);
  return Ok{};
}

// A new name in `directory`, that is unpredictable.
Result<std::string> draw_name(const std::string& directory) {
  std::array<std::byte, 8> random{};
  MERON_TRY(random_bytes(random));
  uint64_t number = 0;
  std::memcpy(&number, random.data(), sizeof number);
  return fmt::format("{}/.meron-swap-{}-{:016x}", directory, process_id(), number);
}

Error no_file_of_bytes(const std::string& path) {
  return Error(MERON_E_ARGUMENT, "this is no regular file", "name one").on(path);
}

std::string_view advice_for_open(int error, FileUse use) {
  switch (error) {
    case ENOENT:
      return use == FileUse::write ? "make its directory first" : "look at the path, or write it";
    case EACCES:
    case EPERM:
    case EROFS:
      return kLetMeWrite;
    case ENOSPC:
    case EDQUOT:
      return kFreeSome;
    default:
      return "look at the path, and at the kernel's log";
  }
}

// Memory for one direct transfer.
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedBytes = std::unique_ptr<std::byte, Free>;

AlignedBytes aligned_bytes(size_t bytes) {
  return AlignedBytes(static_cast<std::byte*>(std::aligned_alloc(bytes, bytes)));
}

}  // namespace

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  if (this == &other) return *this;
  remove_name();
  path_ = std::move(other.path_);
  directory_ = std::move(other.directory_);
  name_to_remove_ = std::exchange(other.name_to_remove_, {});
  direct_ = std::move(other.direct_);
  buffered_ = std::move(other.buffered_);
  offset_alignment_ = other.offset_alignment_;
  memory_alignment_ = other.memory_alignment_;
  why_buffered_ = std::move(other.why_buffered_);
  return *this;
}

void DirectFile::remove_name() {
  if (!name_to_remove_.empty()) (void)::unlink(name_to_remove_.c_str());
  name_to_remove_.clear();
}

Result<DirectFile> DirectFile::create(const std::string& directory, uint64_t expected_bytes) {
  MERON_TRY(check_directory(directory, expected_bytes));
  DirectFile file;
  file.directory_ = directory;
  file.path_ = directory + "/(unnamed)";
  file.buffered_.reset(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kOwnerOnly));
  if (!file.buffered_.valid()) {
    const int error = errno;
    // EISDIR: a kernel that does not know the flag. Everything else that a named file may not
    // suffer from is detected by the attempt to make one.
    if (error == EMFILE || error == ENFILE || error == ENOSPC || error == EDQUOT) {
      return no_file(directory, error);
    }
    MERON_ASSIGN(const std::string name, draw_name(directory));
    file.buffered_.reset(
        ::open(name.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, kOwnerOnly));
    if (!file.buffered_.valid()) return no_file(directory, errno);
    if (::unlink(name.c_str()) != 0) file.name_to_remove_ = name;
  }
  file.find_alignment();
  MERON_TRY(file.open_direct(O_RDWR, true));
  return file;
}

Result<DirectFile> DirectFile::open(const std::string& path, FileUse use) {
  const int access = use == FileUse::read ? O_RDONLY : O_RDWR;
  // Without O_NONBLOCK a pipe would be waited for. A file must not keep it: requests of io_uring
  // would then fail with EAGAIN where they have to wait for the device.
  const int flags = access | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  UniqueFd fd(::open(path.c_str(), flags | (use == FileUse::write ? O_CREAT : 0), kAll));
  if (!fd.valid()) {
    const int error = errno;
    if (error == EISDIR || error == ENXIO) return no_file_of_bytes(path);
    return system_error("cannot open the file", error, std::string(advice_for_open(error, use)))
        .on(path);
  }
  return adopt(std::move(fd), path, use);
}

Result<DirectFile> DirectFile::adopt(UniqueFd fd, const std::string& path, FileUse use) {
  DirectFile file;
  file.path_ = path;
  const size_t slash = path.rfind('/');
  file.directory_ = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  file.buffered_ = std::move(fd);
  struct stat found {};
  if (::fstat(file.buffered_.get(), &found) != 0) {
    return system_error("cannot look at the file", errno).on(path);
  }
  if (!S_ISREG(found.st_mode) && !S_ISBLK(found.st_mode)) return no_file_of_bytes(path);
  if (::fcntl(file.buffered_.get(), F_SETFL, 0) != 0) {
    return system_error("cannot set the file's flags", errno).on(path);
  }
  file.find_alignment();
  MERON_TRY(file.open_direct(use == FileUse::read ? O_RDONLY : O_RDWR, false));
  return file;
}

void DirectFile::find_alignment() {
  const auto page = static_cast<uint32_t>(page_size());
  offset_alignment_ = memory_alignment_ = page;
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (::statx(buffered_.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0 ||
      (info.stx_mask & STATX_DIOALIGN) == 0) {
    return;
  }
  if (info.stx_dio_offset_align == 0) {
    why_buffered_ = "the file system has no direct I/O";
    return;
  }
  offset_alignment_ = std::max<uint32_t>(info.stx_dio_offset_align, page);
  memory_alignment_ = std::max<uint32_t>(info.stx_dio_mem_align, 1);
#endif
}

Status DirectFile::open_direct(int access, bool probe_by_writing) {
  if (!why_buffered_.empty()) return Ok{};
  // Opened a second time rather than duplicated: a duplicate shares its flags with the first.
  const std::string self = fmt::format("/proc/self/fd/{}", buffered_.get());
  direct_.reset(::open(self.c_str(), access | O_DIRECT | O_CLOEXEC));
  if (!direct_.valid()) {
    const int error = errno;
    if (error == EMFILE || error == ENFILE) {
      return system_error("cannot open the file for direct I/O", error).on(path_);
    }
    why_buffered_ = fmt::format("direct I/O is refused: {}", errno_text(error));
    return Ok{};
  }
  MERON_TRY(probe(probe_by_writing));
  if (!why_buffered_.empty()) direct_.reset();
  return Ok{};
}

// A file system may take the flag and refuse the transfers.
Status DirectFile::probe(bool by_writing) {
  const size_t bytes = offset_alignment_;
  const AlignedBytes written = aligned_bytes(bytes), read = aligned_bytes(bytes);
  if (!written || !read) return system_error("cannot try direct I/O", ENOMEM).on(path_);
  std::memset(written.get(), 0x5a, bytes);
  std::memset(read.get(), 0, bytes);
  int64_t result = 0;
  if (by_writing) {
    result = write_at(direct_.get(), written.get(), bytes, 0);
    if (result == -ENOSPC || result == -EDQUOT) return no_room(directory_, bytes);
    if (result < 0) {
      why_buffered_ =
          fmt::format("a direct write fails: {}", errno_text(static_cast<int>(-result)));
    }
  }
  if (why_buffered_.empty()) {
    result = read_at(direct_.get(), read.get(), bytes, 0);
    if (result < 0) {
      why_buffered_ = fmt::format("a direct read fails: {}", errno_text(static_cast<int>(-result)));
    } else if (by_writing && std::memcmp(read.get(), written.get(), bytes) != 0) {
      why_buffered_ = "a direct read gives other bytes than a direct write left";
    }
  }
  if (by_writing && ::ftruncate(buffered_.get(), 0) != 0) {
    return system_error("cannot empty the file", errno).on(path_);
  }
  return Ok{};
}

Result<uint64_t> DirectFile::size() const {
  struct stat found {};
  if (::fstat(buffered_.get(), &found) != 0) {
    return system_error("cannot look at the file", errno).on(path_);
  }
  if (!S_ISBLK(found.st_mode)) return static_cast<uint64_t>(found.st_size);
  const off_t end = ::lseek(buffered_.get(), 0, SEEK_END);
  if (end < 0) return system_error("cannot tell the device's size", errno).on(path_);
  return static_cast<uint64_t>(end);
}

uint64_t DirectFile::free_bytes() const {
  return free_bytes_of(directory_);
}

Status DirectFile::reserve(uint64_t offset, uint64_t bytes) const {
  if (bytes == 0) return Ok{};
  MERON_TRY(check_size_of_file(offset + bytes, path_));
  MERON_ASSIGN(const uint64_t before, size());
  // A disk that lacks the room would be full for a moment, which others would notice.
  if (const uint64_t free = free_bytes(); free != 0 && bytes > before && bytes - before > free) {
    return no_room(directory_, bytes);
  }
  int error = 0;
  do {
    error =
        ::fallocate(buffered_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0
            ? 0
            : errno;
  } while (error == EINTR);
  if (error == 0) return Ok{};
  // Frees what was allocated in part.
  if (error == ENOSPC || error == EDQUOT) {
    (void)!::ftruncate(buffered_.get(), static_cast<off_t>(before));
  }
  if (error == ENOSPC) return no_room(directory_, bytes);
  if (error != EOPNOTSUPP && error != ENOSYS) {
    return system_error(fmt::format("cannot give {} room at offset {}", human_bytes(bytes), offset),
                        error, error == EDQUOT ? std::string(kFreeSome) : "")
        .on(path_);
  }
  if (free_bytes() < bytes) return no_room(directory_, bytes);
  if (before < offset + bytes &&
      ::ftruncate(buffered_.get(), static_cast<off_t>(offset + bytes)) != 0) {
    return system_error("cannot extend the file", errno).on(path_);
  }
  return Ok{};
}

Status DirectFile::extend(uint64_t offset, uint64_t bytes) const {
  const uint64_t end = offset + bytes;
  struct stat found {};
  if (::fstat(buffered_.get(), &found) != 0) {
    return system_error("cannot look at the file", errno).on(path_);
  }
  const auto before = static_cast<uint64_t>(found.st_size);
  if (bytes == 0 || !S_ISREG(found.st_mode) || end <= before) return Ok{};
  MERON_TRY(check_size_of_file(end, path_));
  const uint64_t begin = std::max(before, offset);
  // A disk that lacks the room would be full for a moment, which others would notice. Room that the
  // file has beyond its end already is not needed again.
  const uint64_t taken = static_cast<uint64_t>(found.st_blocks) * 512;
  const uint64_t needed = end - begin - std::min(end - begin, taken > before ? taken - before : 0);
  if (const uint64_t free = free_bytes(); free != 0 && needed > free) {
    return no_room(directory_, end - begin);
  }
  const auto call = [&](int mode) {
    int result = 0;
    do {
      result = ::fallocate(buffered_.get(), mode, static_cast<off_t>(begin),
                           static_cast<off_t>(end - begin));
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
  };
  // Allocates first, which may fail. Setting the size afterwards cannot. Writes beyond the end
  // would each wait for the file's lock; writes within it run in parallel.
  int error = call(FALLOC_FL_KEEP_SIZE);
  if (error == 0) error = call(0);
  if (error == 0 || error == EOPNOTSUPP || error == ENOSYS)
    return Ok{};  // the write will report it
  if (error == ENOSPC || error == EDQUOT) {
    (void)call(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE);
    return no_room(directory_, end - begin);
  }
  return system_error(
             fmt::format("cannot give {} room at offset {}", human_bytes(end - begin), begin),
             error)
      .on(path_);
}

void DirectFile::drop_behind(uint64_t offset, uint64_t bytes) const {
  (void)::posix_fadvise(buffered_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                        POSIX_FADV_DONTNEED);
}

int64_t read_at(int fd, std::byte* data, uint64_t bytes, uint64_t offset) {
  const ssize_t done = ::pread(fd, data, bytes, static_cast<off_t>(offset));
  return done < 0 ? -errno : done;
}

int64_t write_at(int fd, const std::byte* data, uint64_t bytes, uint64_t offset) {
  const ssize_t done = ::pwrite(fd, data, bytes, static_cast<off_t>(offset));
  return done < 0 ? -errno : done;
}

void DirectFile::stop_read_ahead() const {
  (void)::posix_fadvise(buffered_.get(), 0, 0, POSIX_FADV_RANDOM);  // advice: nothing depends on it
}

void DirectFile::will_need(uint64_t offset, uint64_t bytes) const {
  (void)::posix_fadvise(buffered_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                        POSIX_FADV_WILLNEED);
}

}  // namespace meron
