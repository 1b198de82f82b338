// SPDX-License-Identifier: Apache-2.0
#include "os/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

#include "os/fd.h"
#include "os/file.h"
#include "os/system_error.h"

namespace meron {
namespace {

// The owner that the file system gives to what this process makes there.
Result<uid_t> owner_of_new_files(const std::string& directory) {
  const std::string probe = directory + "/.owner." + std::to_string(::getpid());
  MERON_TRY(replace_file(probe, ""));
  struct stat made {};
  const int failed = ::lstat(probe.c_str(), &made) == 0 ? 0 : errno;
  MERON_TRY(remove_file(probe));
  if (failed != 0) return system_error("cannot look at a file just made", failed).on(probe);
  return made.st_uid;
}

EntryKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return EntryKind::file;
  if (S_ISDIR(mode)) return EntryKind::directory;
  return S_ISLNK(mode) ? EntryKind::link : EntryKind::other;
}

Error cannot_look(int error, const std::string& path) {
  return system_error("cannot look at it", error).on(path);
}

using OpenDirectory = std::unique_ptr<DIR, int (*)(DIR*)>;

// visit(name, the directory's descriptor), until one fails.
template <class Visit>
Status for_each_name(const OpenDirectory& directory, const std::string& path, const Visit& visit) {
  if (!directory)
    return system_error("cannot list the directory", errno, "check the path").on(path);
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") MERON_TRY(visit(entry->d_name, ::dirfd(directory.get())));
  }
  if (errno != 0) return system_error("cannot list the directory", errno).on(path);
  return Ok{};
}

// By descriptors, so that a directory which another process replaces by a link meanwhile does not
// lead elsewhere.
Status remove_beneath(int parent, const char* name, const std::string& path, int depth,
                      const std::function<void()>& before_each) {
  if (depth == kMaxTreeDepth) {
    return Error(MERON_E_IO, fmt::format("the directory is more than {} levels deep", depth),
                 "remove it by hand, if it may go")
        .on(path);
  }
  UniqueFd fd(::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return Ok{};
    return system_error("cannot open the directory", errno).on(path);
  }
  const OpenDirectory directory(::fdopendir(fd.get()), ::closedir);
  if (directory) (void)fd.release();
  MERON_TRY(for_each_name(directory, path, [&](const char* entry, int in) -> Status {
    const std::string whole = path + "/" + entry;
    struct stat found {};
    if (::fstatat(in, entry, &found, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) return Ok{};
      return cannot_look(errno, whole);
    }
    if (S_ISDIR(found.st_mode)) return remove_beneath(in, entry, whole, depth + 1, before_each);
    if (before_each) before_each();
    if (::unlinkat(in, entry, 0) == 0 || errno == ENOENT) return Ok{};
    return system_error("cannot remove the file", errno).on(whole);
  }));
  if (before_each) before_each();
  if (::unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return Ok{};
  return system_error("cannot remove the directory", errno).on(path);
}

}  // namespace

Status make_private_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_error("cannot make the directory", errno).on(path);
  }
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    return system_error("cannot look at the directory", errno).on(path);
  }
  if (!S_ISDIR(found.st_mode)) {
    return Error(MERON_E_AUTH, "something that is no directory has its name",
                 "remove it, or choose another place")
        .on(path);
  }
  if ((found.st_mode & 0077) != 0) {
    return Error(MERON_E_AUTH,
                 fmt::format("other users may use the directory (mode {:03o})",
                             static_cast<unsigned>(found.st_mode & 0777)),
                 "remove it, or close it with chmod 700")
        .on(path);
  }
  if (found.st_uid == ::geteuid()) return Ok{};
  const auto own = owner_of_new_files(path);
  if (own.ok() && *own == found.st_uid) return Ok{};
  return Error(MERON_E_AUTH, fmt::format("the directory belongs to user {}", found.st_uid),
               "choose another place, or another name for the job")
      .on(path);
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  std::vector<std::string> names;
  MERON_TRY(for_each_name(OpenDirectory(::opendir(path.c_str()), ::closedir), path,
                          [&](const char* name, int) -> Status {
                            if (name[0] != '.') names.emplace_back(name);
                            return Ok{};
                          }));
  return names;
}

Result<std::vector<DirectoryEntry>> list_entries(const std::string& path) {
  std::vector<DirectoryEntry> entries;
  MERON_TRY(for_each_name(OpenDirectory(::opendir(path.c_str()), ::closedir), path,
                          [&](const char* name, int directory) -> Status {
                            struct stat found {};
                            if (::fstatat(directory, name, &found, AT_SYMLINK_NOFOLLOW) == 0) {
                              entries.push_back({.name = name, .kind = kind_of(found.st_mode)});
                            } else if (errno != ENOENT) {  // else it was removed meanwhile
                              return cannot_look(errno, path + "/" + name);
                            }
                            return Ok{};
                          }));
  return entries;
}

Result<std::optional<EntryInfo>> look_at(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<EntryInfo>();
    return cannot_look(errno, path);
  }
  return std::optional<EntryInfo>(
      {.kind = kind_of(found.st_mode), .bytes = static_cast<uint64_t>(found.st_size)});
}

Result<std::optional<EntryInfo>> look_through(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::optional<EntryInfo>();
    return cannot_look(errno, path);
  }
  return std::optional<EntryInfo>(
      {.kind = kind_of(found.st_mode), .bytes = static_cast<uint64_t>(found.st_size)});
}

Result<bool> make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return true;
  if (errno == EEXIST) return false;
  return system_error("cannot make the directory", errno).on(path);
}

Status sync_directory(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return system_error("cannot open the directory", errno).on(path);
  if (::fsync(fd.get()) == 0 || errno == EINVAL || errno == EOPNOTSUPP) return Ok{};
  return system_error("cannot sync the directory", errno).on(path);
}

Status rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return Ok{};
  return system_error(fmt::format("cannot rename it to {}", to), errno).on(from);
}

Result<bool> exchange_paths(const std::string& a, const std::string& b) {
  // Not every C library has a function for it.
  if (::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
    return true;
  }
  // EPERM: a container's filter that does not know the call.
  if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM) return false;
  return system_error(fmt::format("cannot exchange it with {}", b), errno).on(a);
}

Status remove_tree(const std::string& path, const std::function<void()>& before_each) {
  return remove_beneath(AT_FDCWD, path.c_str(), path, 0, before_each);
}

void remove_empty_directory(const std::string& path) {
  (void)::rmdir(path.c_str());
}

}  // namespace meron
