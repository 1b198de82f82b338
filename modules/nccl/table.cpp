// SPDX-License-Identifier: Apache-2.0
#include "modules/nccl/table.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "modules/nccl/communicator.h"
#include "modules/nccl/failure.h"
#include "modules/nccl/library.h"

namespace meron::nccl {
namespace {

Communicator& communicator_of(void* comm) {
  return *static_cast<Communicator*>(comm);
}

// Exceptions must not leave the module. The only ones that there are: memory, and threads.
template <class Body>
meron_status guarded(meron_backend_failure* failure, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    tell(failure, error.what());
    return MERON_E_NO_MEMORY;
  }
}

meron_status version(meron_collective_library* out, meron_backend_failure* failure) {
  return guarded(failure, [&] {
    const Library* found = nullptr;
    const meron_status status = find_library(&found, failure);
    if (status < 0) return status;
    meron_collective_library library = {};
    library.struct_size = sizeof(library);
    library.version = static_cast<uint32_t>(found->version);
    library.text = found->version_text.c_str();
    library.path = found->path.c_str();
    std::memcpy(out, &library, std::min<size_t>(out->struct_size, sizeof(library)));
    return status;
  });
}

meron_status unique_id(void* id, meron_backend_failure* failure) {
  static_assert(sizeof(UniqueId) == MERON_COLLECTIVE_ID_BYTES);
  return guarded(failure, [&] {
    const Library* found = nullptr;
    const meron_status status = find_library(&found, failure);
    if (status < 0) return status;
    UniqueId made = {};
    const Result result = found->call.GetUniqueId(&made);
    if (result != kSuccess) {
      tell(failure, "ncclGetUniqueId: " + words_of(found->call, result, nullptr), result);
      return status_of(result);
    }
    std::memcpy(id, &made, sizeof(made));
    return status;
  });
}

meron_status check_options(const meron_collective_options& options,
                           meron_backend_failure* failure) {
  if (options.size >= 1 && options.rank >= 0 && options.rank < options.size &&
      options.device_index >= -1 && options.timeout_ms > 0) {
    return MERON_OK;
  }
  tell(failure, "there is no rank " + std::to_string(options.rank) + " of " +
                    std::to_string(options.size) + ", no device " +
                    std::to_string(options.device_index) + ", or no timeout above 0");
  return MERON_E_ARGUMENT;
}

meron_status open(void** out, const void* id, const meron_collective_options* options,
                  meron_backend_failure* failure) {
  return guarded(failure, [&] {
    const Library* found = nullptr;
    if (const meron_status status = find_library(&found, failure); status < 0) return status;
    if (const meron_status status = check_options(*options, failure); status < 0) return status;
    UniqueId copied = {};
    std::memcpy(&copied, id, sizeof(copied));
    auto made = std::make_unique<Communicator>(*found, *options);
    const meron_status status = made->open(copied, options->device_index, failure);
    if (status >= 0) *out = made.release();
    return status;
  });
}

meron_status poll(void* comm, meron_backend_failure* failure) {
  return guarded(failure, [&] { return communicator_of(comm).poll(failure); });
}

meron_status all_gather(void* comm, const void* from, void* to, uint64_t bytes, void* stream,
                        meron_backend_failure* failure) {
  return guarded(
      failure, [&] { return communicator_of(comm).all_gather(from, to, bytes, stream, failure); });
}

meron_status exchange(void* comm, const meron_exchange_piece* pieces, uint64_t count, void* stream,
                      meron_backend_failure* failure) {
  return guarded(failure,
                 [&] { return communicator_of(comm).exchange(pieces, count, stream, failure); });
}

meron_status group_begin(void* comm, meron_backend_failure* failure) {
  return guarded(failure, [&] { return communicator_of(comm).begin_group(failure); });
}

meron_status group_end(void* comm, meron_backend_failure* failure) {
  return guarded(failure, [&] { return communicator_of(comm).end_group(failure); });
}

meron_status register_memory(void** registration, void* comm, void* data, uint64_t bytes,
                             meron_backend_failure* failure) {
  return guarded(failure, [&] {
    return communicator_of(comm).register_memory(registration, data, bytes, failure);
  });
}

meron_status unregister_memory(void* comm, void* registration, meron_backend_failure* failure) {
  return guarded(failure,
                 [&] { return communicator_of(comm).unregister_memory(registration, failure); });
}

meron_status window_open(void** window, void** data, void* comm, uint64_t bytes,
                         meron_backend_failure* failure) {
  return guarded(failure,
                 [&] { return communicator_of(comm).open_window(window, data, bytes, failure); });
}

meron_status window_close(void* comm, void* window, meron_backend_failure* failure) {
  return guarded(failure, [&] { return communicator_of(comm).close_window(window, failure); });
}

meron_status abort(void* const* comms, uint64_t count, meron_backend_failure* failure) {
  return guarded(failure, [&] {
    std::vector<Communicator*> communicators;
    for (uint64_t i = 0; i < count; ++i) communicators.push_back(&communicator_of(comms[i]));
    return Communicator::abort(communicators, failure);
  });
}

meron_status close(void* comm, meron_backend_failure* failure) {
  const std::unique_ptr<Communicator> own(&communicator_of(comm));
  return guarded(failure, [&] { return own->close(failure); });
}

}  // namespace

const meron_collective_table& collective_table() {
  static const meron_collective_table table = {
      .struct_size = sizeof(meron_collective_table),
      .reserved_0 = 0,
      .version = version,
      .unique_id = unique_id,
      .open = open,
      .poll = poll,
      .all_gather = all_gather,
      .exchange = exchange,
      .group_begin = group_begin,
      .group_end = group_end,
      .register_memory = register_memory,
      .unregister_memory = unregister_memory,
      .window_open = window_open,
      .window_close = window_close,
      .abort = abort,
      .close = close,
  };
  return table;
}

}  // namespace meron::nccl
