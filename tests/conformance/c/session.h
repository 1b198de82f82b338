// SPDX-License-Identifier: Apache-2.0
// What one rank has while it executes a case: its objects, by the names that the case gives them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "meron/meron.h"
#include "table.h"
#include "values.h"

namespace conformance {

// A call that returned an error, as the caller saw it.
struct CallFailed {
  meron_status status;
  std::string message;
  int32_t peer;
};

// The library did what it should not.
struct CheckFailed {
  std::string what;
};

[[noreturn]] void throw_call_failed(meron_status status, meron_error* error);

// Calls a function of the library, whose last parameter is the error's place; throws CallFailed.
template <class Function, class... Arguments>
meron_status call(Function function, Arguments... arguments) {
  meron_error* error = nullptr;
  const meron_status status = function(arguments..., &error);
  if (status < 0) throw_call_failed(status, error);
  return status;
}

inline void check(bool holds, const std::string& what) {
  if (!holds) throw CheckFailed{what};
}
// `found` and `expected` as text.
void check_equal(const std::string& what, const std::string& found, const std::string& expected);
void check_equal(const std::string& what, double found, double expected);
// Whether `text` holds `part`, without regard to blanks and underscores.
bool holds(const std::string& text, const std::string& part);
void check_has(const std::string& text, const Statement& statement);

class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  // May be called again, to check that the object is released.
  virtual void release() = 0;
};

template <class Handle, meron_status (*Release)(Handle, meron_error**)>
class Owned : public Object {
 public:
  explicit Owned(Handle given) : handle(given) {}
  ~Owned() override {
    if (!released_) (void)Release(handle, nullptr);
  }
  void release() override {
    call(Release, handle);
    released_ = true;
  }
  // The library has ended the object: nothing is left to release.
  void ended() { released_ = true; }

  const Handle handle;

 private:
  bool released_ = false;
};

using Plan = Owned<meron_plan, meron_plan_release>;
using Group = Owned<meron_group, meron_group_release>;
using Param = Owned<meron_param, meron_param_release>;
using Update = Owned<meron_future, meron_future_release>;
using Optimizer = Owned<meron_optimizer, meron_optimizer_release>;
using Schedule = Owned<meron_schedule, meron_schedule_release>;
using Checkpoint = Owned<meron_checkpoint, meron_checkpoint_release>;
using Io = Owned<meron_io, meron_io_close>;
using Future = Owned<meron_future, meron_future_release>;

struct Unit : Owned<meron_unit, meron_unit_release> {
  Unit(meron_unit unit, std::vector<meron_param> members)
      : Owned(unit), params(std::move(members)) {}
  const std::vector<meron_param> params;
};

// Buffers outlive the gather that fills them: members are destroyed from the last to the first.
struct Gather : Object {
  void release() override { owned->release(); }
  meron_gather_mode mode = MERON_GATHER_VIEW;
  std::map<uint64_t, std::vector<std::byte>> buffers;  // by the param's handle
  std::vector<std::vector<std::byte>> flats;           // of all units
  std::unique_ptr<Owned<meron_future, meron_future_release>> owned;
};

struct Context : Owned<meron_context, meron_context_close> {
  explicit Context(meron_context context) : Owned(context) {}
  std::unique_ptr<Group> world;
  meron_stats marked{};
};

// Configuration of a run: rank, transport and options.
struct Setup {
  int rank = 0;
  int world = 1;
  std::string transport = "self";
  std::string job = "conformance";
  bool print = false;  // results that the table leaves open are printed
};

class Session {
 public:
  Session(const Setup& setup_in, std::string case_name, std::string plan_in)
      : setup(setup_in), name(std::move(case_name)), plan(std::move(plan_in)) {}
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void keep(const std::string& object_name, std::unique_ptr<Object> object);
  bool has(const std::string& object_name) const;
  // Throws Malformed if there is no such object, or if it is of another kind.
  Object& any(const std::string& object_name);
  template <class T>
  T& find(const std::string& object_name) {
    if (T* object = dynamic_cast<T*>(&any(object_name))) return *object;
    throw Malformed{"'" + object_name + "' is of another kind"};
  }
  // "" and "world" are the current context's world.
  const Group& group(const std::string& group_name);
  std::vector<meron_unit> units(const Statement& statement);
  Context& current();

  Values values(const std::string& text) const { return Values(text, setup.rank, setup.world); }
  // Holds elements `offset` to `offset + count` against `is`, `crc`, `crcN`.
  void check_data(const Statement& statement, meron_dtype dtype, const void* data, uint64_t count,
                  uint64_t offset = 0) const;

  const Setup& setup;
  const std::string name, plan;
  std::string current_name = "ctx";
  std::atomic<int32_t> stop{0};  // what should_stop answers

 private:
  std::vector<std::pair<std::string, std::unique_ptr<Object>>> objects_;  // oldest first
};

meron_param_info info_of(meron_param param);
meron_flat_info flat_of(meron_unit unit, uint64_t index);
// Waits for a future, and releases it even if the wait fails.
void finish(meron_future future);
// Of a future: waits for it, gives it away (`none`), or keeps it under the name of `future=`.
void finish_or_keep(Session& session, const Statement& statement, meron_future future);
// timeout_of returns `timeout=` in nanoseconds; check_ended checks the status against `pending=`.
int64_t timeout_of(const Statement& statement);
void check_ended(const Statement& statement, meron_status status);
// The bound of loops that ask again and again.
constexpr int kAttempts = 20000;
void sleep_seconds(double seconds);

}  // namespace conformance
