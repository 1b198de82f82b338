// SPDX-License-Identifier: Apache-2.0
#include "sockets.h"

#include <mutex>

namespace conformance {
namespace {

struct Meeting {
  explicit Meeting(int ranks) : mesh(ranks), missing(ranks) {}
  meron::test::SocketMesh mesh;
  int missing;
};

}  // namespace

std::unique_ptr<Sockets> join_sockets(const std::string& job, int rank, int world) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Meeting>> meetings;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<Meeting>& meeting = meetings[job];
  if (meeting == nullptr) meeting = std::make_unique<Meeting>(world);
  auto sockets = std::make_unique<Sockets>(meeting->mesh.take(rank));
  if (--meeting->missing == 0) meetings.erase(job);
  return sockets;
}

}  // namespace conformance
