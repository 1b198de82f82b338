// SPDX-License-Identifier: Apache-2.0
// What misuses are made with: two contexts of one rank with objects of every kind, and handles that
// are null, stale, of another kind, or were never handed out.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/fault/rank.h"

namespace meron::test {

struct Random {
  explicit Random(uint64_t seed) : engine(seed) {}
  size_t below(size_t bound) { return static_cast<size_t>(engine() % bound); }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }
  std::mt19937_64 engine;
};

enum class Kind {
  context,
  group,
  plan,
  param,
  unit,
  gather,
  future,
  update,
  optimizer,
  schedule,
  io,
  io_request,
  io_buffer,
  checkpoint
};
inline constexpr size_t kKinds = 14;

template <class Handle>
Handle handle(uint64_t id) {
  Handle made{};
  made.id = id;
  return made;
}

// A struct for the library to fill.
template <class Info>
Info sized() {
  Info info{};
  info.struct_size = sizeof(Info);
  return info;
}

// Right but for what a misuse spoils.
meron_param_desc good_desc();
meron_context_options good_options();

class Objects {
 public:
  Objects();
  ~Objects();

  // A handle that no function may take for one of `kind`.
  uint64_t bad_handle(Kind kind, Random& random) const;
  // A live handle of the first context.
  uint64_t live(Kind kind) const { return live_[static_cast<size_t>(kind)]; }
  // Gathers, updates and steps; throws CallFailed, or std::runtime_error for wrong values.
  void check_that_all_works();

  // `a` has the units u0 and u1 with an optimizer, and these:
  std::unique_ptr<Session> a, b;
  meron_plan plan{};
  meron_param loose{};   // in no unit
  meron_param frozen{};  // in the unit "frozen"
  meron_param half{};    // bf16, in the unit "half", which has no optimizer
  meron_unit frozen_unit{}, half_unit{};
  meron_future gather{};      // of `frozen`, full, held
  meron_future future{};      // of a barrier, ended
  meron_future update{};      // of `half`, waited for
  meron_schedule schedule{};  // of the unit "frozen", which is not entered
  meron_io io{};
  meron_future io_request{};    // a write of 64 bytes to io_path, ended
  meron_io_buffer io_buffer{};  // of 4096 bytes
  std::string io_path;
  meron_checkpoint checkpoint{};  // of `a`, loaded
  std::string folder;             // of checkpoints, with one of `a` named "good"

 private:
  std::vector<uint64_t> live_;
  std::vector<uint64_t> stale_;
  std::set<uint64_t> all_;  // every handle that is live, of both contexts
  uint32_t round_ = 0;
};

// One way to call a function wrongly.
struct Misuse {
  std::string name;
  std::vector<meron_status> expected;
  std::function<CallFailed(Objects&, Random&)> make;
};

// Values that no enum has.
int32_t bad_enum(Random& random);
// Names that no object may have.
const std::vector<std::string>& bad_names();

// A gather of a unit, full; an update of one, waited for.
meron_future leased(Session& session, size_t unit);
meron_future updating(Session& session, size_t unit);

// A separate session for one misuse, closed afterwards: a bad handle could match one of its live
// objects by chance.
struct Closing {
  void operator()(Session* session) const {
    (void)meron_context_close(session->context, nullptr);
    delete session;
  }
};
using OwnSession = std::unique_ptr<Session, Closing>;
OwnSession another_session();

// A misuse that draws nothing.
Misuse misuse(std::string name, meron_status expected, std::function<CallFailed(Objects&)> make);

std::vector<Misuse> misuses_of_handles();
std::vector<Misuse> misuses_of_pointers();
std::vector<Misuse> misuses_of_values();
std::vector<Misuse> misuses_of_options();
std::vector<Misuse> misuses_of_plans();
std::vector<Misuse> misuses_of_structs();
std::vector<Misuse> misuses_of_order();
std::vector<Misuse> misuses_of_the_released();
std::vector<Misuse> misuses_of_schedules();
std::vector<Misuse> misuses_of_optimizers();
std::vector<Misuse> misuses_of_io();
std::vector<Misuse> misuses_of_checkpoints();
std::vector<Misuse> misuses_of_tensors();

// DLPack 1.x's exchange struct up to what the tests need.
struct DlpackTensor {
  uint32_t major, minor;
  void* manager;
  void (*deleter)(DlpackTensor*);
  uint64_t flags;
  void* data;
};

}  // namespace meron::test
