// SPDX-License-Identifier: Apache-2.0
#include "os/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "os/file.h"
#include "os/process.h"
#include "os/system_error.h"

namespace meron {

Result<FileLock> FileLock::attempt(const std::string& path, bool make) {
  FileLock lock;
  lock.path_ = path;
  lock.owner_pid_ = process_id();
  // Open for writing: over NFS an exclusive lock takes it.
  const int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (make ? O_CREAT : 0);
  lock.fd_.reset(::open(path.c_str(), flags, 0666));
  if (!lock.fd_.valid())
    return system_error("cannot open the lock file", errno,
                        "check the path, and that it may be written")
        .on(path);
  MERON_TRY(lock.take());
  return lock;
}

Result<FileLock> FileLock::attempt_directory(const std::string& path) {
  FileLock lock;
  lock.path_ = path;
  lock.owner_pid_ = process_id();
  lock.fd_.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!lock.fd_.valid()) {
    return system_error("cannot open the directory", errno, "check the path").on(path);
  }
  MERON_TRY(lock.take());
  return lock;
}

Status FileLock::take() {
  int result = 0;
  do {
    result = ::flock(fd_.get(), LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  // NFS takes an exclusive lock only of what is open for writing, and no directory is.
  const bool cannot = errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP ||
                      errno == EINVAL || errno == EBADF;
  if (result == 0) {
    state_ = State::held;
  } else if (errno == EWOULDBLOCK || errno == ESTALE) {  // ESTALE: removed on another host
    state_ = State::busy;
  } else if (cannot) {
    state_ = State::unsupported;
  } else {
    return system_error("cannot lock the file", errno).on(path_);
  }
  return Ok{};
}

UniqueFd share_directory(int directory) {
  // A descriptor that only names a directory cannot be locked.
  UniqueFd fd(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return fd;
  int result = 0;
  do {
    result = ::flock(fd.get(), LOCK_SH | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0) fd.reset();
  return fd;
}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this == &other) return *this;
  release();
  fd_ = std::move(other.fd_);
  path_ = std::move(other.path_);
  state_ = std::exchange(other.state_, State::none);
  removes_ = std::exchange(other.removes_, false);
  owner_pid_ = other.owner_pid_;
  return *this;
}

bool FileLock::is_at_path() const {
  const UniqueFd named(
      ::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat own {
  }, other{};
  return named.valid() && ::fstat(fd_.get(), &own) == 0 && ::fstat(named.get(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

void FileLock::release() {
  if (state_ == State::held && process_id() == owner_pid_) {
    if (removes_) (void)::unlink(path_.c_str());  // before others can take it
    // Closing alone would leave it to children that were forked meanwhile.
    (void)::flock(fd_.get(), LOCK_UN);
  }
  state_ = State::none;
  removes_ = false;
  fd_.reset();
}

Status FileLock::write(std::string_view content) const {
  MERON_TRY(check_size_of_file(content.size(), path_));
  const auto failed = [&](int error) {
    return system_error("cannot write the lock file", error).on(path_);
  };
  if (::ftruncate(fd_.get(), 0) != 0) return failed(errno);
  for (size_t done = 0; done < content.size();) {
    const ssize_t count =
        ::pwrite(fd_.get(), content.data() + done, content.size() - done, static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return failed(count == 0 ? EIO : errno);
    done += static_cast<size_t>(count);
  }
  return Ok{};
}

}  // namespace meron
