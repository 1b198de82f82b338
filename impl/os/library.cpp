// SPDX-License-Identifier: Apache-2.0
#include "os/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

namespace meron {
namespace {

// The folder, with its '/', of the library that this code is in.
std::string own_folder() {
  static const char here = 0;
  Dl_info info{};
  if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

}  // namespace

Result<void*> function_of_module(const std::string& library, const std::string& function) {
  const std::string beside = own_folder() + library;
  // An existing one that cannot be loaded is an error; trying another one would hide it.
  const bool found = beside != library && access(beside.c_str(), F_OK) == 0;
  void* const handle = dlopen((found ? beside : library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return Error(MERON_E_UNSUPPORTED,
                 fmt::format("{} cannot be loaded: {}", library,
                             reason == nullptr ? "no reason is known" : reason),
                 "build or install it beside libmeron.so, with what it needs");
  }
  void* const found_function = dlsym(handle, function.c_str());
  if (found_function != nullptr) return found_function;
  return Error(MERON_E_UNSUPPORTED, fmt::format("{} has no function {}", library, function),
               "install the module of the same version as libmeron.so");
}

}  // namespace meron
