// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

namespace conformance {
namespace {

std::vector<int32_t> ranks_of(const Statement& statement) {
  std::vector<int32_t> ranks;
  for (const std::string& each : statement.list("ranks")) {
    ranks.push_back(static_cast<int32_t>(to_integer(each)));
  }
  return ranks;
}

void group(Session& session, const Statement& statement) {
  const std::vector<int32_t> ranks = ranks_of(statement);
  meron_group group{};
  call(meron_group_create, &group, session.current().handle, ranks.data(), ranks.size());
  if (group.id != 0) session.keep(statement.name, std::make_unique<Group>(group));
}

void group_is(Session& session, const Statement& statement) {
  const meron_group group = session.group(statement.name).handle;
  const std::vector<int32_t> ranks = ranks_of(statement);
  int32_t rank = -1, size = -1;
  call(meron_group_rank, &rank, group);
  call(meron_group_size, &size, group);
  check_equal("the group's size", size, static_cast<double>(ranks.size()));
  check(rank >= 0 && rank < size, "the rank in the group is out of range");
  check_equal("the world's rank", ranks[static_cast<size_t>(rank)], session.setup.rank);
}

void group_status(Session& session, const Statement& statement) {
  const meron_group group = session.group(statement.name).handle;
  const int attempts = statement.get("until", "") == "broken" ? kAttempts : 1;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (attempt > 0) sleep_seconds(0.001);
    call(meron_group_status, group);
  }
}

void abort(Session& session, const Statement& statement) {
  call(meron_group_abort, session.group(statement.name).handle, statement.get("reason").c_str());
}

void barrier(Session& session, const Statement& statement) {
  meron_future future{};
  call(meron_barrier_begin, &future, session.group(statement.name).handle);
  finish_or_keep(session, statement, future);
}

void broadcast(Session& session, const Statement& statement) {
  const meron_dtype dtype = dtype_of(statement.get("dtype"));
  const auto count = static_cast<uint64_t>(to_integer(statement.get("count")));
  std::vector<std::byte> data = stored(session.values(statement.get("with")), dtype, count);
  meron_future future{};
  call(meron_broadcast_begin, &future, session.group(statement.name).handle,
       static_cast<void*>(data.data()), data.size(),
       static_cast<int32_t>(to_integer(statement.get("root"))));
  finish(future);
  session.check_data(statement, dtype, data.data(), count);
}

meron_reduce_op op_of(const std::string& name) {
  if (name == "sum") return MERON_REDUCE_OP_SUM;
  if (name == "mean") return MERON_REDUCE_OP_MEAN;
  if (name == "max") return MERON_REDUCE_OP_MAX;
  if (name == "min") return MERON_REDUCE_OP_MIN;
  throw Malformed{"unknown op '" + name + "'"};
}

void all_reduce(Session& session, const Statement& statement) {
  const meron_dtype dtype = dtype_of(statement.get("dtype"));
  const auto count = static_cast<uint64_t>(to_integer(statement.get("count")));
  std::vector<std::byte> data = stored(session.values(statement.get("with")), dtype, count);
  meron_future future{};
  call(meron_all_reduce_begin, &future, session.group(statement.name).handle,
       static_cast<void*>(data.data()), count, dtype, op_of(statement.get("op")));
  finish(future);
  session.check_data(statement, dtype, data.data(), count);
}

}  // namespace

Operations group_operations() {
  return {{"group", group},          {"group_is", group_is}, {"group_status", group_status},
          {"abort", abort},          {"barrier", barrier},   {"broadcast", broadcast},
          {"all_reduce", all_reduce}};
}

}  // namespace conformance
