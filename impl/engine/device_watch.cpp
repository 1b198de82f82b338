// SPDX-License-Identifier: Apache-2.0
#include "engine/device_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <new>
#include <utility>
#include <vector>

#include "device/device_group.h"
#include "engine/context.h"
#include "os/end_process.h"
#include "os/threads.h"

namespace meron {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};
// A younger operation is likely still progressing.
constexpr int64_t kYoungNs = 200 * kNanosPerMilli;
// Time for peers to join operations under way when a rank closes.
constexpr int64_t kGraceNs = 5 * kNanosPerSecond;

}  // namespace

DeviceWatch::DeviceWatch(Context& context) : context_(context) {
  const MaskSignalsScope masked;
  thread_ = std::thread([this] { run(); });
}

DeviceWatch::~DeviceWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void DeviceWatch::run() {
  begin_thread("meron-devices");
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, kPeriod, [this] { return stop_; })) {
    lock.unlock();
    try {
      context_.look_after_devices();
    } catch (const std::bad_alloc&) {
      // The next look may find memory.
    }
    lock.lock();
  }
}

// Neither the link nor the log is touched: a trainer's functions may be for its own threads only.
void Context::look_after_devices() {
  Lock held(*this, Lock::Quietly{});
  if (closed()) return;
  for (Group& group : groups_) {
    if (group.devices && group.channel->status().ok()) look_after(held, *group.devices);
  }
  abort_devices(held, [](const Group& group) { return !group.channel->status().ok(); });
}

// A library that does not stop leaves streams that no wait can end, here or in the trainer.
void Context::abort_devices(Held& /*held*/, const std::function<bool(const Group&)>& which) {
  std::vector<DeviceGroup::Communicator> communicators;
  for (Group& group : groups_) {
    if (!group.devices || !which(group)) continue;
    for (auto& each : group.devices->take_for_abort()) communicators.push_back(std::move(each));
  }
  if (communicators.empty()) return;
  const Recess recess;
  const Status aborted = DeviceCommunicator::abort(communicators);
  // One that cannot be aborted for another reason has ended already.
  if (aborted.ok() || aborted.error().code() != MERON_E_TIMEOUT) return;
  end_process(fmt::format("rank {}: {}", transport_->rank(), aborted.error().info().what));
}

void Context::look_after(Held& held, DeviceGroup& devices) {
  if (const Status status = devices.status(); !status.ok()) {
    Channel& channel = devices.channel();
    record_failure(fail_devices(channel, status.error(), channel.posted() + 1));
    return;
  }
  const auto launch = devices.oldest();
  if (!launch || now_ns() - launch->begun_ns() < kYoungNs) return;
  pending_.advance(held, *launch);
  if (!launch->ended()) check_peers(held, *launch);
  if (launch->error()) {
    record_failure(*launch->error());
  } else if (const int64_t now = now_ns(); !launch->ended() && launch->inspection_due(now, 0)) {
    if (std::string text = report_wait(held, *launch, now); !text.empty()) {
      rank_->notices.push_back(std::move(text));
    }
  }
}

void Context::end_devices(Held& held) {
  for (Group& group : groups_) {
    if (!group.devices) continue;
    const Deadline grace = Deadline::after(std::min(kGraceNs, rank_->timeout_ns));
    while (group.channel->status().ok() && group.devices->oldest() && !grace.passed()) {
      const Recess recess;
      transport_->pump();
      Transport::Sleeper sleeper(*transport_);
      sleeper.sleep(kNanosPerMilli);
    }
  }
  abort_devices(held, [](const Group& group) {
    return !group.channel->status().ok() || group.devices->oldest() != nullptr;
  });
  rank_->device->synchronize();
  for (Group& group : groups_) {
    if (group.devices) group.devices->close();
  }
}

}  // namespace meron
