/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between the engine and libmeron_mpi.so. The engine opens the library at run time
 * and calls meron_mpi_open; neither is linked with the other.
 */
#ifndef MERON_MODULES_MPI_MODULE_H
#define MERON_MODULES_MPI_MODULE_H

#include "meron/transport.h"

/* Raised with every change of this header or of meron_transport. */
#define MERON_MPI_MODULE_ABI 1
/* Tags are below this; the library refuses an MPI whose MPI_TAG_UB does not reach so far. */
#define MERON_MPI_TAG_END (UINT64_C(1) << 28)

typedef struct {
  uint32_t abi;     /* MERON_MPI_MODULE_ABI of the module */
  uint32_t version; /* MERON_VERSION it was built from */
  int32_t rank;
  int32_t world_size;
  /*
   * 1: the table's functions may be called by any thread, one at a time. 0: only by the thread that
   * initialized MPI, because the program did so with less than MPI_THREAD_SERIALIZED.
   */
  int32_t any_thread;
  char library[128];         /* the first line of MPI_Get_library_version */
  meron_transport transport; /* name "mpi"; its `closed` frees what `user` points to */
} meron_mpi_world;

/*
 * Joins this process to the world of MPI_COMM_WORLD, as the exported function `meron_mpi_open`.
 *
 * `abi` is the caller's MERON_MPI_MODULE_ABI; if it is not the module's, *out is unchanged.
 * Initializes MPI if the program has not. Starts to create a separate communicator: every process
 * of the world has to call this, several times in the same order. The call itself does not wait;
 * send and receive return MERON_IN_PROGRESS until all have called.
 *
 * Returns MERON_OK, or an error, with the failure and its remedy in `why` (at most `why_bytes`
 * bytes with the final 0): MERON_E_VERSION, MERON_E_STATE (MPI is finalized, or may not be called
 * by this thread), MERON_E_UNSUPPORTED (too few tags), MERON_E_NO_MEMORY, MERON_E_INTERNAL (MPI
 * itself failed).
 */
typedef meron_status (*meron_mpi_open_fn)(uint32_t abi, meron_mpi_world* out, char* why,
                                          size_t why_bytes);

#endif /* MERON_MODULES_MPI_MODULE_H */
