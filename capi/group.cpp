// SPDX-License-Identifier: Apache-2.0
#include "meron/group.h"

#include <fmt/format.h>

#include "capi/guard.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

static_assert(static_cast<int32_t>(ReduceOp::sum) == MERON_REDUCE_OP_SUM &&
              static_cast<int32_t>(ReduceOp::mean) == MERON_REDUCE_OP_MEAN &&
              static_cast<int32_t>(ReduceOp::max) == MERON_REDUCE_OP_MAX &&
              static_cast<int32_t>(ReduceOp::min) == MERON_REDUCE_OP_MIN);

extern "C" {

meron_status meron_context_world(meron_group* out, meron_context context, meron_error** err) {
  return guard("context_world", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    return put<GroupHolder>(out, holder->context, &holder->context->world());
  });
}

meron_status meron_group_create(meron_group* out, meron_context context, const int32_t* ranks,
                                size_t count, meron_error** err) {
  return guard("group_create", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(need(ranks, "ranks"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    MERON_ASSIGN(auto handle, NewHandle<GroupHolder>::make(holder->context));
    MERON_ASSIGN(Channel* const channel, holder->context->create_group(std::span(ranks, count)));
    if (channel == nullptr) {
      out->id = 0;
      return Ok{};
    }
    handle.issue(out, channel);
    return Ok{};
  });
}

meron_status meron_group_rank(int32_t* out, meron_group group, meron_error** err) {
  return guard("group_rank", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<GroupHolder>(group, rank));
    *out = holder->value->index();
    return Ok{};
  });
}

meron_status meron_group_size(int32_t* out, meron_group group, meron_error** err) {
  return guard("group_size", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<GroupHolder>(group, rank));
    *out = holder->value->size();
    return Ok{};
  });
}

meron_status meron_group_status(meron_group group, meron_error** err) {
  return guard("group_status", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<GroupHolder>(group, rank));
    return holder->context->group_status(*holder->value);
  });
}

meron_status meron_group_abort(meron_group group, const char* reason, meron_error** err) {
  return guard("group_abort", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<GroupHolder>(group, rank));
    auto held = holder->context->lock();
    MERON_TRY(holder->context->check_open());
    const std::string why =
        reason == nullptr ? std::string() : ": " + std::string(reason, strnlen(reason, 200));
    (void)holder->value->fail(Error(MERON_E_ABORTED,
                                    fmt::format("rank {} aborted the group{}", rank, why),
                                    "restart the job, or open another context")
                                  .during("group_abort")
                                  .blaming(rank));
    return Ok{};
  });
}

meron_status meron_barrier_begin(meron_future* out, meron_group group, meron_error** err) {
  return guard("barrier_begin", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<GroupHolder>(group, rank));
    MERON_ASSIGN(auto handle, NewHandle<FutureHolder>::make(holder->context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_ASSIGN(auto barrier, holder->context->barrier(held, *holder->value));
    handle.issue(out, std::move(barrier));
    return Ok{};
  });
}

meron_status meron_broadcast_begin(meron_future* out, meron_group group, void* data, size_t bytes,
                                   int32_t root, meron_error** err) {
  return guard("broadcast_begin", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    if (bytes > 0) MERON_TRY(need(data, "data"));
    MERON_ASSIGN(const auto holder, get<GroupHolder>(group, rank));
    MERON_ASSIGN(auto handle, NewHandle<FutureHolder>::make(holder->context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_ASSIGN(auto broadcast,
                 holder->context->broadcast(held, *holder->value, static_cast<std::byte*>(data),
                                            bytes, root));
    handle.issue(out, std::move(broadcast));
    return Ok{};
  });
}

meron_status meron_all_reduce_begin(meron_future* out, meron_group group, void* data, size_t count,
                                    meron_dtype dtype, meron_reduce_op op, meron_error** err) {
  return guard("all_reduce_begin", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    if (count > 0) MERON_TRY(need(data, "data"));
    if (dtype < MERON_F32 || dtype > MERON_I64) return unknown_enum("dtype", dtype);
    if (op < MERON_REDUCE_OP_SUM || op > MERON_REDUCE_OP_MIN) return unknown_enum("op", op);
    if (dtype == MERON_I64 && op == MERON_REDUCE_OP_MEAN) {
      return Error(MERON_E_ARGUMENT, "a mean of i64 is no integer", "reduce the sum, and divide it")
          .on("op");
    }
    if (count > SIZE_MAX / 8) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("{} elements are more than any memory holds", count),
                   "pass the number of elements");
    }
    MERON_ASSIGN(const auto holder, get<GroupHolder>(group, rank));
    MERON_ASSIGN(auto handle, NewHandle<FutureHolder>::make(holder->context));
    MERON_ASSIGN([[maybe_unused]] const Turn turn, holder->context->turn());
    auto held = holder->context->lock();
    MERON_ASSIGN(auto all_reduce, holder->context->all_reduce(
                                      held, *holder->value, static_cast<std::byte*>(data), count,
                                      static_cast<NumberType>(dtype), static_cast<ReduceOp>(op)));
    handle.issue(out, std::move(all_reduce));
    return Ok{};
  });
}

meron_status meron_group_release(meron_group group, meron_error** err) {
  return guard("group_release", err, [&]() -> Status {
    MERON_TRY(take<GroupHolder>(group));
    return Ok{};
  });
}

}  // extern "C"
