// SPDX-License-Identifier: Apache-2.0
// meron/cpp/group.hpp: groups of ranks, and collectives on plain memory.
#ifndef MERON_CPP_GROUP_HPP
#define MERON_CPP_GROUP_HPP

#include <type_traits>

#include "meron/cpp/base.hpp"
#include "meron/cpp/dtype.hpp"
#include "meron/cpp/future.hpp"
#include "meron/cpp/methods.hpp"
#include "meron/cpp/values.hpp"
#include "meron/group.h"

namespace meron {
inline namespace v1 {

namespace detail {

// The dtype of an all-reduce of T: that of a tensor, or one of numbers that only all_reduce takes.
template <class T>
constexpr DType number_of() {
  using Value = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Value, double>) {
    return DType::f64;
  } else if constexpr (std::is_integral_v<Value> && std::is_signed_v<Value> && sizeof(Value) == 8) {
    return DType::i64;
  } else {
    return dtype_of<Value>;
  }
}

}  // namespace detail

// A handle of a group of ranks. The group itself lives as long as the context.
//
// The memory that broadcast and all_reduce work on must stay valid until the operation has ended:
// until Future::wait returned or threw anything but MERON_E_CANCELLED, or the context was closed.
// That holds for the functions without `_begin` too, when they throw MERON_E_CANCELLED.
class Group : public Handle<meron_group, meron_group_release>, public detail::GroupMethods<Group> {
 public:
  using Handle::Handle;

  // Throws the error that broke the group, if it is broken. Checks if peers are alive.
  void check() const { detail::call(meron_group_status, handle()); }
  // From rank `root` of the group to all. `data` is read there, written elsewhere.
  template <class T>
  [[nodiscard]] Future broadcast_begin(Span<T> data, int32_t root) const {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);
    return Future(detail::receive(meron_broadcast_begin, handle(), static_cast<void*>(data.data()),
                                  data.size_bytes(), root));
  }
  template <class Range>
  void broadcast(Range&& data, int32_t root) const {
    broadcast_begin(Span<std::remove_pointer_t<decltype(data.data())>>(data), root).wait();
  }

  // In place and in rank order: the same bits on every rank. Of f32, bf16, f16, double or int64_t.
  // Sums of 16 bits are in f32. For small arrays.
  template <class T>
  [[nodiscard]] Future all_reduce_begin(Span<T> data, ReduceOp op) const {
    static_assert(!std::is_const_v<T>);
    return Future(detail::receive(meron_all_reduce_begin, handle(), static_cast<void*>(data.data()),
                                  data.size(), static_cast<meron_dtype>(detail::number_of<T>()),
                                  static_cast<meron_reduce_op>(op)));
  }
  template <class Range>
  void all_reduce(Range&& data, ReduceOp op = ReduceOp::sum) const {
    all_reduce_begin(Span<std::remove_pointer_t<decltype(data.data())>>(data), op).wait();
  }
};

}  // namespace v1
}  // namespace meron

#endif  // MERON_CPP_GROUP_HPP
