// SPDX-License-Identifier: Apache-2.0
#include "session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

namespace conformance {

void throw_call_failed(meron_status status, meron_error* error) {
  const std::unique_ptr<meron_error, void (*)(meron_error*)> owned(error, meron_error_free);
  check(meron_error_code(error) == status || error == nullptr, "the error has another code");
  CallFailed failed{status, meron_error_message(error), meron_error_peer(error)};
  // Its parts are parts of what people read; there the advice begins with a capital letter.
  const std::string advice = meron_error_advice(error);
  check(holds(failed.message, meron_error_operation(error)), "the message lacks the operation");
  check(holds(failed.message, meron_error_subject(error)), "the message lacks the subject");
  check(holds(failed.message, advice.substr(advice.empty() ? 0 : 1)), "it lacks the advice");
  check(meron_error_rank(error) >= MERON_RANK_NONE, "the error's rank is none");
  throw failed;
}

void check_equal(const std::string& what, const std::string& found, const std::string& expected) {
  check(found == expected, what + " is " + found + ", not " + expected);
}

void check_equal(const std::string& what, double found, double expected) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return;
  char text[160];
  std::snprintf(text, sizeof text, "%s is %.17g, not %.17g", what.c_str(), found, expected);
  throw CheckFailed{text};
}

bool holds(const std::string& text, const std::string& part) {
  const auto squeezed = [](std::string from) {
    from.erase(std::remove_if(from.begin(), from.end(),
                              [](char c) { return c == ' ' || c == '\n' || c == '_'; }),
               from.end());
    return from;
  };
  return squeezed(text).find(squeezed(part)) != std::string::npos;
}

void check_has(const std::string& text, const Statement& statement) {
  for (const std::string& part : statement.list("has")) {
    check(holds(text, part), "'" + part + "' is not in: " + text);
  }
}

Session::~Session() {
  while (!objects_.empty()) objects_.pop_back();
}

void Session::keep(const std::string& object_name, std::unique_ptr<Object> object) {
  if (object_name.empty()) throw Malformed{"a name is missing"};
  const auto old = std::find_if(objects_.begin(), objects_.end(),
                                [&](const auto& each) { return each.first == object_name; });
  if (old != objects_.end()) objects_.erase(old);
  objects_.emplace_back(object_name, std::move(object));
}

bool Session::has(const std::string& object_name) const {
  return std::any_of(objects_.begin(), objects_.end(),
                     [&](const auto& each) { return each.first == object_name; });
}

Object& Session::any(const std::string& object_name) {
  for (const auto& [known, object] : objects_) {
    if (known == object_name) return *object;
  }
  throw Malformed{"there is no '" + object_name + "'"};
}

const Group& Session::group(const std::string& group_name) {
  if (group_name.empty() || group_name == "world") return *current().world;
  return find<Group>(group_name);
}

std::vector<meron_unit> Session::units(const Statement& statement) {
  std::vector<meron_unit> handles;
  for (const std::string& each : statement.list("units")) {
    handles.push_back(find<Unit>(each).handle);
  }
  return handles;
}

Context& Session::current() {
  return find<Context>(current_name);
}

void Session::check_data(const Statement& statement, meron_dtype dtype, const void* data,
                         uint64_t count, uint64_t offset) const {
  if (statement.has("is")) {
    const Values expected = values(statement.get("is"));
    const double within = statement.number("within", 0);
    for (uint64_t i = 0; i < count; ++i) {
      const double found = load(dtype, data, i), wanted = expected.at(offset + i);
      if (std::fabs(found - wanted) <= within) continue;
      check_equal("element " + std::to_string(offset + i), found, wanted);
    }
  }
  for (const std::string& key : {std::string("crc"), "crc" + std::to_string(setup.world)}) {
    if (!statement.has(key)) continue;
    const std::string found = crc32_of(data, count * meron_dtype_size(dtype));
    if (setup.print && statement.get(key) == "?") {
      if (setup.rank == 0)
        std::printf("# line %d %s=%s\n", statement.line, key.c_str(), found.c_str());
      continue;
    }
    check_equal("the CRC", found, statement.get(key));
  }
}

void finish(meron_future future) {
  const Future owned(future);
  call(meron_future_wait, future, int64_t{MERON_TIMEOUT_DEFAULT});
}

void finish_or_keep(Session& session, const Statement& statement, meron_future future) {
  if (statement.get("future", "") == "none") {
    call(meron_future_release, future);
  } else if (statement.has("future")) {
    session.keep(statement.get("future"), std::make_unique<Future>(future));
  } else {
    finish(future);
  }
}

meron_param_info info_of(meron_param param) {
  meron_param_info info{};
  info.struct_size = sizeof info;
  call(meron_param_get_info, &info, param);
  return info;
}

meron_flat_info flat_of(meron_unit unit, uint64_t index) {
  meron_flat_info info{};
  info.struct_size = sizeof info;
  call(meron_unit_flat, &info, unit, index);
  return info;
}

int64_t timeout_of(const Statement& statement) {
  return statement.has("timeout") ? static_cast<int64_t>(statement.number("timeout", 0) * 1e9)
                                  : int64_t{MERON_TIMEOUT_DEFAULT};
}

void check_ended(const Statement& statement, meron_status status) {
  const bool ended = status == MERON_OK;
  check(ended != statement.has("pending"), ended ? "it has ended" : "it has not ended");
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace conformance
