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
inline namespace MERON_CPP_NAMESPACE {

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
  // From rank `root` of the group to all. `data`: a range of plain elements or one of them, read on
  // the root and written elsewhere.
  template <class Memory, detail::Lasting<Memory> = 0>
  [[nodiscard]] Future broadcast_begin(Memory&& data, int32_t root) const {
    using T = detail::ElementOf<Memory>;
    static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>);
    const Span<T> span = detail::memory_of(data);
    return Future(adopt, detail::receive(meron_broadcast_begin, handle(),
                                         static_cast<void*>(span.data()), span.size_bytes(), root));
  }
  template <class Memory, detail::Temporary<Memory> = 0>
  Future broadcast_begin(Memory&& data,
                         int32_t root) const = delete;  // it would write freed memory
  // The same, and waits.
  template <class Memory, detail::Lasting<Memory> = 0>
  void broadcast(Memory&& data, int32_t root) const {
    broadcast_begin(data, root).wait();
  }
  template <class Memory, detail::Temporary<Memory> = 0>
  void broadcast(Memory&& data, int32_t root) const = delete;  // its result would be lost

  // In place and in rank order: the same bits on every rank. Of f32, bf16, f16, double or int64_t,
  // a range or one of them. Sums of 16 bits are in f32. For small arrays.
  template <class Memory, detail::Lasting<Memory> = 0>
  [[nodiscard]] Future all_reduce_begin(Memory&& data, ReduceOp op = ReduceOp::sum) const {
    using T = detail::ElementOf<Memory>;
    static_assert(!std::is_const_v<T>);
    const Span<T> span = detail::memory_of(data);
    return Future(adopt,
                  detail::receive(meron_all_reduce_begin, handle(), static_cast<void*>(span.data()),
                                  span.size(), static_cast<meron_dtype>(detail::number_of<T>()),
                                  static_cast<meron_reduce_op>(op)));
  }
  template <class Memory, detail::Temporary<Memory> = 0>
  Future all_reduce_begin(Memory&& data, ReduceOp op = ReduceOp::sum) const = delete;
  // The same, and waits.
  template <class Memory, detail::Lasting<Memory> = 0>
  void all_reduce(Memory&& data, ReduceOp op = ReduceOp::sum) const {
    all_reduce_begin(data, op).wait();
  }
  template <class Memory, detail::Temporary<Memory> = 0>
  void all_reduce(Memory&& data, ReduceOp op = ReduceOp::sum) const = delete;  // a lost result
};

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

template <>
struct std::hash<meron::Group> : meron::detail::HandleHash {};

#endif  // MERON_CPP_GROUP_HPP
