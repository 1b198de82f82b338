// SPDX-License-Identifier: Apache-2.0
#include "os/directory.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

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
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) return system_error("cannot list the directory", errno).on(path);
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(directory.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  if (errno != 0) return system_error("cannot list the directory", errno).on(path);
  return names;
}

void remove_empty_directory(const std::string& path) {
  (void)::rmdir(path.c_str());
}

}  // namespace meron
