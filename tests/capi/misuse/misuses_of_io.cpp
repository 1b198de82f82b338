// SPDX-License-Identifier: Apache-2.0
// Files, ranges and options that mean nothing to an io.
#include "tests/capi/misuse/objects.h"

namespace meron::test {
namespace {

meron_io made;
meron_future request;
meron_io_buffer buffer;
char memory[64];

Misuse option(const char* name, std::function<void(meron_io_options&)> spoil) {
  return misuse(std::string("meron_io_open: ") + name, MERON_E_ARGUMENT,
                [spoil = std::move(spoil)](Objects&) {
                  meron_io_options options = MERON_IO_OPTIONS_INIT;
                  spoil(options);
                  return FAILURE_OF(meron_io_open, &made, &options);
                });
}

// A transfer of every kind.
struct Transfer {
  const char* path;
  void* data;
  uint64_t bytes, offset;
};
void add_transfers(std::vector<Misuse>& all, const char* what, meron_status read,
                   meron_status write, std::function<Transfer(Objects&)> make) {
  const auto add = [&](const char* function, meron_status expected, auto call) {
    if (expected == MERON_OK) return;
    all.push_back(misuse(std::string(function) + ": " + what, expected,
                         [=](Objects& o) { return call(o, make(o)); }));
  };
  add("meron_io_read", read, [](Objects& o, const Transfer& t) {
    return FAILURE_OF(meron_io_read, o.io, t.path, t.data, t.bytes, t.offset);
  });
  add("meron_io_read_begin", read, [](Objects& o, const Transfer& t) {
    return FAILURE_OF(meron_io_read_begin, &request, o.io, t.path, t.data, t.bytes, t.offset);
  });
  add("meron_io_write", write, [](Objects& o, const Transfer& t) {
    return FAILURE_OF(meron_io_write, o.io, t.path, t.data, t.bytes, t.offset);
  });
  add("meron_io_write_begin", write, [](Objects& o, const Transfer& t) {
    return FAILURE_OF(meron_io_write_begin, &request, o.io, t.path, t.data, t.bytes, t.offset);
  });
}

}  // namespace

std::vector<Misuse> misuses_of_io() {
  std::vector<Misuse> all = {
      misuse("meron_io_options_init: null pointer", MERON_E_ARGUMENT,
             [](Objects&) {
               return FAILURE_OF(meron_io_options_init, nullptr, sizeof(meron_io_options));
             }),
      misuse("meron_io_open: null pointer", MERON_E_ARGUMENT,
             [](Objects&) { return FAILURE_OF(meron_io_open, nullptr, nullptr); }),
      misuse("meron_io_read_begin: null pointer", MERON_E_ARGUMENT,
             [](Objects& o) {
               return FAILURE_OF(meron_io_read_begin, nullptr, o.io, o.io_path.c_str(), memory, 1,
                                 0);
             }),
      misuse("meron_io_write_begin: null pointer", MERON_E_ARGUMENT,
             [](Objects& o) {
               return FAILURE_OF(meron_io_write_begin, nullptr, o.io, o.io_path.c_str(), memory, 1,
                                 0);
             }),
      misuse("meron_io_get_info: null pointer", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_io_get_info, nullptr, o.io); }),
      misuse("meron_io_describe: null pointer", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_io_describe, nullptr, o.io); }),
      misuse("meron_io_buffer_create: null pointer", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_io_buffer_create, nullptr, o.io, 1); }),
      misuse("meron_io_buffer_create: no bytes", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_io_buffer_create, &buffer, o.io, 0); }),
      misuse(
          "meron_io_buffer_create: absurd bytes", MERON_E_ARGUMENT,
          [](Objects& o) { return FAILURE_OF(meron_io_buffer_create, &buffer, o.io, UINT64_MAX); }),
      misuse("meron_io_buffer_create: more than a host has", MERON_E_NO_MEMORY,
             [](Objects& o) {
               return FAILURE_OF(meron_io_buffer_create, &buffer, o.io, uint64_t{1} << 46);
             }),
      misuse("meron_io_buffer_get_info: null pointer", MERON_E_ARGUMENT,
             [](Objects& o) { return FAILURE_OF(meron_io_buffer_get_info, nullptr, o.io_buffer); }),
      option("unknown backend", [](meron_io_options& o) { o.backend = 3; }),
      option("no block", [](meron_io_options& o) { o.block_bytes = 0; }),
      option("block", [](meron_io_options& o) { o.block_bytes = 4097; }),
      option("no depth", [](meron_io_options& o) { o.depth = 0; }),
      option("depth", [](meron_io_options& o) { o.depth = UINT32_MAX; }),
      option("no threads", [](meron_io_options& o) { o.threads = 0; }),
      option("threads", [](meron_io_options& o) { o.threads = UINT32_MAX; }),
      option("single_submit", [](meron_io_options& o) { o.single_submit = 2; }),
      option("overlap_events", [](meron_io_options& o) { o.overlap_events = 2; }),
      option("reserved field", [](meron_io_options& o) { o.reserved_0 = 1; }),
      option("timeout", [](meron_io_options& o) { o.timeout_ns = -2; }),
  };
  add_transfers(all, "no path", MERON_E_ARGUMENT, MERON_E_ARGUMENT, [](Objects&) {
    return Transfer{nullptr, memory, 1, 0};
  });
  add_transfers(all, "empty path", MERON_E_ARGUMENT, MERON_E_ARGUMENT, [](Objects&) {
    return Transfer{"", memory, 1, 0};
  });
  add_transfers(all, "no memory", MERON_E_ARGUMENT, MERON_E_ARGUMENT, [](Objects& o) {
    return Transfer{o.io_path.c_str(), nullptr, 1, 0};
  });
  add_transfers(all, "beyond any file", MERON_E_ARGUMENT, MERON_E_ARGUMENT, [](Objects& o) {
    return Transfer{o.io_path.c_str(), memory, 2, UINT64_MAX - 1};
  });
  add_transfers(all, "directory", MERON_E_ARGUMENT, MERON_E_ARGUMENT, [](Objects&) {
    return Transfer{"/", memory, 1, 0};
  });
  add_transfers(all, "device without an end", MERON_E_ARGUMENT, MERON_E_ARGUMENT, [](Objects&) {
    return Transfer{"/dev/zero", memory, 1, 0};
  });
  add_transfers(all, "missing directory", MERON_E_NOT_FOUND, MERON_E_NOT_FOUND, [](Objects&) {
    return Transfer{"/no/such/file", memory, 1, 0};
  });
  add_transfers(all, "beyond the end", MERON_E_IO, MERON_OK, [](Objects& o) {
    return Transfer{o.io_path.c_str(), memory, 2, 63};
  });
  return all;
}

}  // namespace meron::test
