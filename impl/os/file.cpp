// SPDX-License-Identifier: Apache-2.0
#include "os/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "base/human_bytes.h"
#include "os/fd.h"
#include "os/poll.h"
#include "os/random.h"
#include "os/system_error.h"

namespace meron {
namespace {

constexpr size_t kReadStep = 16 << 10;
constexpr int64_t kStopCheckNs = 100 * kNanosPerMilli;

// Appends what one read gives: at most one byte past `max_bytes`, which is how too long a content
// is noticed. Returns false at the end.
Result<bool> read_some(int fd, size_t max_bytes, std::string& content) {
  const size_t before = content.size();
  content.resize(before + std::min(kReadStep, max_bytes + 1 - before));
  ssize_t count;
  do {
    count = ::read(fd, content.data() + before, content.size() - before);
  } while (count < 0 && errno == EINTR);
  const int error = errno;
  content.resize(before + (count > 0 ? static_cast<size_t>(count) : 0));
  if (count < 0 && error != EAGAIN) return system_error("cannot read", error);
  if (content.size() > max_bytes) {
    return Error(MERON_E_IO, fmt::format("more than {} bytes to read", max_bytes));
  }
  return count != 0;
}

// Opened with O_NONBLOCK: a pipe would be waited for, in open() or in the first read() or write().
Result<UniqueFd> open_regular(const std::string& path, int flags) {
  constexpr int kFlags = O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  UniqueFd fd(::open(path.c_str(), flags | kFlags, 0600));
  struct stat found {};
  if (fd.valid() && ::fstat(fd.get(), &found) == 0 && S_ISREG(found.st_mode)) return fd;
  if (!fd.valid() && errno != ENXIO) return system_error("cannot open the file", errno).on(path);
  return Error(MERON_E_IO, "it is no regular file", "remove it, or name another").on(path);
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t max_bytes) {
  MERON_ASSIGN(const UniqueFd fd, open_regular(path, O_RDONLY));
  std::string content;
  for (;;) {
    auto more = read_some(fd.get(), max_bytes, content);
    if (!more.ok()) return std::move(more).error().on(path);
    if (!*more) return content;
  }
}

Status write_file(const std::string& path, std::string_view content) {
  MERON_ASSIGN(const UniqueFd fd, open_regular(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW));
  while (!content.empty()) {
    const ssize_t count = ::write(fd.get(), content.data(), content.size());
    if (count < 0 && errno != EINTR) return system_error("cannot write", errno).on(path);
    if (count > 0) content.remove_prefix(static_cast<size_t>(count));
  }
  return Ok{};
}

Status replace_file(const std::string& path, std::string_view content) {
  std::array<std::byte, 8> number;  // pids of several hosts may be equal
  MERON_TRY(random_bytes(number));
  std::string aside = path + ".";
  for (const std::byte byte : number) aside += fmt::format("{:02x}", static_cast<unsigned>(byte));
  Status written = write_file(aside, content);
  if (written.ok() && std::rename(aside.c_str(), path.c_str()) != 0) {
    written = system_error("cannot rename the file", errno).on(aside);
  }
  if (!written.ok()) (void)remove_file(aside).ok();
  return written;
}

Result<UniqueFd> create_file(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd fd;
  do {
    fd.reset(::open(path.c_str(), kFlags, 0666));
  } while (!fd.valid() && errno == EINTR);
  if (!fd.valid()) return system_error("cannot make the file", errno).on(path);
  return fd;
}

Status sync_file(int fd, const std::string& path) {
  // Not repeated after EINTR either: what happened to the bytes is unknown then.
  if (::fsync(fd) == 0) return Ok{};
  return system_error("cannot sync the file", errno,
                      "what was written to it may be lost: look at the kernel's log, and write it "
                      "to another disk")
      .on(path);
}

Status check_size_of_file(uint64_t bytes, const std::string& path) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      bytes <= limit.rlim_cur) {
    return Ok{};
  }
  return Error(MERON_E_NO_SPACE,
               fmt::format("{} exceed the limit on file sizes of {}", human_bytes(bytes),
                           human_bytes(limit.rlim_cur)),
               "raise the limit on file sizes (ulimit -f)")
      .on(path);
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return Ok{};
  return system_error("cannot remove the file", errno).on(path);
}

Result<std::string> read_front(int fd, uint64_t bytes, const std::string& path) {
  std::string text(bytes, '\0');
  for (uint64_t at = 0; at < bytes;) {
    const ssize_t got = ::pread(fd, text.data() + at, bytes - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read the file", errno).on(path);
    if (got == 0) {
      return Error(MERON_E_CORRUPT, fmt::format("the file was cut to {} bytes", at), "copy it anew")
          .on(path);
    }
    at += static_cast<uint64_t>(got);
  }
  return text;
}

Result<std::string> read_stream(int fd, size_t max_bytes, Deadline deadline) {
  std::string content;
  for (;;) {
    MERON_TRY(wait_ready(fd, POLLIN, deadline));
    MERON_ASSIGN(const bool more, read_some(fd, max_bytes, content));
    if (!more) return content;
  }
}

Result<std::string> read_descriptor(int fd, size_t enough_bytes, size_t max_bytes,
                                    Deadline deadline, const std::function<bool()>& should_stop) {
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  const UniqueFd own(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!own.valid()) return system_error("cannot open the descriptor", errno);
  std::string content;
  for (;;) {
    const bool enough = content.size() >= enough_bytes;
    const Deadline slice{std::min(deadline.ns, Deadline::after(enough ? 0 : kStopCheckNs).ns)};
    if (Status ready = wait_ready(own.get(), POLLIN, slice); !ready.ok()) {
      if (enough) return content;  // a writer that keeps its end open
      if (ready.error().code() != MERON_E_TIMEOUT || deadline.passed()) {
        return std::move(ready).error();
      }
      if (should_stop && should_stop()) {
        return Error(MERON_E_CANCELLED, "should_stop ended the read");
      }
      continue;
    }
    MERON_ASSIGN(const bool more, read_some(own.get(), max_bytes, content));
    if (!more) return content;
  }
}

}  // namespace meron
