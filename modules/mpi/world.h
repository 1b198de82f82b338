// SPDX-License-Identifier: Apache-2.0
// The functions of one meron_transport: messages over a communicator of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "meron/transport.h"
#include "modules/mpi/process.h"

namespace meron::mpi {

class World {
 public:
  static constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // MPI counts in int
  // Bytes that the engine sends in one message. No MPI makes a handshake before so small a message,
  // as it does before larger ones: on a link that is busy both ways, the handshake waits for all
  // bytes that are queued before it. The links of supercomputers have their full rate with messages
  // of this size, several at a time.
  static constexpr uint64_t kMessageBytes = 60 << 10;

  // Starts to make the communicator: all processes do, in the same order.
  World();
  // No function is called any more. The communicator stays: freeing it takes all processes at once,
  // and a message that is still on its way must not meet a successor of the same number.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  meron_status start(uint64_t* request, bool sends, int peer, uint64_t tag, void* data,
                     uint64_t bytes);
  meron_status test(uint64_t request, uint64_t* bytes);
  void cancel(uint64_t request);
  void idle(int64_t timeout_ns);

 private:
  // A pending message, or a free slot. Their number is the maximum of messages that were pending at
  // a time. Its request has the same index in requests_.
  struct Slot {
    int bytes = 0;  // of sends, which MPI does not report
    int peer = 0;
    bool sends = false;
    bool ended = false;  // and the result, until test() has returned it
    int result = MPI_SUCCESS;
    uint64_t asked = 0;  // the look at which test() asked last
  };

  // MERON_OK once the communicator is there.
  meron_status ready();
  meron_status usable();
  meron_status never_ready(int result);
  bool add_slot();
  // Asks MPI for all messages at once what has ended.
  int look();
  meron_status failed(const char* call, int peer, int result);

  MPI_Comm comm_ = MPI_COMM_NULL;
  MPI_Request making_ = MPI_REQUEST_NULL;
  meron_status broken_ = MERON_OK;  // what every function says from now on
  int64_t patience_ns_;             // left, for what is cancelled
  int64_t last_end_ns_ = 0;
  uint64_t looks_ = 0;
  std::vector<Slot> slots_;
  // As many as slots; MPI writes their results here.
  std::vector<MPI_Request> requests_;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<uint64_t> free_;  // its capacity is always sufficient
};

}  // namespace meron::mpi
