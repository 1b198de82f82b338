// SPDX-License-Identifier: Apache-2.0
#include "meron/io.h"

#include <fmt/format.h>

#include "capi/call.h"
#include "capi/future_kinds.h"
#include "capi/objects.h"
#include "io/file_io.h"

using namespace meron;        // NOLINT: this file is the C side of that namespace
using namespace meron::capi;  // NOLINT

namespace {

constexpr int64_t kDefaultTimeoutNs = 600'000'000'000;

using IoHolder = Holder<Kind::io, std::shared_ptr<FileIo>>;
using IoBufferHolder = Holder<Kind::io_buffer, std::shared_ptr<IoMemory>>;

// A request keeps what it was begun with: a wait needs that, also after its handle is stale.
struct BegunRequest {
  std::shared_ptr<FileIo> io;
  std::shared_ptr<IoRequest> request;
};
using IoRequestHolder = Holder<Kind::io_request, BegunRequest>;

Status check_flag(uint32_t value, const char* name) {
  if (value > 1) return unknown_enum(name, value);
  return Ok{};
}

Result<IoOptions> translate(const meron_io_options& given) {
  IoOptions options;
  switch (given.backend) {
    case MERON_IO_BACKEND_AUTO:
      options.backend = IoOptions::Backend::automatic;
      break;
    case MERON_IO_BACKEND_URING:
      options.backend = IoOptions::Backend::uring;
      break;
    case MERON_IO_BACKEND_THREADS:
      options.backend = IoOptions::Backend::threads;
      break;
    default:
      return unknown_enum("options.backend", given.backend);
  }
  MERON_TRY(check_flag(given.single_submit, "options.single_submit"));
  MERON_TRY(check_flag(given.overlap_events, "options.overlap_events"));
  if (given.reserved_0 != 0) return unknown_enum("options.reserved_0", given.reserved_0);
  MERON_TRY(check_timeout(given.timeout_ns));
  if (given.block_bytes == 0) {
    return Error(MERON_E_ARGUMENT, "options.block_bytes is 0",
                 "start from MERON_IO_OPTIONS_INIT, or give a multiple of 4096")
        .on("options.block_bytes");
  }
  options.block = given.block_bytes;
  options.depth = given.depth;
  // A value out of range for an int is out of range for the engine, too.
  options.threads = given.threads > INT32_MAX ? INT32_MAX : static_cast<int>(given.threads);
  options.single_submit = given.single_submit == 1;
  options.overlap_events = given.overlap_events == 1;
  return options;
}

Status check_transfer(const char* path, const void* data, uint64_t bytes) {
  MERON_TRY(need(path, "path"));
  if (*path == '\0') {
    return Error(MERON_E_ARGUMENT, "path is empty", "pass the name of a file").on("path");
  }
  return bytes == 0 ? Status(Ok{}) : need(data, "data");
}

Result<BegunRequest> begin_read(meron_io io, const char* path, void* data, uint64_t bytes,
                                uint64_t offset) {
  MERON_TRY(check_transfer(path, data, bytes));
  MERON_ASSIGN(const auto holder, get<IoHolder>(io));
  MERON_ASSIGN(auto request,
               holder->value->read(path, offset, static_cast<std::byte*>(data), bytes));
  return BegunRequest{holder->value, std::move(request)};
}

Result<BegunRequest> begin_write(meron_io io, const char* path, const void* data, uint64_t bytes,
                                 uint64_t offset) {
  MERON_TRY(check_transfer(path, data, bytes));
  MERON_ASSIGN(const auto holder, get<IoHolder>(io));
  MERON_ASSIGN(auto request,
               holder->value->write(path, offset, static_cast<const std::byte*>(data), bytes));
  return BegunRequest{holder->value, std::move(request)};
}

Status finish(const BegunRequest& begun) {
  MERON_TRY(begun.io->wait(begun.request, MERON_TIMEOUT_DEFAULT));
  return Ok{};
}

// Begins a request by `begin` and returns its future. The future is created first, so that a
// pending request in the caller's memory is never lost for lack of memory for a handle.
template <class Begin>
Status hand_out_request(meron_future* out, const Begin& begin) {
  MERON_TRY(need(out, "out"));
  const auto holder = std::make_shared<IoRequestHolder>(nullptr, BegunRequest{});
  HandleTable& table = HandleTable::instance();
  MERON_ASSIGN(const uint64_t id, table.insert(holder));
  try {
    Result<BegunRequest> begun = begin();
    if (begun.ok()) {
      holder->value = *std::move(begun);
      out->id = id;
      return Ok{};
    }
    (void)table.erase(id, IoRequestHolder::kKind);
    return std::move(begun).error();
  } catch (...) {
    (void)table.erase(id, IoRequestHolder::kKind);
    throw;
  }
}

}  // namespace

extern "C" {

meron_status meron_io_options_init(meron_io_options* options, size_t struct_size,
                                   meron_error** err) {
  return guard("io_options_init", err, [&]() -> Status {
    const meron_io_options initial = MERON_IO_OPTIONS_INIT;
    return init_options(options, struct_size, initial);
  });
}

meron_status meron_io_open(meron_io* out, const meron_io_options* options, meron_error** err) {
  return guard("io_open", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_TRY(check_fork());
    const meron_io_options defaults = MERON_IO_OPTIONS_INIT;
    MERON_ASSIGN(const meron_io_options given, read_options(options, defaults, "options"));
    MERON_ASSIGN(const IoOptions translated, translate(given));
    MERON_ASSIGN(auto io, FileIo::open(translated, given.timeout_ns > 0 ? given.timeout_ns
                                                                        : kDefaultTimeoutNs));
    return put<IoHolder>(out, nullptr, std::move(io));
  });
}

meron_status meron_io_read(meron_io io, const char* path, void* data, uint64_t bytes,
                           uint64_t offset, meron_error** err) {
  return guard("io_read", err, [&]() -> Status {
    MERON_ASSIGN(const BegunRequest begun, begin_read(io, path, data, bytes, offset));
    return finish(begun);
  });
}

meron_status meron_io_write(meron_io io, const char* path, const void* data, uint64_t bytes,
                            uint64_t offset, meron_error** err) {
  return guard("io_write", err, [&]() -> Status {
    MERON_ASSIGN(const BegunRequest begun, begin_write(io, path, data, bytes, offset));
    return finish(begun);
  });
}

meron_status meron_io_read_begin(meron_future* out, meron_io io, const char* path, void* data,
                                 uint64_t bytes, uint64_t offset, meron_error** err) {
  return guard("io_read_begin", err, [&]() -> Status {
    return hand_out_request(out, [&] { return begin_read(io, path, data, bytes, offset); });
  });
}

meron_status meron_io_write_begin(meron_future* out, meron_io io, const char* path,
                                  const void* data, uint64_t bytes, uint64_t offset,
                                  meron_error** err) {
  return guard("io_write_begin", err, [&]() -> Status {
    return hand_out_request(out, [&] { return begin_write(io, path, data, bytes, offset); });
  });
}

meron_status meron_io_wait(meron_io io, int64_t timeout_ns, meron_error** err) {
  return guard("io_wait", err, [&]() -> Result<meron_status> {
    MERON_ASSIGN(const auto holder, get<IoHolder>(io));
    MERON_TRY(check_timeout(timeout_ns));
    return progress_status(holder->value->wait_all(timeout_ns));
  });
}

meron_status meron_io_get_info(meron_io_info* out, meron_io io, meron_error** err) {
  return guard("io_get_info", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<IoHolder>(io));
    MERON_ASSIGN(const FileIo::Info found, holder->value->info());
    meron_io_info info{};
    info.backend = found.options.backend == IoOptions::Backend::uring ? MERON_IO_BACKEND_URING
                                                                      : MERON_IO_BACKEND_THREADS;
    info.block_bytes = found.options.block;
    info.depth = found.options.depth;
    info.threads = static_cast<uint32_t>(found.options.threads);
    info.single_submit = found.options.single_submit ? 1 : 0;
    info.overlap_events = found.options.overlap_events ? 1 : 0;
    info.bytes_read = found.counters.bytes_read;
    info.bytes_written = found.counters.bytes_written;
    info.calls = found.counters.requests;
    info.direct_calls = found.counters.direct_requests;
    info.requests = found.requests;
    info.pending = found.pending;
    info.buffer_bytes = found.memory_bytes;
    return write_info(out, info, "out");
  });
}

meron_status meron_io_describe(char** out, meron_io io, meron_error** err) {
  return guard("io_describe", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<IoHolder>(io));
    MERON_ASSIGN(const std::string text, holder->value->describe());
    return hand_out(out, text);
  });
}

meron_status meron_io_close(meron_io io, meron_error** err) {
  return guard("io_close", err, [&]() -> Status {
    MERON_ASSIGN(const auto holder, take<IoHolder>(io));
    return holder->value->close();
  });
}

meron_status meron_io_buffer_create(meron_io_buffer* out, meron_io io, uint64_t bytes,
                                    meron_error** err) {
  return guard("io_buffer_create", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<IoHolder>(io));
    MERON_ASSIGN(auto memory, holder->value->allocate(bytes));
    return put<IoBufferHolder>(out, nullptr, std::move(memory));
  });
}

meron_status meron_io_buffer_get_info(meron_io_buffer_info* out, meron_io_buffer buffer,
                                      meron_error** err) {
  return guard("io_buffer_get_info", err, [&]() -> Status {
    MERON_TRY(need(out, "out"));
    MERON_ASSIGN(const auto holder, get<IoBufferHolder>(buffer));
    meron_io_buffer_info info{};
    info.registered = holder->value->registered() ? 1 : 0;
    info.bytes = holder->value->bytes();
    info.data = holder->value->data();
    return write_info(out, info, "out");
  });
}

meron_status meron_io_buffer_release(meron_io_buffer buffer, meron_error** err) {
  return guard("io_buffer_release", err, [&]() -> Status {
    MERON_TRY(take<IoBufferHolder>(buffer));
    return Ok{};
  });
}

}  // extern "C"

namespace meron::capi {

Result<bool> await_io_request(meron_future future, int64_t timeout_ns, bool, int&) {
  MERON_ASSIGN(const auto holder, get<IoRequestHolder>(future));
  return holder->value.io->wait(holder->value.request, timeout_ns);
}

Status release_io_request(meron_future future, int&) {
  MERON_TRY(take<IoRequestHolder>(future));
  return Ok{};
}

}  // namespace meron::capi
