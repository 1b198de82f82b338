// SPDX-License-Identifier: Apache-2.0
// The table of a device that is none: memory of the host, and a thread per stream.
#include "modules/emulated/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "modules/emulated/machine.h"

namespace meron::emulated {
namespace {

constexpr uint64_t kAlignment = 512;
constexpr int kGarbage = 0xcb;

struct Emulated {
  explicit Emulated(int32_t number) : index(number), standard(number) {}

  const int32_t index;
  Stream standard;  // the default one
};

Emulated& device_of(void* handle) {
  return *static_cast<Emulated*>(handle);
}

}  // namespace

Stream& stream_of(void* handle, void* stream) {
  return stream == nullptr ? device_of(handle).standard : *static_cast<Stream*>(stream);
}

meron_status state_of(void* handle, meron_backend_failure* failure) {
  if (!is_broken(device_of(handle).index)) return MERON_OK;
  return say_broken(failure);
}

std::byte* allocate_block(int32_t device, uint64_t bytes) {
  std::byte* data = nullptr;
  {
    Machine& all = machine();
    const std::lock_guard lock(all.mutex);
    uint64_t& used = all.used[device];
    if (bytes > all.settings.memory || used > all.settings.memory - bytes) return nullptr;
    data =
        static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment}, std::nothrow));
    if (data == nullptr) return nullptr;
    used += bytes;
    all.blocks.emplace(data, Machine::Block{bytes, device});
  }
  std::memset(data, kGarbage, bytes);
  return data;
}

void free_block(std::byte* data) {
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  const auto found = all.blocks.find(data);
  if (found == all.blocks.end()) return;
  all.used[found->second.device] -= found->second.bytes;
  all.blocks.erase(found);
  ::operator delete (data, std::align_val_t{kAlignment});
}

namespace {

meron_status count(int32_t* out, meron_backend_failure* failure) {
  if (const meron_status status = load_settings(failure); status < 0) return status;
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  *out = static_cast<int32_t>(all.settings.count);
  return MERON_OK;
}

meron_status open(void** out, int32_t index, meron_backend_failure* failure) {
  if (is_broken(std::max(index, 0))) return say_broken(failure);
  auto made = std::make_unique<Emulated>(std::max(index, 0));
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  all.streams.insert(&made->standard);
  *out = made.release();
  return MERON_OK;
}

void close(void* handle) {
  Machine& all = machine();
  {
    const std::lock_guard lock(all.mutex);
    all.streams.erase(&device_of(handle).standard);
  }
  delete &device_of(handle);
}

meron_status describe(meron_device_info* out, void* handle, meron_backend_failure* /*failure*/) {
  Machine& all = machine();
  const int32_t index = device_of(handle).index;
  const std::lock_guard lock(all.mutex);
  meron_device_info info{};
  info.struct_size = sizeof(info);
  info.index = index;
  (void)std::snprintf(info.name, sizeof(info.name), "emulated");
  const std::string bus = all.settings.shared != 0
                              ? std::to_string(index)
                              : std::to_string(::getpid()) + ":" + std::to_string(index);
  (void)std::snprintf(info.bus, sizeof(info.bus), "emulated %s", bus.c_str());
  info.memory_bytes = all.settings.memory;
  info.free_bytes = all.settings.memory - std::min(all.settings.memory, all.used[index]);
  info.multiprocessors = 1;
  std::memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof(info)));
  return MERON_OK;
}

meron_status allocate(void** out, void* handle, uint64_t bytes, void* stream,
                      meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  std::byte* data = allocate_block(device_of(handle).index, bytes);
  if (data == nullptr) {
    // As in a CUDA pool, memory with a pending free on this stream may be enough.
    stream_of(handle, stream).synchronize();
    data = allocate_block(device_of(handle).index, bytes);
  }
  if (data == nullptr) {
    say(failure, "out of memory");
    return MERON_E_NO_MEMORY;
  }
  *out = data;
  return MERON_OK;
}

meron_status release(void* handle, void* data, void* stream, meron_backend_failure* /*failure*/) {
  stream_of(handle, stream).ask([data] { free_block(static_cast<std::byte*>(data)); });
  return MERON_OK;
}

meron_status pin(void* handle, void* data, uint64_t bytes, meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  if (reinterpret_cast<uintptr_t>(data) % page != 0 || bytes % page != 0) {
    say(failure, "memory that is not whole pages cannot be pinned");
    return MERON_E_ARGUMENT;
  }
  block_caller();
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  if (all.settings.pins == 0) {
    say(failure, "no memory can be pinned, as MERON_EMULATED_DEVICE asks");
    return MERON_E_NO_MEMORY;
  }
  if (!all.pinned.emplace(static_cast<const std::byte*>(data), bytes).second) {
    say(failure, "the memory is pinned already");
    return MERON_E_DUPLICATE;
  }
  return MERON_OK;
}

void unpin(void* /*handle*/, void* data) {
  block_caller();
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  all.pinned.erase(static_cast<const std::byte*>(data));
}

// The entry of `map` that contains `data`, or the map's end.
template <class Map, class Bytes>
auto entry_of(const Map& map, const std::byte* data, Bytes bytes) {
  auto found = map.upper_bound(data);
  if (found == map.begin()) return map.end();
  --found;
  return data < found->first + bytes(found->second) ? found : map.end();
}

meron_memory_kind kind_of(const std::byte* data, int32_t* index) {
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  const auto block =
      entry_of(all.blocks, data, [](const Machine::Block& each) { return each.bytes; });
  if (block != all.blocks.end()) {
    *index = block->second.device;
    return MERON_MEMORY_DEVICE;
  }
  const auto range = entry_of(all.pinned, data, [](uint64_t bytes) { return bytes; });
  return range != all.pinned.end() ? MERON_MEMORY_PINNED : MERON_MEMORY_HOST;
}

meron_status locate(meron_memory_kind* kind, int32_t* index, void* handle, const void* data,
                    meron_backend_failure* /*failure*/) {
  *index = device_of(handle).index;
  *kind = kind_of(static_cast<const std::byte*>(data), index);
  return MERON_OK;
}

meron_status stream_create(void** out, void* handle, uint32_t /*urgent*/,
                           meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  auto made = std::make_unique<Stream>(device_of(handle).index);
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  all.streams.insert(made.get());
  *out = made.release();
  return MERON_OK;
}

void stream_destroy(void* /*handle*/, void* stream) {
  auto* const made = static_cast<Stream*>(stream);
  Machine& all = machine();
  {
    const std::lock_guard lock(all.mutex);
    all.streams.erase(made);
  }
  delete made;
}

meron_status stream_check(void* handle, void* stream, meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  if (stream == nullptr) return MERON_OK;
  const auto* const made = static_cast<const Stream*>(stream);
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  if (all.streams.count(made) == 0) {
    say(failure, "this is no stream");
    return MERON_E_ARGUMENT;
  }
  if (made->device() == device_of(handle).index) return MERON_OK;
  say(failure, "it is a stream of device " + std::to_string(made->device()));
  return MERON_E_ARGUMENT;
}

meron_status stream_synchronize(void* handle, void* stream, meron_backend_failure* failure) {
  stream_of(handle, stream).synchronize();
  return state_of(handle, failure);
}

// An event is shared with the work that is to reach it.
using EventHandle = std::shared_ptr<Event>;

EventHandle& event_of(void* event) {
  return *static_cast<EventHandle*>(event);
}

meron_status event_create(void** out, void* handle, meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  *out = new EventHandle(std::make_shared<Event>());
  return MERON_OK;
}

void event_destroy(void* /*handle*/, void* event) {
  delete static_cast<EventHandle*>(event);
}

meron_status event_record(void* handle, void* event, void* stream, meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  const EventHandle shared = event_of(event);
  const uint64_t point = shared->recorded();
  stream_of(handle, stream).ask([shared, point] { shared->come(point); });
  return MERON_OK;
}

meron_status event_query(void* handle, void* event, meron_backend_failure* failure) {
  Event& asked = *event_of(event);
  const bool come = asked.has_come(asked.last());
  // Check the device after the event: the stream of a device reaches its events after it breaks.
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  return come ? MERON_OK : MERON_IN_PROGRESS;
}

meron_status stream_wait(void* handle, void* stream, void* event, meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  const EventHandle shared = event_of(event);
  const uint64_t point = shared->last();
  stream_of(handle, stream).ask([shared, point] { shared->wait(point); });
  return MERON_OK;
}

meron_status stream_notify(void* handle, void* stream, meron_device_notify_fn notify, void* user,
                           meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  stream_of(handle, stream).ask([notify, user] { notify(user); });
  return MERON_OK;
}

}  // namespace

meron_status ask(void* handle, void* stream, std::function<void()> work,
                 meron_backend_failure* failure) {
  if (const meron_status status = state_of(handle, failure); status < 0) return status;
  const int32_t index = device_of(handle).index;
  stream_of(handle, stream).ask([index, work = std::move(work)] { work_on(index, work); });
  return MERON_OK;
}

namespace {

bool is_strict() {
  Machine& all = machine();
  const std::lock_guard lock(all.mutex);
  return all.settings.strict != 0;
}

meron_status copy(void* handle, void* to, const void* from, uint64_t bytes, void* stream,
                  meron_backend_failure* failure) {
  int32_t of = 0;
  const bool pageable = kind_of(static_cast<const std::byte*>(from), &of) == MERON_MEMORY_HOST ||
                        kind_of(static_cast<const std::byte*>(to), &of) == MERON_MEMORY_HOST;
  if (pageable && is_strict()) {
    say(failure,
        "memory of the host that is not pinned is copied, which MERON_EMULATED_DEVICE forbids");
    return MERON_E_ARGUMENT;
  }
  const meron_status asked = ask(
      handle, stream, [to, from, bytes] { std::memcpy(to, from, bytes); }, failure);
  if (pageable) stream_of(handle, stream).synchronize();
  return asked;
}

meron_status fill(void* handle, void* to, uint8_t value, uint64_t bytes, void* stream,
                  meron_backend_failure* failure) {
  return ask(
      handle, stream, [to, value, bytes] { std::memset(to, value, bytes); }, failure);
}

}  // namespace

const meron_device_table& device_table() {
  static const meron_device_table table = {
      .struct_size = sizeof(meron_device_table),
      .reserved_0 = 0,
      .count = count,
      .open = open,
      .close = close,
      .describe = describe,
      .allocate = allocate,
      .release = release,
      .pin = pin,
      .unpin = unpin,
      .locate = locate,
      .stream_create = stream_create,
      .stream_destroy = stream_destroy,
      .stream_check = stream_check,
      .stream_synchronize = stream_synchronize,
      .event_create = event_create,
      .event_destroy = event_destroy,
      .event_record = event_record,
      .event_query = event_query,
      .stream_wait = stream_wait,
      .stream_notify = stream_notify,
      .copy = copy,
      .fill = fill,
  };
  return table;
}

}  // namespace meron::emulated
