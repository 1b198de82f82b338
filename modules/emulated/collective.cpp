// SPDX-License-Identifier: Apache-2.0
// The table of collectives: notes what a rank asks for, and hands it to the threads of its streams.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "modules/emulated/device.h"
#include "modules/emulated/machine.h"
#include "modules/emulated/rank.h"
#include "modules/emulated/wire.h"

namespace meron::emulated {
namespace {

// Of an id: the process that made it, its host, and a number that no other has.
constexpr const char* kIdFormat = "emulated %d %llx %llx";

struct Range {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

struct RankHandle {
  std::shared_ptr<Rank> rank;  // shared with the work that is queued on streams
  int32_t size = 0, number = 0, device = 0;
  std::chrono::milliseconds timeout{};
  bool grouping = false;
  Stream* stream = nullptr;  // of the group; null: nothing was asked for yet
  Launch noted;
  std::vector<std::unique_ptr<Range>> windows;
  std::vector<std::unique_ptr<Range>> registered;
  bool registers = false;  // memory was registered, at some time
};

RankHandle& rank_of(void* comm) {
  return *static_cast<RankHandle*>(comm);
}

// The range that a caller has the address of, taken out; null: it is none of them.
std::unique_ptr<Range> take_out(std::vector<std::unique_ptr<Range>>& ranges, const void* range) {
  const auto found = std::find_if(ranges.begin(), ranges.end(),
                                  [&](const auto& each) { return each.get() == range; });
  if (found == ranges.end()) return nullptr;
  std::unique_ptr<Range> taken = std::move(*found);
  ranges.erase(found);
  return taken;
}

meron_status refuse(meron_backend_failure* failure, meron_status status, const std::string& text) {
  say(failure, text);
  return status;
}

meron_status tell_state(const State& state, meron_backend_failure* failure) {
  if (state.status < 0) say(failure, state.text);
  return state.status;
}

meron_status own_version(meron_collective_library* out, meron_backend_failure* /*failure*/) {
  static const std::string text = std::to_string(MERON_VERSION_MAJOR) + "." +
                                  std::to_string(MERON_VERSION_MINOR) + "." +
                                  std::to_string(MERON_VERSION_PATCH);
  meron_collective_library library{};
  library.struct_size = sizeof(library);
  library.text = text.c_str();
  library.path = "";
  std::memcpy(out, &library, std::min<size_t>(out->struct_size, sizeof(library)));
  return MERON_OK;
}

uint64_t value_of(uint64_t Settings::*setting) {
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  return all.settings.*setting;
}

meron_status check_settings(meron_backend_failure* failure) {
  if (const meron_status status = load_settings(failure); status < 0) return status;
  if (value_of(&Settings::collectives) != 0) return MERON_OK;
  return refuse(failure, MERON_E_UNSUPPORTED,
                "collectives are switched off by MERON_EMULATED_DEVICE");
}

meron_status new_id(void* id, meron_backend_failure* failure) {
  if (const meron_status status = check_settings(failure); status < 0) return status;
  std::array<char, MERON_COLLECTIVE_ID_BYTES> text{};
  (void)std::snprintf(text.data(), text.size(), kIdFormat, static_cast<int>(::getpid()),
                      static_cast<unsigned long long>(host_number()),
                      static_cast<unsigned long long>(random_number()));
  std::memcpy(id, text.data(), text.size());
  return MERON_OK;
}

meron_status check_id(const void* id, std::string* text, meron_backend_failure* failure) {
  std::array<char, MERON_COLLECTIVE_ID_BYTES + 1> copied{};
  std::memcpy(copied.data(), id, MERON_COLLECTIVE_ID_BYTES);
  *text = copied.data();
  int process = 0;
  unsigned long long host = 0, number = 0;
  if (std::sscanf(copied.data(), kIdFormat, &process, &host, &number) != 3) {
    return refuse(failure, MERON_E_ARGUMENT,
                  "the id was not made by the emulated device's unique_id");
  }
  if (host == host_number()) return MERON_OK;
  return refuse(failure, MERON_E_UNSUPPORTED,
                "ranks of the emulated device's collectives are on one host, and the id was made "
                "on another one, or where the network is another one, by process " +
                    std::to_string(process));
}

meron_status open_rank(void** out, const void* id, const meron_collective_options* options,
                       meron_backend_failure* failure) {
  if (const meron_status status = check_settings(failure); status < 0) return status;
  if (options->size < 1 || options->rank < 0 || options->rank >= options->size ||
      options->device_index < -1 || options->timeout_ms <= 0) {
    return refuse(failure, MERON_E_ARGUMENT,
                  "there is no rank " + std::to_string(options->rank) + " of " +
                      std::to_string(options->size) + ", no device " +
                      std::to_string(options->device_index) + ", or no timeout above 0");
  }
  auto made = std::make_unique<RankHandle>();
  std::string text;
  if (const meron_status status = check_id(id, &text, failure); status < 0) return status;
  made->size = options->size;
  made->number = options->rank;
  made->device = std::max(options->device_index, 0);
  made->timeout = std::chrono::milliseconds(options->timeout_ms);
  made->rank = std::make_shared<Rank>(text, made->number, made->size, made->device,
                                      value_of(&Settings::alone) != 0);
  if (const State opened = made->rank->open(); opened.status < 0) {
    return tell_state(opened, failure);
  }
  *out = made.release();
  return MERON_OK;
}

meron_status poll_rank(void* comm, meron_backend_failure* failure) {
  return tell_state(rank_of(comm).rank->state(), failure);
}

// The checks at the begin of every call that requests work.
meron_status check_ready(const RankHandle& own, meron_backend_failure* failure) {
  const State state = own.rank->state();
  if (state.status != MERON_IN_PROGRESS) {
    if (state.status < 0) return tell_state(state, failure);
    return is_broken(own.device) ? say_broken(failure) : MERON_OK;
  }
  return refuse(failure, MERON_E_STATE, state.text + ": ask poll until it says that all have");
}

meron_status check_own_stream(const RankHandle& own, void* stream, meron_backend_failure* failure) {
  if (stream == nullptr) {
    return refuse(failure, MERON_E_UNSUPPORTED,
                  "collectives of the emulated device need a stream that was created");
  }
  const auto* const given = static_cast<const Stream*>(stream);
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  if (all.streams.count(given) == 0) {
    return refuse(failure, MERON_E_ARGUMENT, "this is no stream");
  }
  if (given->device() != own.device) {
    return refuse(failure, MERON_E_ARGUMENT,
                  "it is a stream of device " + std::to_string(given->device()));
  }
  if (own.grouping && own.stream != nullptr && own.stream != given) {
    return refuse(failure, MERON_E_ARGUMENT, "the group's calls are of another stream");
  }
  return MERON_OK;
}

bool is_to_fail() {
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  return ++all.collectives == all.settings.fail_at;
}

void launch_noted(RankHandle& own) {
  block_caller();
  own.noted.fails = is_to_fail();
  const uint64_t number = own.rank->ask();
  own.stream->ask([rank = own.rank, number, launch = std::exchange(own.noted, {})] {
    rank->run(number, launch);
  });
  own.stream = nullptr;
}

// Before a call takes notes.
meron_status begin_call(RankHandle& own, void* stream, meron_backend_failure* failure) {
  if (const meron_status status = check_ready(own, failure); status < 0) return status;
  if (const meron_status status = check_own_stream(own, stream, failure); status < 0) return status;
  own.stream = static_cast<Stream*>(stream);
  return MERON_OK;
}

// Settings that ask for it demand of gathers what a library would not notice: that all they are
// from is registered, from the first registration on.
meron_status check_registered(const RankHandle& own, const std::byte* from, uint64_t bytes,
                              meron_backend_failure* failure) {
  if (!own.registers || bytes == 0 || value_of(&Settings::registers) != Settings::kDemanded) {
    return MERON_OK;
  }
  for (const auto* ranges : {&own.registered, &own.windows}) {
    for (const auto& range : *ranges) {
      if (from >= range->data && from + bytes <= range->data + range->bytes) return MERON_OK;
    }
  }
  return refuse(failure, MERON_E_ARGUMENT, "it is from memory that is not registered");
}

// Offset of `data` in the rank's window that contains it, or kElsewhere.
uint64_t place_of(const RankHandle& own, const std::byte* data) {
  for (const auto& window : own.windows) {
    if (data < window->data || data >= window->data + window->bytes) continue;
    return static_cast<uint64_t>(data - window->data);
  }
  return GatherPart::kElsewhere;
}

meron_status gather_all(void* comm, const void* from, void* to, uint64_t bytes, void* stream,
                        meron_backend_failure* failure) {
  if (bytes > 0 && (from == nullptr || to == nullptr)) {
    return refuse(failure, MERON_E_ARGUMENT, "an all-gather has bytes and no pointer to them");
  }
  RankHandle& own = rank_of(comm);
  if (const meron_status status = begin_call(own, stream, failure); status < 0) return status;
  const auto* const source = static_cast<const std::byte*>(from);
  if (const meron_status status = check_registered(own, source, bytes, failure); status < 0) {
    return status;
  }
  auto* const target = static_cast<std::byte*>(to);
  own.noted.gathers.push_back({source, target, bytes, place_of(own, target)});
  if (!own.grouping) launch_noted(own);
  return MERON_OK;
}

// The error of a piece. Empty if it is valid.
std::string fault_of(const meron_exchange_piece& piece, int32_t rank, int32_t size) {
  if (piece.peer < 0 || piece.peer >= size) {
    return "is for rank " + std::to_string(piece.peer) + " of " + std::to_string(size);
  }
  if ((piece.send_bytes > 0 && piece.send == nullptr) ||
      (piece.receive_bytes > 0 && piece.receive == nullptr)) {
    return "has bytes and no pointer to them";
  }
  if (piece.peer == rank && piece.send_bytes != piece.receive_bytes) {
    return "is for the rank itself, and sends " + std::to_string(piece.send_bytes) +
           " bytes but receives " + std::to_string(piece.receive_bytes);
  }
  return {};
}

meron_status check_pieces(const meron_exchange_piece* pieces, uint64_t count, int32_t rank,
                          int32_t size, meron_backend_failure* failure) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string fault = fault_of(pieces[i], rank, size);
    if (!fault.empty()) {
      return refuse(failure, MERON_E_ARGUMENT, "piece " + std::to_string(i) + " " + fault);
    }
  }
  return MERON_OK;
}

meron_status exchange_pieces(void* comm, const meron_exchange_piece* pieces, uint64_t count,
                             void* stream, meron_backend_failure* failure) {
  RankHandle& own = rank_of(comm);
  if (const meron_status status = check_pieces(pieces, count, own.number, own.size, failure);
      status < 0)
    return status;
  if (const meron_status status = begin_call(own, stream, failure); status < 0) return status;
  own.noted.pieces.insert(own.noted.pieces.end(), pieces, pieces + count);
  if (!own.grouping) launch_noted(own);
  return MERON_OK;
}

meron_status begin_notes(void* comm, meron_backend_failure* failure) {
  RankHandle& own = rank_of(comm);
  if (own.grouping) return refuse(failure, MERON_E_STATE, "a group is open already");
  if (const meron_status status = check_ready(own, failure); status < 0) return status;
  own.grouping = true;
  return MERON_OK;
}

meron_status end_notes(void* comm, meron_backend_failure* failure) {
  RankHandle& own = rank_of(comm);
  if (!own.grouping) return refuse(failure, MERON_E_STATE, "no group is open");
  own.grouping = false;
  const meron_status status = check_ready(own, failure);
  if (status < 0) {
    own.noted = {};
    own.stream = nullptr;
    return status;
  }
  if (own.stream != nullptr) launch_noted(own);
  return MERON_OK;
}

// The memory is the host's: only check_registered uses the registration.
meron_status take_memory(void** registration, void* comm, void* data, uint64_t bytes,
                         meron_backend_failure* failure) {
  RankHandle& own = rank_of(comm);
  if (own.grouping) {
    return refuse(failure, MERON_E_STATE, "memory is not registered within a group");
  }
  block_caller();
  if (const meron_status status = check_ready(own, failure); status < 0) return status;
  if (value_of(&Settings::registers) == 0) {
    return refuse(failure, MERON_E_UNSUPPORTED,
                  "no memory is registered, says MERON_EMULATED_DEVICE");
  }
  own.registers = true;
  own.registered.push_back(std::make_unique<Range>(Range{static_cast<std::byte*>(data), bytes}));
  *registration = own.registered.back().get();
  return MERON_OK;
}

meron_status forget_memory(void* comm, void* registration, meron_backend_failure* failure) {
  if (take_out(rank_of(comm).registered, registration) != nullptr) return MERON_OK;
  return refuse(failure, MERON_E_ARGUMENT, "this is no registration");
}

meron_status open_window(void** window, void** data, void* comm, uint64_t bytes,
                         meron_backend_failure* failure) {
  RankHandle& own = rank_of(comm);
  if (own.grouping) {
    return refuse(failure, MERON_E_STATE, "windows are not opened within a group");
  }
  if (bytes == 0) return refuse(failure, MERON_E_ARGUMENT, "a window has no bytes");
  if (value_of(&Settings::windows) == 0) {
    return refuse(failure, MERON_E_UNSUPPORTED,
                  "windows are switched off by MERON_EMULATED_DEVICE");
  }
  if (const meron_status status = check_ready(own, failure); status < 0) return status;
  std::byte* const block = allocate_block(own.device, bytes);
  if (block == nullptr) {
    return refuse(failure, MERON_E_NO_MEMORY,
                  "there are no " + std::to_string(bytes) + " bytes for a window");
  }
  own.windows.push_back(std::make_unique<Range>(Range{block, bytes}));
  *window = own.windows.back().get();
  *data = block;
  return MERON_OK;
}

meron_status close_window(void* comm, void* window, meron_backend_failure* failure) {
  const std::unique_ptr<Range> closed = take_out(rank_of(comm).windows, window);
  if (closed == nullptr) return refuse(failure, MERON_E_ARGUMENT, "this is no window");
  free_block(closed->data);
  return MERON_OK;
}

meron_status abort_ranks(void* const* comms, uint64_t count, meron_backend_failure* /*failure*/) {
  for (uint64_t i = 0; i < count; ++i) rank_of(comms[i]).rank->abort();
  return MERON_OK;
}

meron_status close_rank(void* comm, meron_backend_failure* failure) {
  const std::unique_ptr<RankHandle> own(&rank_of(comm));
  const State ended = own->rank->drain(own->timeout);
  if (ended.status < 0) own->rank->abort();
  own->rank->leave();
  for (const auto& window : own->windows) free_block(window->data);
  return tell_state(ended, failure);
}

}  // namespace

const meron_collective_table& collective_table() {
  static const meron_collective_table table = {
      .struct_size = sizeof(meron_collective_table),
      .reserved_0 = 0,
      .version = own_version,
      .unique_id = new_id,
      .open = open_rank,
      .poll = poll_rank,
      .all_gather = gather_all,
      .exchange = exchange_pieces,
      .group_begin = begin_notes,
      .group_end = end_notes,
      .register_memory = take_memory,
      .unregister_memory = forget_memory,
      .window_open = open_window,
      .window_close = close_window,
      .abort = abort_ranks,
      .close = close_rank,
  };
  return table;
}

}  // namespace meron::emulated
