// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/fault_plan.h"
#include "io/kill_point.h"
#include "os/direct_file.h"
#include "os/directory.h"
#include "os/file.h"
#include "os/random.h"
#include "os/system_error.h"

namespace meron::checkpoint {
namespace {

// The error that a test injects into a call; Ok if there is none.
Status planned(FileCall call, std::string_view what, const std::string& path) {
  const int error = file_fault(call);
  if (error == 0) return Ok{};
  return system_error(what, error).on(path);
}

}  // namespace

Result<bool> make_directory_step(const std::string& path) {
  kill_point("mkdir");
  MERON_TRY(planned(FileCall::mkdir, "cannot make the directory", path));
  return make_directory(path);
}

Status make_directories_step(const std::string& path) {
  auto made = make_directory_step(path);
  if (!made.ok() && made.error().code() == MERON_E_NOT_FOUND && parent_of(path) != path) {
    MERON_TRY(make_directories_step(parent_of(path)));
    made = make_directory_step(path);
  }
  if (!made.ok()) return std::move(made).error();
  return *made ? sync_directory_step(parent_of(path)) : Ok{};
}

Result<FileLock> make_lock_step(const std::string& path) {
  kill_point("open");
  MERON_TRY(planned(FileCall::open, "cannot open the lock file", path));
  return FileLock::attempt(path, true);
}

Result<UniqueFd> create_file_step(const std::string& path) {
  kill_point("open");
  MERON_TRY(planned(FileCall::open, "cannot make the file", path));
  return create_file(path);
}

Status write_step(int fd, std::span<const std::byte> data, uint64_t offset,
                  const std::string& path) {
  MERON_TRY(check_size_of_file(offset + data.size(), path));
  while (!data.empty()) {
    kill_point("write");
    const int64_t moved =
        with_fault(true, data.size(), write_at(fd, data.data(), data.size(), offset));
    if (moved == -EINTR || moved == -EAGAIN) continue;
    if (moved <= 0) {
      return system_error(fmt::format("cannot write {} bytes at offset {}", data.size(), offset),
                          moved == 0 ? EIO : static_cast<int>(-moved))
          .on(path);
    }
    data = data.subspan(static_cast<size_t>(moved));
    offset += static_cast<uint64_t>(moved);
  }
  return Ok{};
}

Status sync_file_step(int fd, const std::string& path) {
  kill_point("fsync");
  MERON_TRY(planned(FileCall::fsync, "cannot sync the file", path));
  return sync_file(fd, path);
}

Status sync_directory_step(const std::string& path) {
  kill_point("fsync");
  MERON_TRY(planned(FileCall::fsync, "cannot sync the directory", path));
  return sync_directory(path);
}

Status rename_step(const std::string& from, const std::string& to) {
  kill_point("rename");
  MERON_TRY(planned(FileCall::rename, fmt::format("cannot rename it to {}", to), from));
  return rename_path(from, to);
}

Result<bool> exchange_step(const std::string& a, const std::string& b) {
  kill_point("rename");
  const int error = file_fault(FileCall::rename);
  if (error == EINVAL) return false;  // how a file system says that it cannot
  if (error != 0) return system_error(fmt::format("cannot exchange it with {}", b), error).on(a);
  return exchange_paths(a, b);
}

Status remove_file_step(const std::string& path) {
  kill_point("unlink");
  return remove_file(path);
}

Status remove_tree_step(const std::string& path, const std::function<void()>& before_each) {
  return remove_tree(path, [&] {
    kill_point("unlink");
    if (before_each) before_each();
  });
}

Result<BeneathFile> open_beneath_step(const std::string& directory, const std::string& name) {
  MERON_TRY(planned(FileCall::open, "cannot open the file", directory + "/" + name));
  return open_beneath(directory, name);
}

Result<BeneathFile> open_beneath_step(int directory, const std::string& path,
                                      const std::string& name) {
  MERON_TRY(planned(FileCall::open, "cannot open the file", path + "/" + name));
  return open_beneath(directory, path, name);
}

Result<BeneathFile> open_through_links_step(const std::string& path) {
  MERON_TRY(planned(FileCall::open, "cannot open the file", path));
  return open_through_links(path);
}

Result<std::string> read_beneath_step(const std::string& directory, const std::string& name,
                                      size_t max_bytes) {
  MERON_TRY(planned(FileCall::open, "cannot open the file", directory + "/" + name));
  return read_beneath(directory, name, max_bytes);
}

Status replace_file_durably(const std::string& directory, std::string_view name,
                            std::string_view content) {
  MERON_ASSIGN(const std::string suffix, random_suffix());
  const std::string path = fmt::format("{}/{}", directory, name);
  const std::string aside = fmt::format("{}/.{}-{}", directory, name, suffix);
  MERON_ASSIGN(const UniqueFd fd, create_file_step(aside));
  Status done = write_step(fd.get(), std::as_bytes(std::span(content)), 0, aside);
  if (done.ok()) done = sync_file_step(fd.get(), aside);
  if (done.ok()) done = rename_step(aside, path);
  if (!done.ok()) (void)remove_file(aside).ok();
  return done;
}

Result<std::string> absolute_path(const std::string& root) {
  if (root.empty()) {
    return Error(MERON_E_ARGUMENT, "no directory is given", "name one");
  }
  std::error_code error;
  std::filesystem::path full = std::filesystem::absolute(root, error);
  // Through a link, ".." leads to where the link's target is: the kernel alone resolves that.
  const bool upward = std::find(full.begin(), full.end(), "..") != full.end();
  std::string path = upward ? full.string() : full.lexically_normal().string();
  if (error) {
    return Error(MERON_E_IO, "cannot find out the present directory: " + error.message()).on(root);
  }
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return path.substr(0, std::max<size_t>(slash, 1));
}

Result<std::string> random_suffix() {
  std::array<std::byte, 4> random{};
  MERON_TRY(random_bytes(random));
  std::string text;
  for (const std::byte byte : random) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

}  // namespace meron::checkpoint
