// SPDX-License-Identifier: Apache-2.0
// MPI as this process has it: initialized once, shared by all contexts and by the program, and
// finalized at most once.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <mutex>
#include <string>

#include "meron/base.h"

namespace meron::mpi {

// Hold this in every call of MPI. Contexts know nothing of each other, and MPI_THREAD_SERIALIZED
// allows one call at a time in the whole process.
std::mutex& calls();

// Initializes MPI if the program has not, and prepares for its end. *why has the text of an error.
meron_status initialize(std::string* why);

// With calls() held. any_thread: true if any thread may call MPI. finalized: true if MPI is
// finalized, or about to be; it may not be called then.
bool any_thread();
bool finalized();

// A context begins to use MPI, or has ended. A process whose contexts have not all ended does not
// finalize MPI when it exits.
void context_opened();
void context_closed();
// MPI has failed, so finalizing it could block forever.
void give_up_finalizing();

// Says on stderr, once per process, what has failed, and on which rank and host.
void report(const std::string& what);
std::string error_text(int mpi_error);

}  // namespace meron::mpi
