// SPDX-License-Identifier: Apache-2.0
// The ranks of an MPI world: those of a node share memory, MPI joins the nodes.
#include <fmt/format.h>

#include <array>

#include "modules/mpi/mpi_module.h"
#include "os/library.h"
#include "rendezvous/join.h"

namespace meron {
namespace {

constexpr const char* kModule = "libmeron_mpi.so";

Result<meron_mpi_open_fn> find_module() {
  MERON_ASSIGN(void* const found, function_of_module(kModule, "meron_mpi_open"));
  return reinterpret_cast<meron_mpi_open_fn>(found);
}

}  // namespace

Status mpi_available() {
  auto found = find_module();
  return found.ok() ? Status(Ok{}) : Status(std::move(found).error());
}

Result<MpiWorld> open_mpi() {
  MERON_ASSIGN(const meron_mpi_open_fn open, find_module());
  meron_mpi_world world{};
  std::array<char, 512> why{};
  const meron_status status = open(MERON_MPI_MODULE_ABI, &world, why.data(), why.size());
  if (status < 0) return Error(status, why.data(), "see what MPI says").during("context_open");
  if (world.version != MERON_VERSION) {
    if (world.transport.closed != nullptr) world.transport.closed(world.transport.user);
    return Error(MERON_E_VERSION,
                 fmt::format("{} is of Meron {}.{}.{}, this is {}.{}.{}", kModule,
                             world.version >> 16, world.version >> 8 & 0xff, world.version & 0xff,
                             MERON_VERSION_MAJOR, MERON_VERSION_MINOR, MERON_VERSION_PATCH),
                 "install both of one version");
  }
  return MpiWorld{world.rank, world.world_size, world.any_thread != 0, world.library,
                  world.transport};
}

}  // namespace meron
