// SPDX-License-Identifier: Apache-2.0
// How the devices of a group's ranks are joined: each rank shows a card of its device, all reach
// the same verdict (device_verdict.h), open communicators, try them, and show how that ended.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string_view>

#include "base/human_bytes.h"
#include "device/device_group.h"
#include "device/modules.h"
#include "engine/context.h"
#include "engine/device_trial.h"
#include "engine/device_verdict.h"
#include "engine/device_watch.h"

namespace meron {
namespace {

constexpr int64_t kPauseNs = kNanosPerMilli;
constexpr int64_t kInspectNs = 20 * kNanosPerMilli;

// As long as others may be writing the card.
uint32_t state_of(const std::byte* card) {
  auto& word = *reinterpret_cast<uint32_t*>(const_cast<std::byte*>(card));
  return std::atomic_ref(word).load();
}

// Index of a rank along an axis.
int place_on(const Axes& axes, DeviceAxis axis) {
  return axis == DeviceAxis::shard ? axes.own_shard() : axes.own_replica();
}
uint64_t ranks_of(const Axes& axes, DeviceAxis axis) {
  return axis == DeviceAxis::shard ? axes.mesh.shards : axes.mesh.replicas;
}
constexpr std::array kAxes = {DeviceAxis::shard, DeviceAxis::replica};

// This rank's card, and the library that it is about.
DeviceCard card_of(const Device& device, const Axes& axes,
                   std::shared_ptr<const DeviceCollectives>* library) {
  DeviceCard card;
  put_text(card.kind, device.kind());
  put_text(card.bus, text_of(std::to_array(device.info().bus)));
  put_text(card.name, text_of(std::to_array(device.info().name)));
  const auto fill = [&]() -> Status {
    MERON_ASSIGN(card.free_bytes, device.free_bytes());
    MERON_ASSIGN(*library, open_collectives(device.kind() == "cuda" ? "nccl" : device.kind()));
    put_text(card.library, (*library)->version());
    card.version = (*library)->number();
    for (const DeviceAxis axis : kAxes) {
      if (place_on(axes, axis) != 0 || ranks_of(axes, axis) == 1) continue;
      for (auto& id : card.ids[static_cast<size_t>(axis)]) {
        MERON_ASSIGN(id, (*library)->create_id());
      }
    }
    return Ok{};
  };
  const Status filled = fill();
  card.state = filled.ok() ? DeviceCard::usable : DeviceCard::refused;
  if (!filled.ok()) put_text(card.reason, filled.error().info().what);
  return card;
}

Status open_window(DeviceSide& side, DeviceGroup& devices, DeviceCommunicator& gathers,
                   uint64_t bytes) {
  std::optional<Result<DeviceWindow>> opened;
  {
    const Recess recess;  // peers are waited for
    opened.emplace(gathers.open_window(bytes));
  }
  MERON_ASSIGN(DeviceWindow window, *std::move(opened));
  devices.gather_within(std::make_shared<GatherWindow>(side.device().shared_from_this(), side.up(),
                                                       std::move(window)));
  return Ok{};
}

}  // namespace

// The cards of a group's ranks, in the window.
struct DeviceCards {
  std::byte* own = nullptr;
  const std::byte* all = nullptr;
  uint64_t count = 0;

  const std::byte* of(uint64_t member) const { return all + member * sizeof(DeviceCard); }
};

class DeviceJoining {
 public:
  DeviceJoining(Context& context, Context::Group& group)
      : context_(context),
        group_(group),
        channel_(*group.channel),
        deadline_(Deadline::after(timeout_ns() / 2)) {}

  Status join(Held& held);

 private:
  Transport& transport() { return *context_.transport_; }
  DeviceSide& side() { return *context_.rank_->device; }
  int64_t timeout_ns() const { return context_.rank_->timeout_ns; }
  // To the log, by the group's first rank.
  void report(LogLevel level, const std::string& text);
  // They release the lock while they wait.
  Status await(Held& held, const std::shared_ptr<Operation>& operation);
  Status await_devices(Held& held, const std::function<Result<bool>()>& ready, const char* what);
  Result<DeviceCards> make_cards(Held& held);
  Result<std::vector<DeviceCard>> exchange_cards(Held& held, const DeviceCards& cards);
  Result<std::unique_ptr<DeviceGroup>> open_group(Held& held, const DeviceCollectives& library,
                                                  std::span<const DeviceCard> cards,
                                                  const DeviceVerdict& verdict);
  Status try_axis(Held& held, DeviceGroup& devices, DeviceAxis axis);
  // The devices are not joined: reports it, or fails if the plan needs joined devices.
  Status join_by_host(const std::string& reason);

  Context& context_;
  Context::Group& group_;
  Channel& channel_;
  const Deadline deadline_;
  DeviceCard own_;
  DeviceCards outcomes_;  // how joining has ended on each rank
};

void DeviceJoining::report(LogLevel level, const std::string& text) {
  if (channel_.index() != 0 || !context_.options_.log) return;
  const Recess recess;
  context_.options_.log(level, text);
}

Status DeviceJoining::await(Held& held, const std::shared_ptr<Operation>& operation) {
  while (true) {
    context_.progress(held);
    if (!operation->ended() && operation->inspection_due(now_ns(), kInspectNs)) {
      context_.check_peers(held, *operation);
    }
    if (operation->error()) return *operation->error();
    if (operation->ended()) return Ok{};
    MERON_TRY(context_.rest(held, kPauseNs));
  }
}

// Waits until `ready` returns true, or until a rank reports in outcomes_ that it failed.
Status DeviceJoining::await_devices(Held& held, const std::function<Result<bool>()>& ready,
                                    const char* what) {
  while (true) {
    MERON_ASSIGN(const bool done, ready());
    if (done) return Ok{};
    for (uint64_t m = 0; m < outcomes_.count; ++m) {
      if (state_of(outcomes_.of(m)) != DeviceCard::refused) continue;
      return Error(MERON_E_ABORTED,
                   fmt::format("rank {} could not go on",
                               channel_.members().world_rank(static_cast<int>(m))));
    }
    if (deadline_.passed()) {
      return Error(MERON_E_TIMEOUT, fmt::format("{} took too long", what),
                   "NCCL_DEBUG=INFO shows what NCCL waits for");
    }
    MERON_TRY(channel_.check_present(channel_.posted() + 1, Deadline::never()));
    MERON_TRY(context_.rest(held, kPauseNs));
  }
}

Result<DeviceCards> DeviceJoining::make_cards(Held& /*held*/) {
  const auto members = static_cast<uint64_t>(channel_.size());
  const uint64_t bytes = sizeof(DeviceCard) * members;
  auto offset = transport().window_allocate(bytes, "the devices", group_.axes.number);
  Status made = offset.ok() ? transport().window().reserve(*offset, bytes) : offset.error();
  // The others would wait for this rank's card.
  if (!made.ok()) {
    return channel_.fail(
        std::move(made).error().during("joining the devices").blaming(transport().rank()));
  }
  context_.control_bytes_ += bytes;
  const uint64_t own = sizeof(DeviceCard) * static_cast<uint64_t>(channel_.index());
  return DeviceCards{transport().window().writable(*offset + own),
                     transport().window().readable(*offset), members};
}

// All members show theirs, and see all of them after a barrier.
Result<std::vector<DeviceCard>> DeviceJoining::exchange_cards(Held& held,
                                                              const DeviceCards& cards) {
  std::memcpy(cards.own + sizeof(own_.state),
              reinterpret_cast<const std::byte*>(&own_) + sizeof(own_.state),
              sizeof(own_) - sizeof(own_.state));
  std::atomic_ref(*reinterpret_cast<uint32_t*>(cards.own)).store(own_.state);
  channel_.share(cards.own, sizeof(own_));
  transport().ring();
  MERON_ASSIGN(const auto barrier, context_.barrier(held, channel_));
  MERON_TRY(await(held, barrier));
  std::vector<DeviceCard> all(cards.count);
  std::memcpy(all.data(), cards.all, sizeof(DeviceCard) * cards.count);
  return all;
}

// Sends a little of each kind along an axis, and checks what arrives.
Status DeviceJoining::try_axis(Held& held, DeviceGroup& devices, DeviceAxis axis) {
  MERON_ASSIGN(const DeviceTrial trial,
               DeviceTrial::begin(side(), devices, axis, ranks_of(group_.axes, axis),
                                  static_cast<uint64_t>(place_on(group_.axes, axis)),
                                  channel_.posted(), deadline_));
  const auto arrived = [&]() -> Result<bool> {
    MERON_TRY(devices.status());
    return devices.oldest() == nullptr;
  };
  MERON_TRY(await_devices(held, arrived, "the first collectives between the devices"));
  return trial.check(side().device(), side().work());
}

Result<std::unique_ptr<DeviceGroup>> DeviceJoining::open_group(Held& held,
                                                               const DeviceCollectives& library,
                                                               std::span<const DeviceCard> cards,
                                                               const DeviceVerdict& verdict) {
  const uint64_t window = verdict.window;
  const Axes& axes = group_.axes;
  const auto timeout =
      std::chrono::milliseconds(std::max<int64_t>(1, timeout_ns() / kNanosPerMilli));
  DeviceGroup::Pairs pairs;
  for (const DeviceAxis axis : kAxes) {
    if (ranks_of(axes, axis) == 1) continue;
    const int first = axis == DeviceAxis::shard ? axes.of_shard(0) : axes.of_replica(0);
    const auto& ids = cards[static_cast<size_t>(first)].ids[static_cast<size_t>(axis)];
    DeviceGroup::Pair& pair = pairs[static_cast<size_t>(axis)];
    for (const size_t which : {size_t{0}, size_t{1}}) {
      MERON_ASSIGN(auto communicator,
                   library.begin(ids[which], static_cast<int>(ranks_of(axes, axis)),
                                 place_on(axes, axis), side().device().info().index, timeout,
                                 window > 0 && axis == DeviceAxis::shard && which == 0));
      MERON_TRY(await_devices(
          held, [&] { return communicator->ready(); }, "opening a communicator"));
      (which == 0 ? pair.gathers : pair.sums) = std::move(communicator);
    }
  }
  std::shared_ptr<DeviceCommunicator> gathers =
      pairs[static_cast<size_t>(DeviceAxis::shard)].gathers;
  auto devices = std::make_unique<DeviceGroup>(side(), channel_, std::move(pairs));
  Status tried = Ok{};
  if (window > 0 && gathers) tried = open_window(side(), *devices, *gathers, window);
  // A library that has none is no obstacle: values are then gathered elsewhere.
  if (!tried.ok() && tried.error().code() == MERON_E_UNSUPPORTED) {
    put_text(own_.reason, tried.error().info().what);
    tried = Ok{};
  }
  for (const DeviceAxis axis : kAxes) {
    if (tried.ok() && devices->has(axis)) {
      tried = try_axis(held, *devices, axis);
    }
  }
  devices->set_registers(verdict.registers);
  if (tried.ok() && verdict.registers) {
    const Status registered = try_registration(side(), *devices);
    if (!registered.ok()) put_text(own_.unregistered, registered.error().info().what);
  }
  if (tried.ok()) return devices;
  // Operations under way would keep the streams busy.
  {
    const Recess recess;
    const Status aborted = DeviceCommunicator::abort(devices->take_for_abort());
    if (!aborted.ok() && aborted.error().code() == MERON_E_TIMEOUT) return aborted.error();
  }
  side().synchronize();
  return std::move(tried).error();
}

Status DeviceJoining::join_by_host(const std::string& reason) {
  const Plan& plan = context_.options_.plan;
  if (plan.param.secondary_partition && group_.axes.replicas()) {
    return Error(MERON_E_UNSUPPORTED,
                 fmt::format("plan '{}' keeps a secondary partition on tier device, which "
                             "needs devices that are joined: {}",
                             plan.name, reason),
                 "use tier host, or leave secondary_partition out")
        .on("plan");
  }
  if (plan.param.sharding != plan.optimizer.sharding) {
    return Error(MERON_E_UNSUPPORTED,
                 fmt::format("plan '{}' shards the optimizer further than the parameters on tier "
                             "device, which needs devices that are joined: {}",
                             plan.name, reason),
                 "use tier host, or shard both alike")
        .on("plan");
  }
  report(LogLevel::warning,
         fmt::format("tensors on devices are exchanged through the host: {}", reason));
  return Ok{};
}

Status DeviceJoining::join(Held& held) {
  std::shared_ptr<const DeviceCollectives> library;
  {
    const Recess recess;  // it loads the library
    own_ = card_of(side().device(), group_.axes, &library);
  }
  MERON_ASSIGN(const DeviceCards shown, make_cards(held));
  MERON_ASSIGN(outcomes_, make_cards(held));
  MERON_ASSIGN(const auto cards, exchange_cards(held, shown));
  std::vector<DevicePlace> places;
  for (int m = 0; m < channel_.size(); ++m) {
    const int rank = channel_.members().world_rank(m);
    places.push_back({rank, transport().node(rank)});
  }
  DeviceVerdict verdict = judge_devices(cards, places, context_.options_.plan);
  if (verdict.error) return *verdict.error;
  if (!verdict.joins) return join_by_host(verdict.reason);

  auto opened = open_group(held, *library, cards, verdict);
  MERON_TRY(channel_.status());
  own_.state = opened.ok() ? DeviceCard::usable : DeviceCard::refused;
  if (!opened.ok()) {
    const bool own_fault = opened.error().code() != MERON_E_ABORTED;
    put_text(own_.reason, own_fault ? opened.error().info().what : "");
  }
  own_.free_bytes = UINT64_MAX;  // the window has been taken from them
  MERON_ASSIGN(const auto ends, exchange_cards(held, outcomes_));
  verdict = judge_devices(ends, places, context_.options_.plan);
  if (!verdict.joins) return join_by_host(verdict.reason);
  group_.devices = std::move(*opened);
  group_.devices->set_registers(verdict.registers);
  if (verdict.registers) verdict.notice += "; values are registered with it";
  if (verdict.window == 0) group_.devices->gather_within(nullptr);
  if (group_.devices->window() != nullptr) {
    verdict.notice +=
        fmt::format("; whole values are gathered within {}", human_bytes(verdict.window));
  }
  group_.axes.devices = group_.devices.get();
  if (!context_.threads_.devices)
    context_.threads_.devices = std::make_unique<DeviceWatch>(context_);
  report(LogLevel::info, fmt::format("the devices of {} ranks are joined by {}{}", channel_.size(),
                                     library->name(), verdict.notice));
  return context_.check_open();
}

// All members call it; all get the same.
Status Context::join_devices(Group& group) {
  auto held = lock();
  const bool wanted = rank_->device && uses_device(options_.plan) && group.channel &&
                      group.channel->size() > 1 && !group.no_mesh;
  if (!wanted) return Ok{};
  const PendingOperations::Working working(pending_);
  return DeviceJoining(*this, group).join(held);
}

}  // namespace meron
