// SPDX-License-Identifier: Apache-2.0
#include "device/modules.h"

#include <fmt/format.h>

#include <charconv>

#include "device/failure.h"
#include "os/library.h"

namespace meron {
namespace {

constexpr const char* kEmulated = "emulated";
constexpr const char* kCuda = "cuda";
constexpr const char* kNccl = "nccl";

std::string version_text(uint32_t version) {
  return fmt::format("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff);
}

Result<meron_backend> load_module(const std::string& kind) {
  const std::string library = fmt::format("libmeron_{}.so", kind);
  MERON_ASSIGN(void* const found, function_of_module(library, "meron_backend_query"));
  const auto query = reinterpret_cast<meron_backend_query_fn>(found);
  meron_backend backend{};
  backend.struct_size = sizeof(backend);
  meron_backend_failure failure = no_failure();
  const meron_status status = query(MERON_BACKEND_ABI, &backend, &failure);
  if (status == MERON_E_VERSION) {
    return Error(status,
                 fmt::format("{} is of another version: it does not know version {} of "
                             "meron/backend.h",
                             library, MERON_BACKEND_ABI),
                 "install it and libmeron.so of one version");
  }
  if (status < 0) {
    return Error(status, text_of(failure, status), "see what it names");
  }
  if (backend.version != MERON_VERSION) {
    return Error(MERON_E_VERSION,
                 fmt::format("{} is of Meron {}, this is {}", library,
                             version_text(backend.version), version_text(MERON_VERSION)),
                 "install both of one version");
  }
  return backend;
}

// `table`: of that module; null or too short where it is of another version than it says.
template <class Table>
Status check_table(const Table* table, const std::string& kind, const char* what) {
  if (table != nullptr && table->struct_size >= sizeof(Table)) return Ok{};
  return Error(MERON_E_VERSION, fmt::format("libmeron_{}.so has no functions of {}", kind, what),
               "install it and libmeron.so of one version");
}

Result<meron_backend> load_device(const std::string& kind) {
  MERON_ASSIGN(const meron_backend backend, load_module(kind));
  MERON_TRY(check_table(backend.device, kind, "a device"));
  MERON_TRY(check_table(backend.kernels, kind, "a device's kernels"));
  return backend;
}

}  // namespace

Result<std::shared_ptr<Device>> open_device(const std::string& name, DeviceAllocator allocator) {
  const size_t colon = name.find(':');
  const std::string kind = name.substr(0, colon);
  int32_t index = -1;
  if (colon != std::string::npos) {
    const char* const first = name.data() + colon + 1;
    const char* const last = name.data() + name.size();
    const auto parsed = std::from_chars(first, last, index);
    if (parsed.ec != std::errc() || parsed.ptr != last || index < 0) {
      return Error(MERON_E_ARGUMENT, fmt::format("'{}' names no device", name),
                   "\"cuda:0\" is the first of a process");
    }
  }
  if (kind != kCuda && kind != kEmulated) {
    return Error(MERON_E_ARGUMENT, fmt::format("there is no kind of device '{}'", kind),
                 "the kinds are cuda and emulated; without a device, name none");
  }
  MERON_ASSIGN(const meron_backend backend, load_device(kind));
  return Device::open(kind, *backend.device, index, std::move(allocator), backend.kernels);
}

Result<std::shared_ptr<const DeviceCollectives>> open_collectives(const std::string& kind) {
  if (kind != kNccl && kind != kEmulated) {
    return Error(MERON_E_ARGUMENT, fmt::format("there are no collectives '{}'", kind),
                 "devices of kind cuda have nccl, those of kind emulated have emulated");
  }
  MERON_ASSIGN(const meron_backend backend, load_module(kind));
  MERON_TRY(check_table(backend.collective, kind, "collectives"));
  return DeviceCollectives::open(kind, *backend.collective);
}

DeviceModule probe_nccl() {
  DeviceModule out;
  out.name = kNccl;
  const auto library = open_collectives(kNccl);
  if (library.ok()) {
    out.summary = (*library)->name();
  } else {
    out.reason = library.error().info().what;
  }
  return out;
}

DeviceModule probe_cuda() {
  DeviceModule out;
  out.name = kCuda;
  const auto backend = load_device(kCuda);
  if (!backend.ok()) {
    out.reason = backend.error().info().what;
    return out;
  }
  out.summary = backend->summary;
  int32_t count = 0;
  meron_backend_failure failure = no_failure();
  if (backend->device->count(&count, &failure) < 0) {
    out.reason = failure.text;
    return out;
  }
  if (count == 0) out.reason = "there is no device";
  for (int32_t index = 0; index < count; ++index) {
    const auto device = Device::open(kCuda, *backend->device, index);
    if (device.ok()) out.devices.push_back((*device)->info());
  }
  return out;
}

}  // namespace meron
