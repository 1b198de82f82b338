// SPDX-License-Identifier: Apache-2.0
// meron/cpp/context.hpp: the context: this rank's engine, which creates all other objects.
#ifndef MERON_CPP_CONTEXT_HPP
#define MERON_CPP_CONTEXT_HPP

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "meron/context.h"
#include "meron/cpp/device.hpp"
#include "meron/cpp/group.hpp"
#include "meron/cpp/methods.hpp"
#include "meron/cpp/param.hpp"
#include "meron/cpp/plan.hpp"
#include "meron/cpp/shape.hpp"
#include "meron/cpp/transport.hpp"
#include "meron/cpp/values.hpp"

namespace meron {
inline namespace MERON_CPP_NAMESPACE {
namespace detail {

class ContextHandle : public Handle<meron_context, meron_context_close> {
 public:
  using Handle::Handle;
};

}  // namespace detail

// Options of a context.
struct ContextOptions {
  int32_t rank = -1;        // -1: from the environment (meron run, torchrun, Slurm, Open MPI)
  int32_t world_size = -1;  // -1: from the environment; without one: 1
  std::string transport;  // "self", "local", "shm", "mpi", "custom", "cluster"; empty: chosen from
                          // the other options
  std::string job;        // local: ranks of one process with an equal job meet
  std::string token;      // shm: 64 hexadecimal digits, the same on all ranks; empty: from the
                          // environment
  std::chrono::nanoseconds timeout{0};  // deadline of every operation; 0: 600 s
  uint64_t host_memory_limit = 0;       // bytes that this rank may allocate; 0: the host's
  uint64_t arena_reserve = 0;           // bytes of address space, twice per window; 0: host memory
  uint32_t threads = 0;                 // for compute on this rank; 0: cores / ranks on this host
  const Plan* plan = nullptr;           // null: "zero3"
  // The device of this rank: "cuda" (the calling thread's current device), "cuda:1"; "emulated":
  // memory of the host and threads, for tests without a device. Empty: the host. Views of gathers
  // are then in the device's memory, and gradients may be.
  std::string device;
  // Allocator of the device's memory. It outlives the context and the context's DLPack tensors.
  // Null: a pool of Meron's own.
  DeviceAllocator* allocator = nullptr;

  // Receives log messages; without it warnings and errors go to stderr. Called from any thread that
  // is inside a call. It may only look and release: see the rule of callbacks in meron/meron.h. Its
  // exceptions are dropped, because no call has failed.
  std::function<void(LogLevel, std::string_view)> log;
  // Called about ten times a second while a call waits: true, or an exception, ends the wait with
  // MERON_E_CANCELLED, whose cause() is the exception. The operation continues. It may only look
  // and release: see the rule of callbacks in meron/meron.h.
  std::function<bool()> should_stop;
  // Moves the bytes for the transport "custom", and between hosts for "cluster". The context keeps
  // it alive.
  std::shared_ptr<Transport> custom;
};

// This rank's engine. The destructor closes it; all its objects throw MERON_E_STALE from then on,
// and views are invalid.
//
// Destroy it only when no thread is inside a call on it or on one of its objects, because log and
// should_stop are destroyed with it. To end such calls first, close it, and join those threads.
class Context : public detail::ContextMethods<Context> {
 public:
  // Holds nothing; calls on it throw MERON_E_HANDLE.
  Context(std::nullptr_t) noexcept {}
  Context(int) = delete;  // 0 is a null pointer too, but seldom meant so
  // Opens this rank's context and connects it to the other ranks. Blocks until all have arrived, at
  // most the deadline.
  explicit Context(ContextOptions options = {});
  Context(Context&&) noexcept = default;
  Context& operator=(Context&& other) noexcept {
    Context taken(std::move(other));
    std::swap(callbacks_, taken.callbacks_);
    std::swap(handle_, taken.handle_);
    return *this;
  }
  ~Context() = default;

  meron_context handle() const noexcept { return handle_.handle(); }
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  friend bool operator==(const Context& a, const Context& b) noexcept {
    return a.handle_ == b.handle_;
  }
  friend bool operator!=(const Context& a, const Context& b) noexcept { return !(a == b); }

  // Ends pending operations and waits of other threads, and makes all handles stale. Does not wait
  // for peers. Other threads may be inside calls on the context meanwhile. Throws MERON_E_STALE if
  // it is already closed.
  void close() { detail::call(meron_context_close, handle()); }

  // Counters since the context was opened, and the memory in use now, in bytes.
  meron_stats stats() const {
    return detail::receive_info<meron_stats>(meron_context_stats, handle());
  }
  // Predicted memory and traffic of this rank, from the plan and the current units, in bytes.
  meron_prediction predict(const Workload& workload = {}) const {
    const meron_workload raw = workload.raw();
    return detail::receive_info<meron_prediction>(meron_context_predict, handle(), &raw);
  }
  // The group of all ranks.
  Group world() const { return Group(adopt, detail::receive(meron_context_world, handle())); }
  // The group of some world ranks, in this order. Collective over the world: every rank calls it
  // with the same list. False as a condition on ranks outside of the list.
  Group group(Span<const int32_t> ranks) const {
    return Group(adopt, detail::receive(meron_group_create, handle(), ranks.data(), ranks.size()));
  }
  Group group(std::initializer_list<int32_t> ranks) const {
    return group(Span<const int32_t>(ranks.begin(), ranks.size()));
  }

  // Registers a param of a shape, row-major; an empty shape is a scalar. Collective over its group:
  // all ranks register the same params in the same order.
  Param param(const Text& name, const Shape& shape, const ParamOptions& options = {}) const {
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.dtype = static_cast<meron_dtype>(options.dtype);
    desc.name = name.c_str();
    desc.shape = shape.data();
    desc.dims = shape.dims();
    desc.frozen = options.frozen ? 1 : 0;
    if (options.group != nullptr) desc.group = options.group->handle();
    return Param(adopt, detail::receive(meron_param_register, handle(), &desc));
  }

  // Creates a unit of params and reserves its memory on this rank according to the plan; values are
  // zero at first. Collective over the params' group.
  Unit unit(const Text& name, const ParamList& params) const {
    return Unit(adopt, detail::receive(meron_unit_create, handle(), name.c_str(), params.data(),
                                       params.size()));
  }

 private:
  // Callbacks of the library while the context is open. Their address does not change.
  struct Callbacks {
    std::function<void(LogLevel, std::string_view)> log;
    std::function<bool()> should_stop;
    std::shared_ptr<Transport> custom;

    static void receive_log(void* user, meron_log_level level, const char* message,
                            size_t length) noexcept {
      detail::guarded(
          [=] {
            static_cast<Callbacks*>(user)->log(static_cast<LogLevel>(level), {message, length});
          },
          [] {});  // as documented: the exception belongs to no call
    }
    static int32_t ask(void* user) noexcept {
      return detail::guarded([=] { return static_cast<Callbacks*>(user)->should_stop() ? 1 : 0; },
                             [] {
                               detail::thrown_by_callback() = std::current_exception();
                               return 1;
                             });
    }
  };

  std::unique_ptr<Callbacks> callbacks_;  // outlives the handle: it is declared first
  detail::ContextHandle handle_;
};

inline Context::Context(ContextOptions options) {
  meron_context_options raw = MERON_CONTEXT_OPTIONS_INIT;
  raw.rank = options.rank;
  raw.world_size = options.world_size;
  raw.transport = detail::optional_text(options.transport);
  raw.job = detail::optional_text(options.job);
  raw.token = detail::optional_text(options.token);
  raw.device = detail::optional_text(options.device);
  raw.timeout_ns = options.timeout.count();
  raw.host_memory_limit = options.host_memory_limit;
  raw.arena_reserve = options.arena_reserve;
  raw.threads = options.threads;
  if (options.plan != nullptr) raw.plan = options.plan->handle();

  callbacks_ = detail::with_memory([] { return std::make_unique<Callbacks>(); });
  callbacks_->log = std::move(options.log);
  callbacks_->should_stop = std::move(options.should_stop);
  callbacks_->custom = std::move(options.custom);
  if (callbacks_->log) {
    raw.log = Callbacks::receive_log;
    raw.log_user = callbacks_.get();
  }
  if (callbacks_->should_stop) {
    raw.should_stop = Callbacks::ask;
    raw.should_stop_user = callbacks_.get();
  }
  meron_transport table = MERON_TRANSPORT_INIT;
  if (callbacks_->custom) {
    table = detail::table_of(*callbacks_->custom);
    raw.custom = &table;
  }
  meron_allocator allocator = MERON_ALLOCATOR_INIT;
  if (options.allocator != nullptr) {
    allocator = detail::table_of(*options.allocator);
    raw.allocator = &allocator;
  }
  handle_ = detail::ContextHandle(
      adopt, detail::receive(meron_context_open, static_cast<const meron_context_options*>(&raw)));
}

}  // namespace MERON_CPP_NAMESPACE
}  // namespace meron

template <>
struct std::hash<meron::Context> : meron::detail::HandleHash {};

#endif  // MERON_CPP_CONTEXT_HPP
