// SPDX-License-Identifier: Apache-2.0
#include "operations.h"

namespace conformance {
namespace {

meron_schedule found(Session& session, const Statement& statement) {
  return session.find<Schedule>(statement.name).handle;
}
size_t index_of(const Statement& statement) {
  return static_cast<size_t>(to_number(statement.get("index")));
}

void schedule(Session& session, const Statement& statement) {
  const std::vector<meron_unit> units = session.units(statement);
  meron_schedule_options options{};
  call(meron_schedule_options_init, &options, sizeof options);
  const auto limit = [&](const char* key, uint64_t& value) {
    if (statement.has(key)) value = static_cast<uint64_t>(to_number(statement.get(key)));
  };
  limit("prefetch", options.prefetch_elements);
  limit("live", options.max_live_elements);
  limit("reuse", options.max_reuse_elements);
  limit("persist", options.persist_elements);
  limit("persist_total", options.persist_total_elements);
  if (statement.has("tier") && statement.get("tier") == "device") {
    options.tier = MERON_TIER_DEVICE;
  }
  meron_schedule made{};
  call(meron_schedule_create, &made, units.data(), units.size(),
       static_cast<const meron_schedule_options*>(&options));
  session.keep(statement.name, std::make_unique<Schedule>(made));
}

void pass(Session& session, const Statement& statement) {
  call(meron_schedule_start_pass, found(session, statement),
       static_cast<uint32_t>(statement.number("kind", 0)));
}

void enter(Session& session, const Statement& statement) {
  const meron_status status = call(meron_schedule_enter, found(session, statement),
                                   index_of(statement), timeout_of(statement));
  check_equal("entered", status == MERON_OK ? 1 : 0, statement.number("pending", 0) == 1 ? 0 : 1);
}

void leave(Session& session, const Statement& statement) {
  call(meron_schedule_leave, found(session, statement), index_of(statement));
}

void used(Session& session, const Statement& statement) {
  meron_view view{};
  call(meron_schedule_view, &view, found(session, statement),
       session.find<Param>(statement.get("param")).handle);
  check(view.offset == 0 && view.data != nullptr, "the view is not of the whole tensor");
  check_equal("writable", view.writable, 0);
  session.check_data(statement, view.dtype, view.data, view.count);
}

void reset(Session& session, const Statement& statement) {
  call(meron_schedule_reset, found(session, statement));
}

void schedule_is(Session& session, const Statement& statement) {
  meron_schedule_info info{};
  info.struct_size = sizeof info;
  call(meron_schedule_get_info, &info, found(session, statement));
  const std::pair<const char*, uint64_t> fields[] = {
      {"entered", info.entered},
      {"units", info.units},
      {"passes", info.passes},
      {"uses", info.uses},
      {"ahead", info.ahead},
      {"deviations", info.deviations},
      {"live_elements", info.live_elements},
      {"peak_live_elements", info.peak_live_elements}};
  for (const auto& [name, value] : fields) {
    const auto seen = static_cast<double>(value);
    check_equal(name, seen, statement.number(name, seen));
  }
}

}  // namespace

Operations schedule_operations() {
  return {{"schedule", schedule},
          {"pass", pass},
          {"enter", enter},
          {"leave", leave},
          {"used", used},
          {"reset", reset},
          {"schedule_is", schedule_is}};
}

}  // namespace conformance
