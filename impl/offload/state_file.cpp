// SPDX-License-Identifier: Apache-2.0
#include "offload/state_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/held.h"
#include "io/drive_error.h"
#include "kernels/cpu/crc32c.h"

namespace meron {
namespace {

constexpr int64_t kCloseNs = 5 * kNanosPerSecond;

}  // namespace

StateFile::StateFile(Storage& storage, Arena& arena, Counters& counters, int64_t timeout_ns,
                     std::vector<Region> regions)
    : storage_(storage),
      arena_(arena),
      counters_(counters),
      timeout_ns_(timeout_ns),
      regions_(std::move(regions)) {}

StateFile::~StateFile() {
  pass_.reset();
  // A drive that does not answer may still write there: it keeps the memory, and its room.
  if (held_) return;
  if (memory_) storage_.engine().unregister_buffer(memory_.data);
  arena_.release(memory_);
  if (extent_.bytes == 0) return;
  storage_.swap().free(extent_);
  counters_.nvme.held.fetch_sub(extent_.bytes);
}

Result<std::unique_ptr<StateFile>> StateFile::create(Storage& storage, Arena& arena,
                                                     Counters& counters, const Plan& plan,
                                                     int64_t timeout_ns,
                                                     std::vector<Region> regions) {
  std::unique_ptr<StateFile> file(
      new StateFile(storage, arena, counters, timeout_ns, std::move(regions)));
  uint64_t bytes = 0, largest = 0;
  size_t records = 0;
  for (size_t r = 0; r < file->regions_.size(); ++r) {
    const Region& region = file->regions_[r];
    file->first_of_.push_back(file->sub_groups_.size());
    for (uint64_t first = 0; first < region.elements; first += plan.optimizer.sub_group) {
      SubGroup group{.region = r,
                     .first = first,
                     .elements = std::min(plan.optimizer.sub_group, region.elements - first),
                     .offset = bytes,
                     .record = records};
      group.bytes = sub_group_bytes(region.shape, group.elements);
      bytes += group.bytes;
      records += group.records();
      largest = std::max(largest, group.bytes);
      file->sub_groups_.push_back(group);
    }
  }
  file->checksums_.resize(records);
  const Recess recess;  // while the host gives memory, and the file grows: the call has the turn
  MERON_ASSIGN(file->memory_,
               arena.allocate(state_buffers_bytes(plan, largest), MemoryKind::optimizer,
                              "the buffers of optimizer states on nvme", Arena::Starts::at_page));
  MERON_ASSIGN(file->extent_, storage.swap().allocate(bytes));
  add(counters.nvme.held, file->extent_.bytes);
  for (SubGroup& group : file->sub_groups_) group.offset += file->extent_.offset;
  storage.engine().register_buffer(file->memory_.data, file->memory_.bytes);
  return file;
}

std::byte* StateFile::record(const SubGroup& group, uint64_t number, std::byte* data) const {
  return data + regions_[group.region].shape.bytes(number * kRecord);
}

uint64_t StateFile::record_elements(const SubGroup& group, uint64_t number) const {
  return std::min(kRecord, group.elements - number * kRecord);
}

void StateFile::seal(const SubGroup& group, uint64_t number, const std::byte* data) {
  const uint64_t bytes = regions_[group.region].shape.bytes(record_elements(group, number));
  checksums_[group.record + number] =
      kernels::crc32c(data + regions_[group.region].shape.bytes(number * kRecord), bytes);
}

Status StateFile::verify(const SubGroup& group, uint64_t number, const std::byte* data) const {
  const Region& region = regions_[group.region];
  const uint64_t place = region.shape.bytes(number * kRecord);
  const uint64_t bytes = region.shape.bytes(record_elements(group, number));
  const uint32_t found = kernels::crc32c(data + place, bytes);
  const uint32_t expected = checksums_[group.record + number];
  if (found == expected) return Ok{};
  const uint64_t first = group.first + number * kRecord;
  return drive_changed_error(
      storage_.path(),
      {.offset = group.offset + place, .bytes = bytes, .found = found, .expected = expected},
      region.name,
      fmt::format("the states of elements {} to {} of {}", first,
                  first + record_elements(group, number) - 1, region.name));
}

Status StateFile::await(const IoTicket& transfer) {
  if (!held_ && transfer.wait(timeout_ns_)) return transfer.status();
  held_ = true;
  return drive_silent_error(storage_.path(), timeout_ns_);
}

Status StateFile::visit(size_t region, uint64_t first, uint64_t count, bool write,
                        const Visit& visit) {
  const uint64_t end = first + count;
  if (pass_) MERON_TRY(pass_->settle());
  for (size_t i = first_of_[region]; i < sub_groups_.size(); ++i) {
    const SubGroup& group = sub_groups_[i];
    if (group.region != region || group.first >= end) break;
    if (group.first + group.elements <= first) continue;
    const auto transfer = [&](bool out) -> Status {
      IoEngine& engine = storage_.engine();
      const auto& file = storage_.file();
      const auto ticket = out ? engine.write(file, group.offset, memory_.data, group.bytes)
                              : engine.read(file, group.offset, memory_.data, group.bytes);
      MERON_TRY(await(*ticket));
      add(out ? counters_.nvme.written : counters_.nvme.read, group.bytes);
      return Ok{};
    };
    MERON_TRY(transfer(false));
    for (uint64_t r = 0; r < group.records(); ++r) MERON_TRY(verify(group, r, memory_.data));
    visit(group, memory_.data);
    if (!write) continue;
    for (uint64_t r = 0; r < group.records(); ++r) seal(group, r, memory_.data);
    MERON_TRY(transfer(true));
  }
  return Ok{};
}

StatePass& StateFile::pass() {
  if (!pass_) pass_ = std::make_unique<StatePass>(*this, StatePass::Kind::update);
  return *pass_;
}

StatePass::StatePass(StateFile& file, Kind kind) : file_(file), kind_(kind) {}

StatePass::~StatePass() {
  const Deadline deadline = Deadline::after(kCloseNs);
  for (const Slot& slot : slots_) {
    if (slot.transfer && !slot.transfer->wait(deadline.remaining())) file_.held_ = true;
  }
}

// Between the last slot's end and the first one's begin, around the end of the memory.
bool StatePass::take_room(uint64_t bytes, uint64_t* begin) const {
  const uint64_t size = file_.memory_.bytes;
  if (slots_.empty()) {
    *begin = 0;
    return bytes <= size;
  }
  const Slot& last = slots_.back();
  const uint64_t head = last.begin + of(last.number).bytes;
  const uint64_t tail = slots_.front().begin;
  if (last.begin >= tail) {
    if (head + bytes <= size) {
      *begin = head;
      return true;
    }
    *begin = 0;
    return bytes <= tail;
  }
  *begin = head;
  return head + bytes <= tail;
}

bool StatePass::may_begin() const {
  const size_t count = file_.sub_groups_.size();
  if (kind_ == Kind::fill) return begun_ < count;
  return slots_.empty() || begun_ - slots_.front().number < count;
}

StatePass::Slot* StatePass::slot_of(size_t number) {
  if (slots_.empty() || number < slots_.front().number || number > slots_.back().number) {
    return nullptr;
  }
  return &slots_[number - slots_.front().number];
}

Status StatePass::advance() {
  for (Slot& slot : slots_) {
    if (slot.phase == Phase::ready || !slot.transfer || !slot.transfer->done()) continue;
    MERON_TRY(slot.transfer->status());
    slot.transfer.reset();
    if (slot.phase == Phase::reading) slot.phase = Phase::ready;
  }
  while (!slots_.empty() && slots_.front().phase == Phase::writing && !slots_.front().transfer) {
    slots_.pop_front();
  }
  while (may_begin()) {
    const StateFile::SubGroup& group = of(begun_);
    Slot slot{.number = begun_};
    if (!take_room(group.bytes, &slot.begin)) break;
    if (kind_ == Kind::fill) {
      slot.phase = Phase::ready;
    } else {
      slot.transfer = file_.storage_.engine().read(file_.storage_.file(), group.offset, data(slot),
                                                   group.bytes);
    }
    slots_.push_back(std::move(slot));
    ++begun_;
  }
  return Ok{};
}

std::byte* StatePass::front() {
  Slot* const slot = slot_of(next_);
  return slot != nullptr && slot->phase == Phase::ready ? data(*slot) : nullptr;
}

// Bytes are counted here, so that a round counts its own, whatever was read before it begins and
// is written after it has ended.
void StatePass::pop() {
  Slot& slot = *slot_of(next_);
  const StateFile::SubGroup& group = of(next_);
  slot.phase = Phase::writing;
  slot.transfer =
      file_.storage_.engine().write(file_.storage_.file(), group.offset, data(slot), group.bytes);
  if (kind_ == Kind::update) add(file_.counters_.nvme.read, group.bytes);
  add(file_.counters_.nvme.written, group.bytes);
  ++next_;
}

Status StatePass::settle() {
  std::optional<Error> error;
  for (const Slot& slot : slots_) {
    if (!slot.transfer) continue;
    const Status ended = file_.await(*slot.transfer);
    if (!ended.ok() && !error) error = ended.error();
  }
  if (error) return *std::move(error);
  slots_.clear();
  begun_ = next_;
  return Ok{};
}

void StatePass::wait(int64_t timeout_ns) {
  for (const Slot& slot : slots_) {
    if (!slot.transfer) continue;
    slot.transfer->wait(timeout_ns);
    return;
  }
}

std::string StatePass::describe() const {
  size_t reads = 0, writes = 0;
  for (const Slot& slot : slots_) {
    if (!slot.transfer) continue;
    ++(slot.phase == Phase::reading ? reads : writes);
  }
  return fmt::format("{} reads and {} writes of {} are under way", reads, writes,
                     file_.storage_.path());
}

}  // namespace meron
