// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "operations.h"

namespace conformance {
namespace {

using Buffer = Owned<meron_io_buffer, meron_io_buffer_release>;

struct Request : Object {
  // Before its memory goes.
  ~Request() override { (void)!meron_future_wait(owned->handle, MERON_TIMEOUT_DEFAULT, nullptr); }
  void release() override { owned->release(); }
  std::vector<std::byte> own;
  std::byte* data = nullptr;
  std::unique_ptr<Owned<meron_future, meron_future_release>> owned;
};

// A file of the case, which goes with the session.
struct File : Object {
  explicit File(std::string path_in) : path(std::move(path_in)) { std::remove(path.c_str()); }
  ~File() override { std::remove(path.c_str()); }
  void release() override {}
  const std::string path;
};

std::string path_of(Session& session, const Statement& statement) {
  const char* folder = std::getenv("TMPDIR");
  return std::string(folder != nullptr ? folder : "/tmp") + "/meron-" + std::to_string(::getpid()) +
         "-" + session.name + "-" + std::to_string(session.setup.rank) + "-" +
         statement.get("file");
}

std::string use_file(Session& session, const Statement& statement) {
  const std::string path = path_of(session, statement);
  const std::string name = "file " + path;
  if (!session.has(name)) session.keep(name, std::make_unique<File>(path));
  return path;
}

meron_io_info io_info_of(meron_io io) {
  meron_io_info info{};
  info.struct_size = sizeof info;
  call(meron_io_get_info, &info, io);
  return info;
}

void io(Session& session, const Statement& statement) {
  meron_io_options options{};
  call(meron_io_options_init, &options, sizeof options);
  const std::string backend = statement.get("backend", "auto");
  options.backend = backend == "threads"    ? MERON_IO_BACKEND_THREADS
                    : backend == "io_uring" ? MERON_IO_BACKEND_URING
                                            : MERON_IO_BACKEND_AUTO;
  options.block_bytes = static_cast<uint32_t>(statement.number("block", options.block_bytes));
  options.depth = static_cast<uint32_t>(statement.number("depth", options.depth));
  options.threads = static_cast<uint32_t>(statement.number("threads", options.threads));
  meron_io made{};
  call(meron_io_open, &made, static_cast<const meron_io_options*>(&options));
  session.keep(statement.name, std::make_unique<Io>(made));
}

void io_is(Session& session, const Statement& statement) {
  const meron_io io = session.find<Io>(statement.name).handle;
  const meron_io_info info = io_info_of(io);
  const std::pair<const char*, uint64_t> fields[] = {{"block", info.block_bytes},
                                                     {"depth", info.depth},
                                                     {"threads", info.threads},
                                                     {"requests", info.requests},
                                                     {"pending", info.pending},
                                                     {"bytes_read", info.bytes_read},
                                                     {"bytes_written", info.bytes_written},
                                                     {"buffer_bytes", info.buffer_bytes}};
  for (const auto& [name, value] : fields) {
    const auto seen = static_cast<double>(value);
    check_equal(name, seen, statement.number(name, seen));
  }
  char* text = nullptr;
  call(meron_io_describe, &text, io);
  const std::string description = text;
  meron_string_free(text);
  check_has(description, statement);
}

// Arguments of a transfer.
struct Part {
  Part(Session& session, const Statement& statement, bool write)
      : path(use_file(session, statement)),
        dtype(dtype_of(statement.get("dtype"))),
        count(static_cast<uint64_t>(to_integer(statement.get("count")))),
        offset(static_cast<uint64_t>(statement.number("offset", 0))) {
    bytes = count * meron_dtype_size(dtype);
    own.resize(bytes);
    if (write) own = stored(session.values(statement.get("with")), dtype, count);
    data = own.data();
    if (!statement.has("buffer")) return;
    meron_io_buffer_info info{};
    info.struct_size = sizeof info;
    call(meron_io_buffer_get_info, &info, session.find<Buffer>(statement.get("buffer")).handle);
    check(info.bytes >= bytes, "the buffer is too small");
    std::memcpy(info.data, own.data(), bytes);
    data = static_cast<std::byte*>(info.data);
  }
  const std::string path;
  const meron_dtype dtype;
  const uint64_t count, offset;
  uint64_t bytes = 0;
  std::vector<std::byte> own;
  std::byte* data = nullptr;
};

void io_write(Session& session, const Statement& statement) {
  const Part part(session, statement, true);
  call(meron_io_write, session.find<Io>(statement.name).handle, part.path.c_str(),
       static_cast<const void*>(part.data), part.bytes, part.offset);
}

void io_read(Session& session, const Statement& statement) {
  const Part part(session, statement, false);
  call(meron_io_read, session.find<Io>(statement.name).handle, part.path.c_str(),
       static_cast<void*>(part.data), part.bytes, part.offset);
  session.check_data(statement, part.dtype, part.data, part.count);
}

void begin(Session& session, const Statement& statement, bool write) {
  Part part(session, statement, write);
  const meron_io io = session.find<Io>(statement.get("io")).handle;
  meron_future made{};
  if (write) {
    call(meron_io_write_begin, &made, io, part.path.c_str(), static_cast<const void*>(part.data),
         part.bytes, part.offset);
  } else {
    call(meron_io_read_begin, &made, io, part.path.c_str(), static_cast<void*>(part.data),
         part.bytes, part.offset);
  }
  auto request = std::make_unique<Request>();
  request->owned = std::make_unique<Owned<meron_future, meron_future_release>>(made);
  request->data = part.data;
  request->own = std::move(part.own);  // where its elements are stays the same
  session.keep(statement.name, std::move(request));
}

void io_read_begin(Session& session, const Statement& statement) {
  begin(session, statement, false);
}
void io_write_begin(Session& session, const Statement& statement) {
  begin(session, statement, true);
}

void io_data(Session& session, const Statement& statement) {
  session.check_data(statement, dtype_of(statement.get("dtype")),
                     session.find<Request>(statement.name).data,
                     static_cast<uint64_t>(to_integer(statement.get("count"))));
}

void io_wait(Session& session, const Statement& statement) {
  call(meron_io_wait, session.find<Io>(statement.name).handle, timeout_of(statement));
}

void io_request_wait(Session& session, const Statement& statement) {
  call(meron_future_wait, session.find<Request>(statement.name).owned->handle,
       timeout_of(statement));
}

void io_buffer(Session& session, const Statement& statement) {
  meron_io_buffer made{};
  const auto bytes = static_cast<uint64_t>(to_integer(statement.get("bytes")));
  call(meron_io_buffer_create, &made, session.find<Io>(statement.get("io")).handle, bytes);
  session.keep(statement.name, std::make_unique<Buffer>(made));
  meron_io_buffer_info info{};
  info.struct_size = sizeof info;
  call(meron_io_buffer_get_info, &info, made);
  check_equal("the buffer's bytes", static_cast<double>(info.bytes), static_cast<double>(bytes));
  check(reinterpret_cast<uintptr_t>(info.data) % 4096 == 0, "it does not begin at a page");
  const auto* const first = static_cast<const std::byte*>(info.data);
  check(std::all_of(first, first + bytes, [](std::byte b) { return b == std::byte{0}; }),
        "the buffer is not 0");
}

}  // namespace

Operations io_operations() {
  return {{"io", io},
          {"io_is", io_is},
          {"io_write", io_write},
          {"io_read", io_read},
          {"io_write_begin", io_write_begin},
          {"io_read_begin", io_read_begin},
          {"io_data", io_data},
          {"io_wait", io_wait},
          {"io_request_wait", io_request_wait},
          {"io_buffer", io_buffer}};
}

}  // namespace conformance
