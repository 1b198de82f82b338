// SPDX-License-Identifier: Apache-2.0
#include "modules/mpi/process.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace meron::mpi {
namespace {

// Nothing here has a destructor: contexts may end after static objects have.
std::mutex calls_mutex;
bool prepared = false;          // guarded by calls_mutex, as the next two
bool initialized_here = false;  // this module has to finalize
bool threads_are_free = false;
std::atomic<bool> finalize_has_begun{false};
std::atomic<pid_t> owner{0};  // a fork of it exits without a word
std::atomic<int> open_contexts{0};
std::atomic<bool> given_up{false};
std::atomic<bool> exiting_well{false};
std::atomic<bool> reported{false};
char name_of_process[64 + MPI_MAX_PROCESSOR_NAME];  // read while MPI can still be called

// MPI deletes the attributes of MPI_COMM_SELF before anything else when it is finalized, whoever
// does it: from here on its functions would end the process.
int on_finalize(MPI_Comm, int, void*, void*) {
  finalize_has_begun = true;
  return MPI_SUCCESS;
}

void finalize() {
  const std::lock_guard lock(calls_mutex);
  if (!finalized()) MPI_Finalize();
}

// MPI_Finalize waits until every process has called it. A process that fails must not wait for
// stuck peers: it skips MPI_Finalize, so the launcher detects that the job has failed, and ends the
// others.
void on_process_exit(int status, void*) {
  if (status != 0 || getpid() != owner || given_up) return;
  exiting_well = true;
  if (open_contexts == 0) finalize();
}

void set_up_exit() {
  owner = getpid();
  // Unlike atexit it hands over the exit status, and it is not undone by dlclose: the library is
  // linked with -z nodelete.
  if (on_exit(on_process_exit, nullptr) != 0) given_up = true;
}

// MPI's handlers of faults would take the place of those by which Java and Julia work, and its
// threads would be given signals that others wait for.
class KeptSignals {
 public:
  KeptSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &mask_);
    for (size_t i = 0; i < std::size(kFaults); ++i) sigaction(kFaults[i], nullptr, &handlers_[i]);
  }
  ~KeptSignals() {
    for (size_t i = 0; i < std::size(kFaults); ++i) sigaction(kFaults[i], &handlers_[i], nullptr);
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  static constexpr int kFaults[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
  struct sigaction handlers_[std::size(kFaults)];
  sigset_t mask_;
};

void ask_name() {
  int rank = -1, length = 0;
  char host[MPI_MAX_PROCESSOR_NAME] = "";
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Get_processor_name(host, &length);
  std::snprintf(name_of_process, sizeof(name_of_process), "rank %d on host %s", rank, host);
}

int initialize_mpi(int* level) {
  const KeptSignals kept;
  // A process that no launcher has started is a world of its own, and needs no daemon of Open MPI.
  constexpr const char* kAlone = "OMPI_MCA_ess_singleton_isolated";
  const bool unsaid = getenv(kAlone) == nullptr;
  if (unsaid) setenv(kAlone, "1", 0);
  const int result = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, level);
  if (unsaid) unsetenv(kAlone);
  return result;
}

}  // namespace

std::mutex& calls() {
  return calls_mutex;
}
bool any_thread() {
  return threads_are_free;
}

bool finalized() {
  int done = 0;
  return finalize_has_begun || MPI_Finalized(&done) != MPI_SUCCESS || done != 0;
}

meron_status initialize(std::string* why) {
  const std::lock_guard lock(calls_mutex);
  if (finalized()) {
    *why = "MPI was finalized, and cannot be initialized again: open contexts before MPI_Finalize";
    return MERON_E_STATE;
  }
  int already = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&already);
  if (already == 0) {
    const int result = initialize_mpi(&level);
    if (result != MPI_SUCCESS) {
      *why = "MPI_Init_thread failed: " + error_text(result);
      return MERON_E_INTERNAL;
    }
    initialized_here = true;
  }
  MPI_Query_thread(&level);
  threads_are_free = level >= MPI_THREAD_SERIALIZED;
  int is_main = 0;
  MPI_Is_thread_main(&is_main);
  if (!threads_are_free && is_main == 0) {
    *why =
        "MPI allows only the thread that initialized it to call it: open the context there, or "
        "initialize MPI by MPI_Init_thread with MPI_THREAD_SERIALIZED or more";
    return MERON_E_STATE;
  }
  if (prepared) return MERON_OK;
  int key = MPI_KEYVAL_INVALID;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr) != MPI_SUCCESS ||
      MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr) != MPI_SUCCESS) {
    *why = "MPI cannot store an attribute of MPI_COMM_SELF";
    return MERON_E_INTERNAL;
  }
  ask_name();
  if (initialized_here) set_up_exit();
  prepared = true;
  return MERON_OK;
}

void context_opened() {
  ++open_contexts;
}

// A static object of the program's may close its context after the exit function has run.
void context_closed() {
  if (--open_contexts == 0 && exiting_well && !given_up) finalize();
}

void give_up_finalizing() {
  given_up = true;
}

void report(const std::string& what) {
  if (reported.exchange(true)) return;
  std::fprintf(stderr, "meron: %s: %s\n", name_of_process, what.c_str());
}

std::string error_text(int mpi_error) {
  int length = 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  if (MPI_Error_string(mpi_error, text, &length) != MPI_SUCCESS) return "an unknown error";
  return std::string(text, static_cast<size_t>(length));
}

}  // namespace meron::mpi
