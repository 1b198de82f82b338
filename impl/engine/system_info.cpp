// SPDX-License-Identifier: Apache-2.0
#include "engine/system_info.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "device/modules.h"
#include "kernels/cpu/target.h"
#include "meron/base.h"
#include "os/host.h"
#include "os/local_socket.h"
#include "os/memory_file.h"
#include "os/process.h"
#include "rendezvous/join.h"

namespace meron {
namespace {

using Json = nlohmann::ordered_json;

Json bytes_or_unlimited(uint64_t bytes) {
  return bytes == kNoLimit ? Json("unlimited") : Json(bytes);
}

Json entry(const char* name, const char* use, const std::string& reason) {
  Json json{{"name", name}, {"available", reason.empty()}, {"use", use}};
  if (!reason.empty()) json["reason"] = reason;
  return json;
}

// Tries what the ranks need in order to share memory and to meet; empty when all is there.
std::string why_no_shared_memory() {
  const auto file = MemoryFile::create("meron-probe", page_size());
  return file.ok() ? std::string() : file.error().info().what;
}
std::string why_no_meeting() {
  const auto socket = listen_abstract(fmt::format("meron-probe-{}", process_id()));
  return socket.ok() || socket.error().code() == MERON_E_DUPLICATE ? std::string()
                                                                   : socket.error().info().what;
}

std::string why_no_mpi() {
  const Status available = mpi_available();
  return available.ok() ? std::string() : available.error().info().what;
}

Json transports() {
  const std::string memory = why_no_shared_memory();
  const std::string meeting = memory.empty() ? why_no_meeting() : memory;
  return Json::array({entry("self", "one rank", memory),
                      entry("local", "threads of one process", memory),
                      entry("shm", "processes of one host", meeting),
                      entry("mpi", "an MPI world, several hosts", why_no_mpi())});
}

Json cuda() {
  const DeviceModule found = probe_cuda();
  Json json = entry("cuda", "device memory", found.reason);
  if (!found.summary.empty()) json["summary"] = found.summary;
  for (const meron_device_info& device : found.devices) {
    json["devices"].push_back({{"index", device.index},
                               {"name", device.name},
                               {"bus", device.bus},
                               {"memory_bytes", device.memory_bytes},
                               {"free_bytes", device.free_bytes},
                               {"compute_capability", fmt::format("{}.{}", device.capability / 10,
                                                                  device.capability % 10)}});
  }
  return json;
}

Json nccl() {
  const DeviceModule found = probe_nccl();
  Json json = entry("nccl", "collectives between GPUs", found.reason);
  if (!found.summary.empty()) json["summary"] = found.summary;
  return json;
}

Json modules() {
  return Json::array({entry("mpi", "ranks on several hosts", why_no_mpi()), nccl(), cuda()});
}

}  // namespace

std::string system_info_json() {
  const HostMemory memory = host_memory();
  const ShmSpace shm = shm_space();
  const IoUringSupport uring = io_uring_available();
  const CpuInfo cpu = cpu_info();
  Json info;
  info["version"] =
      fmt::format("{}.{}.{}", MERON_VERSION_MAJOR, MERON_VERSION_MINOR, MERON_VERSION_PATCH);
  info["compiler"] = __VERSION__;
  info["cpu"] = {{"name", cpu.brand},
                 {"features", cpu.features},
                 {"usable_cores", cpu_count()},
                 {"kernel_target", kernels::target_name()}};
  info["transports"] = transports();
  info["modules"] = modules();
  info["memory"] = {{"total_bytes", memory.total},
                    {"available_bytes", memory.available},
                    {"cgroup_limit_bytes", bytes_or_unlimited(memory.cgroup_limit)},
                    {"cgroup_used_bytes", memory.cgroup_used},
                    {"page_bytes", page_size()}};
  info["huge_pages"] = {{"shared_memory", thp_shmem_mode()}};
  info["dev_shm"] = {
      {"total_bytes", shm.total}, {"available_bytes", shm.available}, {"used", false}};
  info["memlock_limit_bytes"] = bytes_or_unlimited(memlock_limit());
  info["io_uring"] = {{"available", uring.available}, {"reason", uring.reason}};
  return info.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace meron
