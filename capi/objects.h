// SPDX-License-Identifier: Apache-2.0
// Handles of the C ABI become objects, and objects handles.
#pragma once

#include <memory>
#include <utility>

#include "base/handles.h"
#include "base/result.h"
#include "meron/base.h"
#include "os/fork_guard.h"

namespace meron::capi {

// An object in the handle table.
template <Kind K, class T>
struct Holder final : Object {
  static constexpr Kind kKind = K;
  Holder(std::shared_ptr<Context> context_in, T value_in)
      : Object(K, std::move(context_in)), value(std::move(value_in)) {}
  T value;
};

inline Status check_fork() {
  if (!is_forked_child()) return Ok{};
  return Error(
      MERON_E_FORKED, "this process is a fork of one that used Meron",
      "use Meron in one of the two only: fork before the first call, or start the child by "
      "exec or spawn");
}

template <class H, class Handle>
Result<std::shared_ptr<H>> get(Handle handle) {
  if constexpr (H::kKind != Kind::plan) MERON_TRY(check_fork());
  auto object = HandleTable::instance().find(handle.id, H::kKind);
  if (!object.ok()) return std::move(object).error();
  return std::static_pointer_cast<H>(std::move(*object));
}

// The object, and the handle is stale from now on.
template <class H, class Handle>
Result<std::shared_ptr<H>> take(Handle handle) {
  if constexpr (H::kKind != Kind::plan) MERON_TRY(check_fork());
  auto object = HandleTable::instance().erase(handle.id, H::kKind);
  if (!object.ok()) return std::move(object).error();
  return std::static_pointer_cast<H>(std::move(*object));
}

template <class H, class Handle, class... Args>
Status put(Handle* out, Args&&... args) {
  MERON_ASSIGN(out->id,
               HandleTable::instance().insert(std::make_shared<H>(std::forward<Args>(args)...)));
  return Ok{};
}

// A handle whose memory is allocated before its work begins. So issuing it cannot fail, and the
// caller can release all work that has begun.
template <class H>
class NewHandle {
 public:
  static Result<NewHandle> make(std::shared_ptr<Context> context) {
    MERON_ASSIGN(HandleTable::Room room, HandleTable::instance().reserve());
    return NewHandle(std::move(room),
                     std::make_shared<H>(std::move(context), decltype(H::value){}));
  }
  template <class Handle, class T>
  void issue(Handle* out, T&& value) noexcept {
    holder_->value = std::forward<T>(value);
    out->id = room_.issue(std::move(holder_));
  }

 private:
  NewHandle(HandleTable::Room room, std::shared_ptr<H> holder)
      : room_(std::move(room)), holder_(std::move(holder)) {}
  HandleTable::Room room_;
  std::shared_ptr<H> holder_;
};

// MERON_OK or MERON_IN_PROGRESS.
inline Result<meron_status> progress_status(Result<bool> ended) {
  if (!ended.ok()) return std::move(ended).error();
  return *ended ? MERON_OK : MERON_IN_PROGRESS;
}

}  // namespace meron::capi
