// SPDX-License-Identifier: Apache-2.0
#include "engine/system_info.h"

#include <fmt/format.h>

#include "device/modules.h"
#include "kernels/cpu/target.h"
#include "meron/base.h"
#include "os/host.h"
#include "os/local_socket.h"
#include "os/memory_file.h"
#include "os/process.h"
#include "plan/json_out.h"
#include "rendezvous/join.h"

namespace meron {
namespace {

JsonOut bytes_or_unlimited(uint64_t bytes) {
  return bytes == kNoLimit ? JsonOut("unlimited") : JsonOut(bytes);
}

JsonOut entry(const char* name, const char* use, const std::string& reason) {
  JsonOut json = JsonOut::object({{"name", name}, {"available", reason.empty()}, {"use", use}});
  if (!reason.empty()) json.add("reason", reason);
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

JsonOut transports() {
  const std::string memory = why_no_shared_memory();
  const std::string meeting = memory.empty() ? why_no_meeting() : memory;
  return JsonOut::array({entry("self", "one rank", memory),
                         entry("local", "threads of one process", memory),
                         entry("shm", "processes of one host", meeting),
                         entry("mpi", "an MPI world, several hosts", why_no_mpi())});
}

JsonOut cuda() {
  const DeviceModule found = probe_cuda();
  JsonOut json = entry("cuda", "device memory", found.reason);
  if (!found.summary.empty()) json.add("summary", found.summary);
  JsonOut devices = JsonOut::array();
  for (const meron_device_info& device : found.devices) {
    devices.push(
        JsonOut::object({{"index", device.index},
                         {"name", device.name},
                         {"bus", device.bus},
                         {"memory_bytes", device.memory_bytes},
                         {"free_bytes", device.free_bytes},
                         {"compute_capability",
                          fmt::format("{}.{}", device.capability / 10, device.capability % 10)}}));
  }
  if (!found.devices.empty()) json.add("devices", devices);
  return json;
}

JsonOut nccl() {
  const DeviceModule found = probe_nccl();
  JsonOut json = entry("nccl", "collectives between GPUs", found.reason);
  if (!found.summary.empty()) json.add("summary", found.summary);
  return json;
}

JsonOut cpu_json(const CpuInfo& cpu) {
  JsonOut features = JsonOut::array();
  for (const std::string& feature : cpu.features) features.push(feature);
  return JsonOut::object({{"name", cpu.brand},
                          {"features", features},
                          {"usable_cores", cpu_count()},
                          {"kernel_target", kernels::target_name()}});
}

JsonOut memory_json(const HostMemory& memory) {
  return JsonOut::object({{"total_bytes", memory.total},
                          {"available_bytes", memory.available},
                          {"cgroup_limit_bytes", bytes_or_unlimited(memory.cgroup_limit)},
                          {"cgroup_used_bytes", memory.cgroup_used},
                          {"page_bytes", page_size()}});
}

}  // namespace

std::string system_info_json() {
  const ShmSpace shm = shm_space();
  const IoUringSupport uring = io_uring_available();
  const std::string version =
      fmt::format("{}.{}.{}", MERON_VERSION_MAJOR, MERON_VERSION_MINOR, MERON_VERSION_PATCH);
  const JsonOut modules =
      JsonOut::array({entry("mpi", "ranks on several hosts", why_no_mpi()), nccl(), cuda()});
  return JsonOut::object({{"version", version},
                          {"compiler", __VERSION__},
                          {"cpu", cpu_json(cpu_info())},
                          {"transports", transports()},
                          {"modules", modules},
                          {"memory", memory_json(host_memory())},
                          {"huge_pages", JsonOut::object({{"shared_memory", thp_shmem_mode()}})},
                          {"dev_shm", JsonOut::object({{"total_bytes", shm.total},
                                                       {"available_bytes", shm.available},
                                                       {"used", false}})},
                          {"memlock_limit_bytes", bytes_or_unlimited(memlock_limit())},
                          {"io_uring", JsonOut::object({{"available", uring.available},
                                                        {"reason", uring.reason}})}})
      .dump(2);
}

}  // namespace meron
