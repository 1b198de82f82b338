// SPDX-License-Identifier: Apache-2.0
// A program that uses MPI itself, and the module beside it: program_driver LIBRARY CASE. See
// test_module.py.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstring>

#include "tests/distributed/mpi/module.h"

namespace meron::test {
namespace {

void initialize(int wanted) {
  int level = 0;
  EXPECT(MPI_Init_thread(nullptr, nullptr, wanted, &level) == MPI_SUCCESS);
  EXPECT(level >= wanted);
}

void swap_words(World& world) {
  const int peer = world.rank() ^ 1;
  const int sent = world.rank();
  int received = -1;
  const uint64_t in = world.receive(peer, 1, &received, sizeof(received));
  const uint64_t out = world.send(peer, 1, &sent, sizeof(sent));
  world.wait(in);
  world.wait(out);
  EXPECT(received == peer);
}

// The module uses what is there, and leaves its end to the program.
void multiple(const char* library) {
  initialize(MPI_THREAD_MULTIPLE);
  {
    World world(library);
    EXPECT(world.world().any_thread == 1);
    swap_words(world);
    // The program's messages of the same tag are not the module's.
    const int peer = world.rank() ^ 1;
    int number = 100 + world.rank();
    MPI_Sendrecv_replace(&number, 1, MPI_INT, peer, 1, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EXPECT(number == 100 + peer);
    swap_words(world);
  }
  EXPECT(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS);
  MPI_Finalize();
}

void funneled(const char* library) {
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
  if (level < MPI_THREAD_SERIALIZED) {
    std::thread([library] {
      meron_mpi_world world;
      char why[256] = "";
      EXPECT(open_function(library)(MERON_MPI_MODULE_ABI, &world, why, sizeof(why)) ==
             MERON_E_STATE);
      EXPECT(std::strstr(why, "MPI_THREAD_SERIALIZED") != nullptr);
    }).join();
  }
  {
    World world(library);
    EXPECT(world.world().any_thread == (level >= MPI_THREAD_SERIALIZED ? 1 : 0));
    swap_words(world);
  }
  MPI_Finalize();
}

// A program that finalizes MPI too early gets an error, and is not ended.
void finalizes_first(const char* library) {
  initialize(MPI_THREAD_SERIALIZED);
  World world(library);
  swap_words(world);
  uint64_t word = 0, request = 0, bytes = 0;
  const uint64_t pending = world.receive(world.rank() ^ 1, 2, &word, sizeof(word));
  MPI_Finalize();
  const meron_transport& table = world.table();
  EXPECT(table.test(table.user, pending, &bytes) < 0);
  EXPECT(table.send(table.user, &request, 0, 1, &word, sizeof(word)) < 0);
  EXPECT(table.receive(table.user, &request, 0, 1, &word, sizeof(word)) < 0);
  table.idle(table.user, 1000);
  world.cancel(pending);
  world.close();
  meron_mpi_world again;
  char why[256] = "";
  EXPECT(open_function(library)(MERON_MPI_MODULE_ABI, &again, why, sizeof(why)) == MERON_E_STATE);
  EXPECT(std::strstr(why, "finalized") != nullptr);
}

// The module has initialized MPI, and the program finalizes it.
void finalizes_for_the_module(const char* library) {
  {
    World world(library);
    swap_words(world);
  }
  MPI_Finalize();
}

}  // namespace
}  // namespace meron::test

int main(int argc, char** argv) {
  using namespace meron::test;
  EXPECT(argc == 3);
  const std::string name = argv[2];
  if (name == "multiple") multiple(argv[1]);
  if (name == "funneled") funneled(argv[1]);
  if (name == "finalizes_first") finalizes_first(argv[1]);
  if (name == "finalizes_for_the_module") finalizes_for_the_module(argv[1]);
  return 0;
}
