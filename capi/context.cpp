// SPDX-License-Identifier: Apache-2.0
#include "meron/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "capi/guard.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

LogSink make_log(const meron_context_options& options) {
  if (options.log != nullptr) {
    return [log = options.log, user = options.log_user](LogLevel level, const std::string& text) {
      const CallbackScope within(Callback::log);
      log(user, static_cast<meron_log_level>(level), text.c_str(), text.size());
    };
  }
  return [](LogLevel level, const std::string& text) {
    if (level != LogLevel::info) std::fprintf(stderr, "meron: %s\n", text.c_str());
  };
}

constexpr meron_transport kNoTransport = MERON_TRANSPORT_INIT;
constexpr meron_allocator kNoAllocator = MERON_ALLOCATOR_INIT;

Result<OpenOptions> translate(const meron_context_options& given) {
  if (given.header_version == 0) {
    return Error(MERON_E_VERSION, "options was not initialized: its header_version is 0",
                 "start from MERON_CONTEXT_OPTIONS_INIT or the init function")
        .on("options");
  }
  // Before 1.0 a minor version may change the ABI; patch versions do not.
  if (given.header_version >> 8 != MERON_VERSION >> 8) {
    return Error(MERON_E_VERSION,
                 fmt::format("the caller was compiled for Meron {}.{}, the library is {}.{}",
                             given.header_version >> 16, given.header_version >> 8 & 0xff,
                             MERON_VERSION_MAJOR, MERON_VERSION_MINOR),
                 "compile against the headers of the library that is loaded");
  }
  if (given.reserved_0 != 0) return unknown_enum("reserved_0", given.reserved_0);
  if (given.rank < -1) return unknown_enum("rank", given.rank);
  if (given.world_size < -1) return unknown_enum("world_size", given.world_size);
  MERON_TRY(check_timeout(given.timeout_ns));
  if (given.threads > 1024) return unknown_enum("threads", given.threads);
  OpenOptions options;
  options.join.rank = given.rank;
  options.join.world_size = given.world_size;
  if (given.transport != nullptr) options.join.transport = given.transport;
  if (given.job != nullptr) options.join.job = given.job;
  if (given.custom != nullptr) {
    MERON_ASSIGN(options.join.custom, read_options(given.custom, kNoTransport, "custom transport"));
    if (options.join.custom->reserved_0 != 0) {
      return unknown_enum("reserved_0", options.join.custom->reserved_0);
    }
  }
  if (given.device != nullptr) options.device = given.device;
  if (given.allocator != nullptr) {
    MERON_ASSIGN(const meron_allocator allocator,
                 read_options(given.allocator, kNoAllocator, "allocator"));
    if (allocator.reserved_0 != 0) return unknown_enum("reserved_0", allocator.reserved_0);
    MERON_TRY(need(reinterpret_cast<const void*>(allocator.allocate), "allocator.allocate"));
    MERON_TRY(need(reinterpret_cast<const void*>(allocator.release), "allocator.release"));
    options.allocator.allocate = [allocator](uint64_t bytes, void* stream) {
      const CallbackScope within(Callback::allocator);
      return allocator.allocate(allocator.user, bytes, stream);
    };
    options.allocator.release = [allocator](void* data, uint64_t bytes, void* stream) {
      const CallbackScope within(Callback::allocator);
      allocator.release(allocator.user, data, bytes, stream);
    };
  }
  options.join.token = given.token;
  options.timeout_ns = std::max<int64_t>(given.timeout_ns, 0);
  options.host_memory_limit = given.host_memory_limit;
  options.arena_reserve = given.arena_reserve;
  options.threads = static_cast<int>(given.threads);
  if (given.plan.id != 0) {
    MERON_ASSIGN(const auto plan, get<PlanHolder>(given.plan));
    options.plan = plan->value;
  } else {
    MERON_ASSIGN(options.plan, preset("zero3"));
  }
  options.log = make_log(given);
  if (given.should_stop != nullptr) {
    options.should_stop = [stop = given.should_stop, user = given.should_stop_user] {
      const CallbackScope within(Callback::should_stop);
      return stop(user) != 0;
    };
  }
  return options;
}

// The close releases all futures, and logs the failures that the user has not seen.
void leave_futures(Context& context) {
  std::vector<std::shared_ptr<Operation>> futures;
  HandleTable::instance().erase_some(&context, [&](const Object& object) {
    if (object.kind == Kind::future) {
      futures.push_back(static_cast<const FutureHolder&>(object).value);
    } else if (object.kind == Kind::gather) {
      futures.push_back(static_cast<const GatherHolder&>(object).value);
    } else if (object.kind == Kind::update) {
      futures.push_back(static_cast<const UpdateHolder&>(object).value);
    }
    return false;
  });
  auto held = context.lock();
  for (const auto& future : futures) {
    if (future && future->error()) context.leave(future);
  }
  futures.clear();  // under the lock, because the last one of an optimizer changes its units
}

constexpr meron_context_options kDefaultOptions = MERON_CONTEXT_OPTIONS_INIT;

}  // namespace

extern "C" {

meron_status meron_allocator_init(meron_allocator* allocator, size_t struct_size,
                                  meron_error** err) {
  return guard("allocator_init", err,
               [&]() -> Status { return init_options(allocator, struct_size, kNoAllocator); });
}

meron_status meron_context_options_init(meron_context_options* options, size_t struct_size,
                                        meron_error** err) {
  return guard("context_options_init", err,
               [&]() -> Status { return init_options(options, struct_size, kDefaultOptions); });
}

meron_status meron_context_open(meron_context* out, const meron_context_options* options,
                                meron_error** err) {
  return guard("context_open", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(check_fork());
    MERON_ASSIGN(const meron_context_options given,
                 read_options(options, kDefaultOptions, "options"));
    MERON_ASSIGN(OpenOptions open, translate(given));
    MERON_ASSIGN(auto context, Context::open(std::move(open)));
    return put<ContextHolder>(out, std::move(context));
  });
}

meron_status meron_context_close(meron_context context, meron_error** err) {
  return guard("context_close", err, [&]() -> Status {
    MERON_ASSIGN(const auto holder, take<ContextHolder>(context));
    leave_futures(*holder->context);
    holder->context->close();
    return Ok{};
  });
}

meron_status meron_context_rank(int32_t* out, meron_context context, meron_error** err) {
  return guard("context_rank", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    *out = holder->context->transport().rank();
    return Ok{};
  });
}

meron_status meron_context_world_size(int32_t* out, meron_context context, meron_error** err) {
  return guard("context_world_size", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    *out = holder->context->transport().world_size();
    return Ok{};
  });
}

meron_status meron_context_transport(const char** out, meron_context context, meron_error** err) {
  return guard("context_transport", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    *out = holder->context->transport().name().data();  // a literal, NUL-terminated
    return Ok{};
  });
}

meron_status meron_context_plan_json(char** out, meron_context context, meron_error** err) {
  return guard("context_plan_json", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    return hand_out(out, to_json(holder->context->rank().plan, 2));
  });
}

meron_status meron_context_progress(meron_context context, meron_error** err) {
  return guard("context_progress", err, [&](int& rank) -> Status {
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    holder->context->clear_event();
    return holder->context->progress();
  });
}

meron_status meron_context_event_fd(int32_t* out, meron_context context, meron_error** err) {
  return guard("context_event_fd", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    MERON_ASSIGN(*out, holder->context->event_descriptor());
    return Ok{};
  });
}

meron_status meron_context_stats(meron_stats* out, meron_context context, meron_error** err) {
  return guard("context_stats", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    Rank& own = holder->context->rank();
    const Arena& arena = own.arena();
    meron_stats stats{};
    stats.gather_mapped_bytes = own.counters.gather_mapped.load();
    stats.gather_copied_bytes = own.counters.gather_copied.load();
    stats.reduce_bytes = own.counters.reduced.load();
    stats.collective_bytes = own.counters.collective.load();
    stats.operations = own.counters.operations.load();
    stats.wait_ns = own.counters.wait_ns.load();
    stats.param_bytes = arena.usage(MemoryKind::param);
    stats.gradient_bytes = arena.usage(MemoryKind::gradient);
    stats.optimizer_bytes = arena.usage(MemoryKind::optimizer);
    stats.staging_bytes = arena.usage(MemoryKind::staging);
    stats.control_bytes = holder->context->control_bytes();
    stats.peak_bytes = arena.total_peak();
    stats.arena_pages_bytes = arena.file().allocated_bytes();
    stats.inter_node_gather_bytes = own.counters.inter_node_gather.load();
    stats.inter_node_reduce_bytes = own.counters.inter_node_reduce.load();
    stats.nvme_read_bytes = own.counters.nvme.read.load();
    stats.nvme_written_bytes = own.counters.nvme.written.load();
    stats.nvme_bytes = own.counters.nvme.held.load();
    stats.device_up_bytes = own.counters.device.up.load();
    stats.device_down_bytes = own.counters.device.down.load();
    stats.device_bytes = own.counters.device.held.load();
    return write_info(out, stats, "out");
  });
}

meron_status meron_context_predict(meron_prediction* out, meron_context context,
                                   const meron_workload* workload, meron_error** err) {
  return guard("context_predict", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    const meron_workload defaults = MERON_WORKLOAD_INIT;
    MERON_ASSIGN(const meron_workload given, read_options(workload, defaults, "workload"));
    auto held = holder->context->lock();
    Workload load;
    load.micro_batches = given.micro_batches;
    load.gathers_per_micro_batch = given.gathers_per_micro_batch;
    MERON_ASSIGN(const RankPrediction own, holder->context->predict(held, load));

    meron_prediction result{};
    result.param_bytes = own.memory.param;
    result.gradient_bytes = own.memory.gradient();
    result.optimizer_bytes = own.memory.optimizer();
    result.peak_bytes = own.memory.total();
    result.gather_mapped_bytes = own.links.gather_mapped;
    result.gather_copied_bytes = own.links.gather_copied;
    result.reduce_bytes = own.links.reduce;
    result.secondary_partition_bytes = own.memory.secondary_partition;
    result.inter_node_gather_bytes = own.links.inter_node_gather;
    result.inter_node_reduce_bytes = own.links.inter_node_reduce;
    result.nvme_read_bytes = own.nvme.read;
    result.nvme_written_bytes = own.nvme.written;
    result.nvme_bytes = own.nvme.total();
    result.device_bytes = own.device.total();
    return write_info(out, result, "out");
  });
}

meron_status meron_context_flight_record(char** out, meron_context context, meron_error** err) {
  return guard("context_flight_record", err, [&](int& rank) -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<ContextHolder>(context, rank));
    return hand_out(out, flight_record_json(holder->context->world()));
  });
}

}  // extern "C"
