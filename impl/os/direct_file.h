// SPDX-License-Identifier: Apache-2.0
// A large file that is read and written past the page cache where the file system allows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"
#include "os/fd.h"

namespace meron {

// Access to a named file.
enum class FileUse {
  update,  // read and write an existing file
  read,    // only read: the file may be one that this process must not write
  write,   // write, and read; made if it does not exist, with the mode that umask leaves of 0666
};

// A value that owns its descriptors. Const functions may be called from any thread.
class DirectFile {
 public:
  DirectFile() = default;
  DirectFile(DirectFile&& other) noexcept { *this = std::move(other); }
  DirectFile& operator=(DirectFile&& other) noexcept;
  ~DirectFile() { remove_name(); }

  // An empty file in `directory` that only this process can name and that is deleted with it, also
  // when it is killed: it has no name (O_TMPFILE), or loses it before this returns. Errors:
  // MERON_E_ARGUMENT for what is no directory, may not be written or is in memory (tmpfs),
  // MERON_E_NOT_FOUND, MERON_E_NO_SPACE where less than `expected_bytes` are free.
  static Result<DirectFile> create(const std::string& directory, uint64_t expected_bytes = 0);

  // The file of that name, which keeps what it holds. Never waits for a pipe's other end. Errors:
  // MERON_E_ARGUMENT for what is neither a regular file nor a block device, MERON_E_NOT_FOUND,
  // MERON_E_IO (a mode that forbids it), MERON_E_NO_SPACE, MERON_E_NO_MEMORY (descriptors).
  static Result<DirectFile> open(const std::string& path, FileUse use = FileUse::update);

  // The same of a file that is open, through the page cache and as `use` needs it. `path` is for
  // messages.
  static Result<DirectFile> adopt(UniqueFd fd, const std::string& path, FileUse use);

  // True if fd() bypasses the page cache; else it is buffered_fd(), for the reason why_buffered().
  bool direct() const { return direct_.valid(); }
  const std::string& why_buffered() const { return why_buffered_; }
  int fd() const { return direct() ? direct_.get() : buffered_.get(); }
  // The same file through the page cache, which takes any address, offset and length. The kernel
  // keeps both coherent as long as no page is in use through both at the same time.
  int buffered_fd() const { return buffered_.get(); }
  // The system reads no more through the page cache than is requested.
  void stop_read_ahead() const;
  // Lets the system begin to read the range into the page cache. Does not wait for the drive.
  void will_need(uint64_t offset, uint64_t bytes) const;

  // Alignment that fd() needs: of offset and length, and of the address in memory. The first is at
  // least the page, so that no page is ever used through both descriptors.
  uint32_t offset_alignment() const { return offset_alignment_; }
  uint32_t memory_alignment() const { return memory_alignment_; }

  // For messages: a path, or the directory and "(unnamed)".
  const std::string& path() const { return path_; }

  Result<uint64_t> size() const;  // of a block device too
  // Of the file system, for messages.
  uint64_t free_bytes() const;

  // Allocates [offset, offset + bytes) on the device and extends the file. If the file system
  // cannot allocate ahead of time, only extends it: a write may then find the disk full. A full
  // disk, or a limit on file sizes, is MERON_E_NO_SPACE, and the file then has its former size.
  Status reserve(uint64_t offset, uint64_t bytes) const;

  // For a write while other processes may write other ranges of the same file: as reserve(), but
  // never shortens the file, and does nothing if it is long enough. If the disk is full, the file
  // keeps its size, and partly allocated space is freed.
  Status extend(uint64_t offset, uint64_t bytes) const;

  // Drops the range from the page cache, and starts the write of bytes that are not yet on the
  // device. A hint.
  void drop_behind(uint64_t offset, uint64_t bytes) const;

 private:
  void find_alignment();
  // Opens direct_ and tries it; with a real write if the file is empty and belongs to this process.
  Status open_direct(int access, bool probe_by_writing);
  Status probe(bool by_writing);
  void remove_name();

  std::string path_;
  std::string directory_;       // for messages about its room
  std::string name_to_remove_;  // a name that could not be removed at once
  UniqueFd direct_, buffered_;
  uint32_t offset_alignment_ = 4096, memory_alignment_ = 4096;
  std::string why_buffered_;
};

// pread and pwrite: the bytes moved, or -errno.
int64_t read_at(int fd, std::byte* data, uint64_t bytes, uint64_t offset);
int64_t write_at(int fd, const std::byte* data, uint64_t bytes, uint64_t offset);

}  // namespace meron
