// SPDX-License-Identifier: Apache-2.0
#include "os/beneath.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "os/file.h"
#include "os/system_error.h"

namespace meron {
namespace {

Error leads_elsewhere(const std::string& path) {
  return Error(MERON_E_AUTH, "the file is a link, or is outside of the directory",
               "put the file itself into the directory: links are not followed")
      .on(path);
}

// The descriptor, or -errno.
int open_in(int directory, const std::string& name) {
  // Without O_NONBLOCK a pipe would be waited for.
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  open_how how{};
  how.flags = kFlags;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  int fd = -1;
  do {
    fd = static_cast<int>(::syscall(SYS_openat2, directory, name.c_str(), &how, sizeof how));
  } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  // Before Linux 5.6, or where a container's filter does not know the call: for a name of one
  // component O_NOFOLLOW says the same.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
    do {
      fd = ::openat(directory, name.c_str(), kFlags);
    } while (fd < 0 && errno == EINTR);
  }
  return fd < 0 ? -errno : fd;
}

bool is_component(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

Result<BeneathFile> checked(int opened, const std::string& path) {
  BeneathFile file;
  file.fd.reset(opened);
  struct stat found {};
  if (::fstat(file.fd.get(), &found) != 0) {
    return system_error("cannot look at the file", errno).on(path);
  }
  if (!S_ISREG(found.st_mode)) return Error(MERON_E_IO, "it is no regular file").on(path);
  file.bytes = static_cast<uint64_t>(found.st_size);
  return file;
}

}  // namespace

Result<BeneathFile> open_through_links(const std::string& path) {
  int opened = -1;
  do {
    opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  } while (opened < 0 && errno == EINTR);
  if (opened < 0) return system_error("cannot open the file", errno).on(path);
  return checked(opened, path);
}

Result<UniqueFd> open_directory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return system_error("cannot open the directory", errno).on(path);
  return fd;
}

Result<BeneathFile> open_beneath(int directory, const std::string& path, const std::string& name) {
  const std::string full = path + "/" + name;
  if (!is_component(name)) return leads_elsewhere(full);
  const int opened = open_in(directory, name);
  if (opened < 0) {
    if (opened == -ELOOP || opened == -EXDEV) return leads_elsewhere(full);
    return system_error("cannot open the file", -opened).on(full);
  }
  return checked(opened, full);
}

Result<BeneathFile> open_beneath(const std::string& directory, const std::string& name) {
  if (!is_component(name)) return leads_elsewhere(directory + "/" + name);
  MERON_ASSIGN(const UniqueFd in, open_directory(directory));
  return open_beneath(in.get(), directory, name);
}

Result<std::optional<EntryInfo>> look_beneath(int directory, const std::string& path,
                                              const std::string& name) {
  struct stat found {};
  if (::fstatat(directory, name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<EntryInfo>();
    return system_error("cannot look at it", errno).on(path + "/" + name);
  }
  EntryInfo info;
  info.kind = S_ISREG(found.st_mode)   ? EntryKind::file
              : S_ISDIR(found.st_mode) ? EntryKind::directory
              : S_ISLNK(found.st_mode) ? EntryKind::link
                                       : EntryKind::other;
  info.bytes = S_ISREG(found.st_mode) ? static_cast<uint64_t>(found.st_size) : 0;
  return std::optional(info);
}

Result<BeneathFile> duplicate(const BeneathFile& file, const std::string& path) {
  BeneathFile copy{.fd = UniqueFd(::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0)), .bytes = file.bytes};
  if (!copy.fd.valid()) return system_error("cannot open the file", errno).on(path);
  return copy;
}

bool leads_to(const std::string& path, int directory) {
  struct stat named {
  }, held{};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(directory, &held) == 0 &&
         named.st_dev == held.st_dev && named.st_ino == held.st_ino;
}

Result<std::string> read_beneath(const std::string& directory, const std::string& name,
                                 size_t max_bytes) {
  MERON_ASSIGN(const BeneathFile file, open_beneath(directory, name));
  auto content = read_stream(file.fd.get(), max_bytes, Deadline::never());
  if (!content.ok()) return std::move(content).error().on(directory + "/" + name);
  return content;
}

}  // namespace meron
