// SPDX-License-Identifier: Apache-2.0
#include "call_log/flight_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace meron {

std::string flight_record_json(const Channel& channel) {
  using Json = nlohmann::ordered_json;
  Json record;
  record["rank"] = channel.transport().rank();
  record["world_size"] = channel.transport().world_size();
  record["transport"] = channel.transport().name();
  record["clock_ns"] = now_ns();
  if (const Status status = channel.status(); !status.ok()) {
    const ErrorInfo& info = status.error().info();
    record["error"] = {{"code", info.code}, {"message", info.what}, {"peer", info.peer}};
  }
  Json& ranks = record["ranks"] = Json::array();
  for (int m = 0; m < channel.size(); ++m) {
    const MemberBlock& block = channel.member(m);
    const uint64_t posted = block.posted.load(std::memory_order_seq_cst);
    Json calls = Json::array();
    for (uint64_t s = posted > kRing ? posted - kRing + 1 : 1; s <= posted; ++s) {
      const CallRecord call = block.ring[s % kRing].load();
      if (call.sequence != s) continue;
      calls.push_back({{"sequence", call.sequence},
                       {"call", name_of(static_cast<CallKind>(call.operation))},
                       {"subject", call.subject},
                       {"bytes", call.bytes},
                       {"begun_ns", call.begun_ns}});
    }
    const int rank = channel.members().world_rank(m);
    ranks.push_back({{"rank", rank},
                     {"pid", channel.transport().pid(rank)},
                     {"closed", channel.transport().left(rank)},
                     {"calls_begun", posted},
                     {"calls", std::move(calls)}});
  }
  // A subject that was cut inside of a character must not make the dump fail.
  return record.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace meron
