// SPDX-License-Identifier: Apache-2.0
#include "modules/nccl/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "modules/nccl/failure.h"

namespace meron::nccl {
namespace {

constexpr const char* kName = "libnccl.so";
constexpr const char* kLoadersName = "libnccl.so.2";
constexpr const char* kVariable = "MERON_NCCL_LIBRARY";

std::string real_path(const std::string& path) {
  char out[PATH_MAX];
  return ::realpath(path.c_str(), out) == nullptr ? path : std::string(out);
}

int note_copy(dl_phdr_info* info, size_t /*size*/, void* user) {
  const std::string path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  const size_t name = path.rfind('/') + 1;  // 0 if there is no '/'
  if (path.compare(name, std::string(kName).size(), kName) != 0) return 0;
  auto& copies = *static_cast<std::vector<std::string>*>(user);
  const std::string real = real_path(path);
  if (std::find(copies.begin(), copies.end(), real) == copies.end()) copies.push_back(real);
  return 0;
}

// Paths of all loaded copies of NCCL.
std::vector<std::string> copies_in_process() {
  std::vector<std::string> out;
  ::dl_iterate_phdr(note_copy, &out);
  return out;
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return kLoadersName;
  return real_path(map->l_name);
}

std::string text_of_version(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

meron_status refuse_copies(const std::vector<std::string>& copies, meron_backend_failure* failure) {
  tell(failure, "there are two copies of NCCL in this process, " + copies[0] + " and " + copies[1] +
                    ": let all of it use one (" + kVariable + "=PATH for Meron)");
  return MERON_E_UNSUPPORTED;
}

struct Handle {
  Handle() = default;
  explicit Handle(void* opened) : value(opened) {}
  Handle(Handle&& other) noexcept : value(other.value) { other.value = nullptr; }
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value, other.value);
    return *this;
  }
  ~Handle() {
    if (value != nullptr) ::dlclose(value);
  }
  void* value = nullptr;
};

// The copy in the process has priority: two copies would each hold the links between devices.
meron_status open_copy(Handle* out, meron_backend_failure* failure) {
  const std::vector<std::string> copies = copies_in_process();
  if (copies.size() > 1) return refuse_copies(copies, failure);
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
  if (!copies.empty()) *out = Handle(::dlopen(copies[0].c_str(), kFlags | RTLD_NOLOAD));
  if (out->value == nullptr) *out = Handle(::dlopen(kLoadersName, kFlags | RTLD_NOLOAD));
  if (out->value != nullptr) return MERON_OK;
  const char* const named = std::getenv(kVariable);
  const bool is_named = named != nullptr && *named != '\0';
  *out = Handle(::dlopen(is_named ? named : kLoadersName, kFlags));
  if (out->value != nullptr) return MERON_OK;
  const char* const reason = ::dlerror();
  tell(failure, (is_named ? std::string(kVariable) + " names a library that cannot be loaded: "
                          : std::string("NCCL is not found: install it (PyTorch brings one), or "
                                        "name its file by ") +
                                kVariable + "; ") +
                    (reason == nullptr ? "no reason is known" : reason));
  return MERON_E_UNSUPPORTED;
}

template <class Function>
bool look_up(void* handle, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(::dlsym(handle, name));
  return *out != nullptr;
}

// Returns the first function that is missing; null: all are there.
const char* look_up_all(void* handle, int version, Functions* out) {
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto* place) {
    if (!look_up(handle, name, place) && missing == nullptr) missing = name;
  };
  need("ncclGetUniqueId", &out->GetUniqueId);
  need("ncclCommInitRankConfig", &out->CommInitRankConfig);
  need("ncclCommFinalize", &out->CommFinalize);
  need("ncclCommDestroy", &out->CommDestroy);
  need("ncclCommAbort", &out->CommAbort);
  need("ncclCommGetAsyncError", &out->CommGetAsyncError);
  need("ncclGetErrorString", &out->GetErrorString);
  need("ncclGetLastError", &out->GetLastError);
  need("ncclAllGather", &out->AllGather);
  need("ncclSend", &out->Send);
  need("ncclRecv", &out->Recv);
  need("ncclGroupStart", &out->GroupStart);
  need("ncclGroupEnd", &out->GroupEnd);
  if (!look_up(handle, "ncclCommRegister", &out->CommRegister) ||
      !look_up(handle, "ncclCommDeregister", &out->CommDeregister)) {
    out->CommRegister = nullptr;
  }
  if (version < kCopyEngineVersion || !look_up(handle, "ncclMemAlloc", &out->MemAlloc) ||
      !look_up(handle, "ncclMemFree", &out->MemFree) ||
      !look_up(handle, "ncclCommWindowRegister", &out->CommWindowRegister) ||
      !look_up(handle, "ncclCommWindowDeregister", &out->CommWindowDeregister)) {
    out->CommWindowRegister = nullptr;
  }
  return missing;
}

meron_status load(std::unique_ptr<const Library>* out, meron_backend_failure* failure) {
  Handle handle;
  if (const meron_status status = open_copy(&handle, failure); status < 0) return status;
  auto made = std::make_unique<Library>();
  made->path = path_of(handle.value);
  if (!look_up(handle.value, "ncclGetVersion", &made->call.GetVersion) ||
      made->call.GetVersion(&made->version) != kSuccess) {
    tell(failure, made->path + " is not NCCL: it tells no version");
    return MERON_E_UNSUPPORTED;
  }
  made->version_text = text_of_version(made->version);
  // An older version opens communicators by a blocking call, which nothing could end.
  if (made->version < kOldestVersion) {
    tell(failure, "NCCL " + made->version_text + " at " + made->path +
                      " is too old: 2.18 or newer is needed (PyTorch 2.1 and newer contain it)");
    return MERON_E_UNSUPPORTED;
  }
  if (const char* const missing = look_up_all(handle.value, made->version, &made->call);
      missing != nullptr) {
    tell(failure, "NCCL " + made->version_text + " at " + made->path + " has no " + missing);
    return MERON_E_UNSUPPORTED;
  }
  made->summary = "NCCL " + made->version_text + " at " + made->path;
  if (aborts_unsafely(made->version)) {
    made->summary += " (unsafe: aborts may hang in 2.28.3 to 2.28.8; use 2.28.9 or newer)";
  }
  handle.value = nullptr;  // it stays
  *out = std::move(made);
  return MERON_OK;
}

}  // namespace

meron_status find_library(const Library** out, meron_backend_failure* failure) {
  static std::mutex mutex;
  static std::unique_ptr<const Library>* const found = new std::unique_ptr<const Library>();
  const std::lock_guard lock(mutex);
  if (*found == nullptr) {
    if (const meron_status status = load(found, failure); status < 0) return status;
  } else if (const auto copies = copies_in_process(); copies.size() > 1) {
    return refuse_copies(copies, failure);
  }
  *out = found->get();
  return MERON_OK;
}

}  // namespace meron::nccl
