// SPDX-License-Identifier: Apache-2.0
#include "call_log/flight_record.h"

#include "plan/json_out.h"

namespace meron {

std::string flight_record_json(const Channel& channel) {
  JsonOut record = JsonOut::object({{"rank", channel.transport().rank()},
                                    {"world_size", channel.transport().world_size()},
                                    {"transport", channel.transport().name()},
                                    {"clock_ns", now_ns()}});
  if (const Status status = channel.status(); !status.ok()) {
    const ErrorInfo& info = status.error().info();
    record.add("error",
               JsonOut::object({{"code", info.code}, {"message", info.what}, {"peer", info.peer}}));
  }
  JsonOut ranks = JsonOut::array();
  for (int m = 0; m < channel.size(); ++m) {
    const MemberBlock& block = channel.member(m);
    const uint64_t posted = block.posted.load(std::memory_order_seq_cst);
    JsonOut calls = JsonOut::array();
    for (uint64_t s = posted > kRing ? posted - kRing + 1 : 1; s <= posted; ++s) {
      const CallRecord call = block.ring[s % kRing].load();
      if (call.sequence != s) continue;
      calls.push(JsonOut::object({{"sequence", call.sequence},
                                  {"call", name_of(static_cast<CallKind>(call.operation))},
                                  {"subject", call.subject},
                                  {"bytes", call.bytes},
                                  {"begun_ns", call.begun_ns}}));
    }
    const int rank = channel.members().world_rank(m);
    ranks.push(JsonOut::object({{"rank", rank},
                                {"pid", channel.transport().pid(rank)},
                                {"closed", channel.transport().left(rank)},
                                {"calls_begun", posted},
                                {"calls", calls}}));
  }
  return record.add("ranks", ranks).dump(2);
}

}  // namespace meron
