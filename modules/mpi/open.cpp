// SPDX-License-Identifier: Apache-2.0
// meron_mpi_open, and the table's functions as C sees them.
#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "modules/mpi/mpi_module.h"
#include "modules/mpi/world.h"

namespace meron::mpi {
namespace {

World& world_of(void* user) {
  return *static_cast<World*>(user);
}

meron_status send(void* user, uint64_t* request, int32_t peer, uint64_t tag, const void* data,
                  uint64_t bytes) {
  return world_of(user).start(request, true, peer, tag, const_cast<void*>(data), bytes);
}

meron_status receive(void* user, uint64_t* request, int32_t peer, uint64_t tag, void* data,
                     uint64_t bytes) {
  return world_of(user).start(request, false, peer, tag, data, bytes);
}

meron_status test(void* user, uint64_t request, uint64_t* bytes) {
  return world_of(user).test(request, bytes);
}

void cancel(void* user, uint64_t request) {
  world_of(user).cancel(request);
}

void idle(void* user, int64_t timeout_ns) {
  world_of(user).idle(timeout_ns);
}

void closed(void* user) {
  delete static_cast<World*>(user);
}

void write_text(const std::string& text, char* place, size_t room) {
  if (place == nullptr || room == 0) return;
  const size_t bytes = std::min(text.size(), room - 1);
  std::memcpy(place, text.data(), bytes);
  place[bytes] = '\0';
}

std::string library() {
  int length = 0;
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<size_t>(length));
  return all.substr(0, all.find_first_of(std::string("\n\0", 2)));
}

meron_status check_tags(std::string* why) {
  int* most = nullptr;
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
  if (found != 0 && static_cast<uint64_t>(*most) + 1 >= MERON_MPI_TAG_END) return MERON_OK;
  *why = library() + " has tags up to " + (found != 0 ? std::to_string(*most) : "nowhere") +
         ", and Meron needs them up to " + std::to_string(MERON_MPI_TAG_END - 1) +
         ": use another MPI, or another transport of it";
  return MERON_E_UNSUPPORTED;
}

meron_status open(meron_mpi_world* out, std::string* why) {
  if (const meron_status status = initialize(why); status != MERON_OK) return status;
  meron_mpi_world world = {};
  {
    const std::lock_guard lock(calls());
    if (const meron_status status = check_tags(why); status != MERON_OK) return status;
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.world_size);
    world.any_thread = any_thread() ? 1 : 0;
    write_text(library(), world.library, sizeof(world.library));
  }
  world.abi = MERON_MPI_MODULE_ABI;
  world.version = MERON_VERSION;
  world.transport = MERON_TRANSPORT_INIT;
  world.transport.name = "mpi";
  world.transport.max_message = World::kMessageBytes;
  world.transport.send = send;
  world.transport.receive = receive;
  world.transport.test = test;
  world.transport.cancel = cancel;
  world.transport.idle = idle;
  world.transport.closed = closed;
  world.transport.user = new World();
  *out = world;
  return MERON_OK;
}

}  // namespace
}  // namespace meron::mpi

extern "C" MERON_API meron_status meron_mpi_open(uint32_t abi, meron_mpi_world* out, char* why,
                                                 size_t why_bytes) {
  using namespace meron::mpi;
  if (abi != MERON_MPI_MODULE_ABI) {
    write_text("libmeron_mpi.so has ABI " + std::to_string(MERON_MPI_MODULE_ABI) +
                   " and libmeron.so expects " + std::to_string(abi) +
                   ": use those of one build or package",
               why, why_bytes);
    return MERON_E_VERSION;
  }
  try {
    std::string text;
    const meron_status status = open(out, &text);
    write_text(text, why, why_bytes);
    return status;
  } catch (const std::bad_alloc&) {
    write_text("no memory", why, why_bytes);
    return MERON_E_NO_MEMORY;
  }
}
