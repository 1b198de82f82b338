// SPDX-License-Identifier: Apache-2.0
// The custom transport of this runner: sockets between ranks that are threads of one process.
#pragma once

#include <memory>
#include <string>

#include "session.h"
#include "tests/distributed/socket_transport.h"

namespace conformance {

// A rank's state of a custom transport. It lives as long as the context.
struct Sockets : Object {
  explicit Sockets(std::vector<int> row) : transport(std::move(row)), table(transport.table()) {
    table.name = nullptr;  // the library's name for those that have none: "custom"
  }
  void release() override {}
  meron::test::SocketTransport transport;
  meron_transport table;
};

// This rank's end of the sockets of a job; the first rank that asks makes them for all.
std::unique_ptr<Sockets> join_sockets(const std::string& job, int rank, int world);

}  // namespace conformance
