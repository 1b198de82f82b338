// SPDX-License-Identifier: Apache-2.0
#include "engine/device_joining.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "collective/collective.h"
#include "device/modules.h"
#include "engine/context.h"
#include "engine/device_watch.h"
#include "param/device_group.h"
#include "plan/quantity.h"
#include "plan/text.h"

namespace meron {
namespace {

constexpr int64_t kPauseNs = kNanosPerMilli;
constexpr int64_t kInspectNs = 20 * kNanosPerMilli;
constexpr const char* kRegisterVariable = "MERON_REGISTER_VALUES";
constexpr const char* kWindowVariable = "MERON_GATHER_WINDOW";
// Of what is sent to try a communicator.
constexpr uint64_t kTrialBytes = 256;

template <size_t N>
std::string_view text_of(const std::array<char, N>& text) {
  return {text.data(), strnlen(text.data(), N)};
}

template <size_t N>
void put_text(std::array<char, N>& to, std::string_view text) {
  to.fill('\0');
  std::memcpy(to.data(), text.data(), std::min(text.size(), N - 1));
}

// As long as others may be writing the card.
uint32_t state_of(const std::byte* card) {
  auto& word = *reinterpret_cast<uint32_t*>(const_cast<std::byte*>(card));
  return std::atomic_ref(word).load();
}

DeviceVerdict without(std::string reason) {
  DeviceVerdict verdict;
  verdict.reason = std::move(reason);
  return verdict;
}

// A library may take registered memory on one rank for registered memory on all.
void judge_registration(std::span<const DeviceCard> cards, std::span<const DevicePlace> places,
                        DeviceVerdict* verdict) {
  const uint32_t wanted = cards.front().registers;
  for (size_t m = 0; m < cards.size(); ++m) {
    if (cards[m].registers != wanted) {
      verdict->notice += fmt::format("; no values are registered: {} differs on ranks {} and {}",
                                     kRegisterVariable, places[0].rank, places[m].rank);
      return;
    }
    if (!text_of(cards[m].unregistered).empty()) {
      verdict->notice += fmt::format("; no values are registered: rank {}: {}", places[m].rank,
                                     text_of(cards[m].unregistered));
      return;
    }
  }
  verdict->registers = wanted != 0;
}

// The window, which all ranks have or none.
void judge_windows(std::span<const DeviceCard> cards, std::span<const DevicePlace> places,
                   DeviceVerdict* verdict) {
  const uint64_t wanted = cards.front().window;
  for (size_t m = 0; m < cards.size(); ++m) {
    if (cards[m].window != DeviceCard::kNoNumber) continue;
    verdict->error =
        Error(MERON_E_ARGUMENT,
              fmt::format("{} of rank {} is no number of bytes", kWindowVariable, places[m].rank),
              "say \"2 GiB\", for example, or leave it out")
            .blaming(places[m].rank);
    return;
  }
  for (size_t m = 0; m < cards.size(); ++m) {
    if (text_of(cards[m].reason).empty()) continue;
    verdict->notice += fmt::format("; values are gathered within no window: rank {}: {}",
                                   places[m].rank, text_of(cards[m].reason));
    return;
  }
  for (size_t m = 1; m < cards.size(); ++m) {
    if (cards[m].window == wanted) continue;
    verdict->notice +=
        fmt::format("; values are gathered within no window: {} differs on ranks {} and {}",
                    kWindowVariable, places[0].rank, places[m].rank);
    return;
  }
  for (size_t m = 0; m < cards.size(); ++m) {
    if (cards[m].free_bytes >= wanted) continue;
    verdict->error =
        Error(MERON_E_NO_MEMORY,
              fmt::format("rank {} has {} bytes of its device free, of {} that {} asks for",
                          places[m].rank, cards[m].free_bytes, wanted, kWindowVariable),
              "ask for less, or leave it out: values are then gathered elsewhere")
            .blaming(places[m].rank);
    return;
  }
  verdict->window = wanted;
}

}  // namespace

DeviceVerdict judge_devices(std::span<const DeviceCard> cards,
                            std::span<const DevicePlace> places) {
  const DeviceCard& first = cards.front();
  for (size_t m = 0; m < cards.size(); ++m) {
    if (text_of(cards[m].kind) == text_of(first.kind)) continue;
    return without(fmt::format("rank {} computes on {}, rank {} on {}", places[0].rank,
                               text_of(first.kind), places[m].rank, text_of(cards[m].kind)));
  }
  // One that stopped for another's sake gives no reason.
  const DeviceCard* refused = nullptr;
  for (const DeviceCard& card : cards) {
    if (card.state == DeviceCard::usable) continue;
    if (refused == nullptr || text_of(refused->reason).empty()) refused = &card;
  }
  if (refused != nullptr) {
    return without(fmt::format("rank {}: {}",
                               places[static_cast<size_t>(refused - cards.data())].rank,
                               text_of(refused->reason)));
  }
  DeviceVerdict verdict;
  for (size_t m = 1; m < cards.size(); ++m) {
    if (cards[m].version != first.version || text_of(cards[m].library) != text_of(first.library)) {
      verdict.error =
          Error(MERON_E_VERSION,
                fmt::format("rank {} has collectives of version {}, rank {} of version {}",
                            places[0].rank, text_of(first.library), places[m].rank,
                            text_of(cards[m].library)),
                "let all ranks load the same library; `meron info` says which one a rank loads")
              .blaming(places[m].rank);
      return verdict;
    }
    for (size_t other = 0; other < m; ++other) {
      if (places[other].node != places[m].node) continue;
      if (text_of(cards[other].bus) != text_of(cards[m].bus)) continue;
      return without(fmt::format("ranks {} and {} share device {} ({})", places[other].rank,
                                 places[m].rank, text_of(cards[m].bus), text_of(cards[m].name)));
    }
    if (verdict.notice.empty() && text_of(cards[m].name) != text_of(first.name)) {
      verdict.notice =
          fmt::format("; rank {} has {}, rank {} {}: the slower sets the pace", places[0].rank,
                      text_of(first.name), places[m].rank, text_of(cards[m].name));
    }
  }
  judge_registration(cards, places, &verdict);
  judge_windows(cards, places, &verdict);
  verdict.joins = !verdict.error;
  return verdict;
}

namespace {

// How far a rank is along an axis.
int place_on(const Axes& axes, DeviceAxis axis) {
  return axis == DeviceAxis::shard ? axes.own_shard() : axes.own_replica();
}
uint64_t ranks_of(const Axes& axes, DeviceAxis axis) {
  return axis == DeviceAxis::shard ? axes.mesh.shards : axes.mesh.replicas;
}
constexpr std::array kAxes = {DeviceAxis::shard, DeviceAxis::replica};

uint64_t wanted_window() {
  const char* const text = std::getenv(kWindowVariable);
  if (text == nullptr || *text == '\0') return 0;
  const auto bytes = parse_quantity(text, QuantityKind::bytes);
  return bytes.ok() ? static_cast<uint64_t>(*bytes) : DeviceCard::kNoNumber;
}

// This rank's card, and the library that it is about.
DeviceCard card_of(const Device& device, const Axes& axes,
                   std::shared_ptr<const DeviceCollectives>* library) {
  DeviceCard card;
  put_text(card.kind, device.kind());
  put_text(card.bus, text_of(std::to_array(device.info().bus)));
  put_text(card.name, text_of(std::to_array(device.info().name)));
  const char* const registers = std::getenv(kRegisterVariable);
  card.registers = registers != nullptr && std::string_view(registers) == "1" ? 1 : 0;
  card.window = wanted_window();
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

}  // namespace

Status Context::await_locked(Held& held, const std::shared_ptr<Operation>& operation) {
  while (true) {
    progress_locked(held);
    if (!operation->ended() && operation->inspection_due(now_ns(), kInspectNs)) {
      inspect_locked(held, *operation);
    }
    if (operation->error()) return *operation->error();
    if (operation->ended()) return Ok{};
    MERON_TRY(rest(held, kPauseNs));
  }
}

// Until `come` says so, or a rank has shown in `outcomes` that it cannot go on.
Status Context::await_devices_locked(Held& held, Channel& channel, const DeviceCards& outcomes,
                                     const std::function<Result<bool>()>& come, Deadline deadline,
                                     const char* what) {
  while (true) {
    MERON_ASSIGN(const bool here, come());
    if (here) return Ok{};
    for (uint64_t m = 0; m < outcomes.count; ++m) {
      if (state_of(outcomes.of(m)) != DeviceCard::refused) continue;
      return Error(MERON_E_ABORTED, fmt::format("rank {} could not go on",
                                                channel.members().world_rank(static_cast<int>(m))));
    }
    if (deadline.passed()) {
      return Error(MERON_E_TIMEOUT, fmt::format("{} took too long", what),
                   "NCCL_DEBUG=INFO shows what NCCL waits for");
    }
    MERON_TRY(channel.check_present(channel.posted() + 1, Deadline::never()));
    MERON_TRY(rest(held, kPauseNs));
  }
}

Result<DeviceCards> Context::make_cards_locked(Held& /*held*/, Group& group) {
  const auto members = static_cast<uint64_t>(group.channel->size());
  const uint64_t bytes = sizeof(DeviceCard) * members;
  MERON_ASSIGN(const uint64_t offset,
               transport_->window_allocate(bytes, "the devices", group.axes.number));
  MERON_TRY(transport_->window().reserve(offset, bytes));
  control_bytes_ += bytes;
  const uint64_t own = sizeof(DeviceCard) * static_cast<uint64_t>(group.channel->index());
  return DeviceCards{transport_->window().writable(offset + own),
                     transport_->window().readable(offset), members};
}

// All members show theirs, and see all of them after a barrier.
Result<std::vector<DeviceCard>> Context::exchange_cards_locked(Held& held, Channel& channel,
                                                               const DeviceCards& cards,
                                                               const DeviceCard& own) {
  std::memcpy(cards.own + sizeof(own.state),
              reinterpret_cast<const std::byte*>(&own) + sizeof(own.state),
              sizeof(own) - sizeof(own.state));
  std::atomic_ref(*reinterpret_cast<uint32_t*>(cards.own)).store(own.state);
  channel.share(cards.own, sizeof(own));
  transport_->ring();
  MERON_ASSIGN(const auto barrier, barrier_locked(held, channel));
  MERON_TRY(await_locked(held, barrier));
  std::vector<DeviceCard> all(cards.count);
  std::memcpy(all.data(), cards.all, sizeof(DeviceCard) * cards.count);
  return all;
}

// Sends a little of each kind along an axis, and looks at what has come.
Status Context::try_devices_locked(Held& held, DeviceGroup& devices, const Axes& axes,
                                   DeviceAxis axis, const DeviceCards& outcomes,
                                   Deadline deadline) {
  Channel& channel = devices.channel();
  DeviceSide& side = *rank_->device;
  Device& device = side.device();
  const uint64_t members = ranks_of(axes, axis);
  const auto own_place = static_cast<uint64_t>(place_on(axes, axis));
  const auto sign = static_cast<uint8_t>(own_place + 1);
  MERON_ASSIGN(const DeviceMemory room,
               device.allocate((2 * members + 1) * kTrialBytes, side.work(),
                               "trying the devices' collectives"));
  std::byte* own = room.data();
  std::byte* gathered = own + kTrialBytes;
  std::byte* const exchanged = gathered + members * kTrialBytes;
  std::optional<DeviceMemory> placed;
  if (axis == DeviceAxis::shard && devices.window() != nullptr) {
    MERON_ASSIGN(placed, devices.window()->take(members * kTrialBytes));
  }
  if (placed) {
    gathered = placed->data();
    own = gathered + own_place * kTrialBytes;
  }
  MERON_TRY(device.fill(own, sign, kTrialBytes, side.work()));
  MERON_TRY(device.fill(exchanged + own_place * kTrialBytes, sign, kTrialBytes, side.work()));
  MERON_ASSIGN(const DeviceEvent filled, device.record(side.work()));
  MERON_TRY(device.wait(side.up(), filled));
  const uint64_t call = channel.posted();
  const DeviceGroup::Part part{own, gathered, kTrialBytes};
  MERON_TRY(devices.all_gather(axis, std::span(&part, 1), {call, deadline, "trial of a gather"}));
  std::vector<meron_exchange_piece> pieces;
  for (uint64_t m = 0; m < members; ++m) {
    if (m == own_place) continue;
    pieces.push_back(
        {static_cast<int32_t>(m), 0, own, kTrialBytes, exchanged + m * kTrialBytes, kTrialBytes});
  }
  MERON_TRY(devices.exchange(axis, pieces, {call, deadline, "trial of an exchange"}));
  const auto come = [&]() -> Result<bool> {
    MERON_TRY(devices.status());
    return devices.oldest() == nullptr;
  };
  MERON_TRY(await_devices_locked(held, channel, outcomes, come, deadline,
                                 "the first collectives between the devices"));
  std::vector<std::byte> here(2 * members * kTrialBytes);
  const uint64_t half = here.size() / 2;
  MERON_TRY(device.copy(here.data(), gathered, half, side.work()));
  MERON_TRY(device.copy(here.data() + half, exchanged, half, side.work()));
  MERON_TRY(device.synchronize(side.work()));
  for (uint64_t i = 0; i < here.size(); ++i) {
    const uint64_t m = i / kTrialBytes % members;
    if (here[i] == static_cast<std::byte>(static_cast<uint8_t>(m + 1))) continue;
    return Error(
        MERON_E_CORRUPT,
        fmt::format("what came by a trial from rank {} of the axis is not what it sent", m),
        "check the links between the devices");
  }
  return Ok{};
}

Status Context::open_window_locked(Held& /*held*/, DeviceGroup& devices,
                                   DeviceCommunicator& gathers, uint64_t bytes) {
  std::optional<Result<DeviceWindow>> opened;
  {
    const Recess recess;  // peers are waited for
    opened.emplace(gathers.open_window(bytes));
  }
  MERON_ASSIGN(DeviceWindow window, *std::move(opened));
  devices.gather_within(std::make_shared<GatherWindow>(rank_->device->device().shared_from_this(),
                                                       rank_->device->up(), std::move(window)));
  return Ok{};
}

// Memory is registered, and at once no more, since peers may turn out to register none.
Status Context::try_registration_locked(Held& /*held*/, DeviceGroup& devices) {
  DeviceSide& side = *rank_->device;
  MERON_ASSIGN(const DeviceMemory room,
               side.device().allocate(kTrialBytes, side.work(), "trying to register memory"));
  MERON_ASSIGN([[maybe_unused]] const auto tried,
               devices.register_values(room.data(), kTrialBytes));
  return Ok{};
}

Result<std::unique_ptr<DeviceGroup>> Context::open_device_group_locked(
    Held& held, Group& group, const DeviceCollectives& library, std::span<const DeviceCard> cards,
    const DeviceVerdict& verdict, const DeviceCards& outcomes, Deadline deadline, DeviceCard* own) {
  const uint64_t window = verdict.window;
  Channel& channel = *group.channel;
  const Axes& axes = group.axes;
  const auto timeout =
      std::chrono::milliseconds(std::max<int64_t>(1, rank_->timeout_ns / kNanosPerMilli));
  DeviceGroup::Pairs pairs;
  for (const DeviceAxis axis : kAxes) {
    if (ranks_of(axes, axis) == 1) continue;
    const int first = axis == DeviceAxis::shard ? axes.of_shard(0) : axes.of_replica(0);
    const auto& ids = cards[static_cast<size_t>(first)].ids[static_cast<size_t>(axis)];
    DeviceGroup::Pair& pair = pairs[static_cast<size_t>(axis)];
    for (const size_t which : {size_t{0}, size_t{1}}) {
      MERON_ASSIGN(auto communicator,
                   library.begin(ids[which], static_cast<int>(ranks_of(axes, axis)),
                                 place_on(axes, axis), rank_->device->device().info().index,
                                 timeout, window > 0 && axis == DeviceAxis::shard && which == 0));
      MERON_TRY(await_devices_locked(
          held, channel, outcomes, [&] { return communicator->ready(); }, deadline,
          "opening a communicator"));
      (which == 0 ? pair.gathers : pair.sums) = std::move(communicator);
    }
  }
  std::shared_ptr<DeviceCommunicator> gathers =
      pairs[static_cast<size_t>(DeviceAxis::shard)].gathers;
  auto devices = std::make_unique<DeviceGroup>(*rank_->device, channel, std::move(pairs));
  Status tried = Ok{};
  if (window > 0 && gathers) tried = open_window_locked(held, *devices, *gathers, window);
  // A library that has none is no obstacle: values are then gathered elsewhere.
  if (!tried.ok() && tried.error().code() == MERON_E_UNSUPPORTED) {
    put_text(own->reason, tried.error().info().what);
    tried = Ok{};
  }
  for (const DeviceAxis axis : kAxes) {
    if (tried.ok() && devices->has(axis)) {
      tried = try_devices_locked(held, *devices, axes, axis, outcomes, deadline);
    }
  }
  devices->set_registers(verdict.registers);
  if (tried.ok() && verdict.registers) {
    const Status registered = try_registration_locked(held, *devices);
    if (!registered.ok()) put_text(own->unregistered, registered.error().info().what);
  }
  if (tried.ok()) return devices;
  // What is under way would keep the streams.
  devices->abort();
  rank_->device->synchronize();
  return std::move(tried).error();
}

Status Context::join_devices(Group& group) {
  auto held = lock();
  ++running_;
  Status joined = join_devices_locked(held, group);
  --running_;
  return joined;
}

Status Context::join_devices_locked(Held& held, Group& group) {
  const bool wanted = rank_->device && uses_device(options_.plan) && group.channel &&
                      group.channel->size() > 1 && !group.no_mesh;
  if (!wanted) return Ok{};
  Channel& channel = *group.channel;
  const Deadline deadline = Deadline::after(rank_->timeout_ns / 2);
  const auto tell = [&](LogLevel level, const std::string& text) {
    if (channel.index() != 0 || !options_.log) return;
    const Recess recess;
    options_.log(level, text);
  };
  const Plan& plan = options_.plan;
  const auto by_host = [&](const std::string& reason) {
    if (plan.second_copy && group.axes.replicas()) {
      return Status(
          Error(MERON_E_UNSUPPORTED,
                fmt::format("plan '{}' keeps a second copy of parameters on tier device, which "
                            "needs devices that are joined: {}",
                            plan.name, reason),
                "use tier host, or leave second_copy out")
              .on("plan"));
    }
    if (plan.param.sharding != plan.optimizer.sharding) {
      return Status(
          Error(MERON_E_UNSUPPORTED,
                fmt::format("plan '{}' shards the optimizer further than the parameters on tier "
                            "device, which needs devices that are joined: {}",
                            plan.name, reason),
                "use tier host, or shard both alike")
              .on("plan"));
    }
    tell(LogLevel::warning,
         fmt::format("tensors on devices are exchanged through the host: {}", reason));
    return Status(Ok{});
  };
  std::shared_ptr<const DeviceCollectives> library;
  DeviceCard own;
  {
    const Recess recess;  // it loads the library
    own = card_of(rank_->device->device(), group.axes, &library);
  }
  MERON_ASSIGN(const DeviceCards shown, make_cards_locked(held, group));
  MERON_ASSIGN(const DeviceCards outcomes, make_cards_locked(held, group));
  MERON_ASSIGN(const auto cards, exchange_cards_locked(held, channel, shown, own));
  std::vector<DevicePlace> places;
  for (int m = 0; m < channel.size(); ++m) {
    const int rank = channel.members().world_rank(m);
    places.push_back({rank, transport_->node(rank)});
  }
  DeviceVerdict verdict = judge_devices(cards, places);
  if (verdict.error) return *verdict.error;
  if (!verdict.joins) return by_host(verdict.reason);

  auto opened =
      open_device_group_locked(held, group, *library, cards, verdict, outcomes, deadline, &own);
  MERON_TRY(channel.status());
  own.state = opened.ok() ? DeviceCard::usable : DeviceCard::refused;
  if (!opened.ok()) {
    const bool own_fault = opened.error().code() != MERON_E_ABORTED;
    put_text(own.reason, own_fault ? opened.error().info().what : "");
  }
  own.free_bytes = UINT64_MAX;  // the window has been taken from them
  MERON_ASSIGN(const auto ends, exchange_cards_locked(held, channel, outcomes, own));
  verdict = judge_devices(ends, places);
  if (!verdict.joins) return by_host(verdict.reason);
  group.devices = std::move(*opened);
  group.devices->set_registers(verdict.registers);
  if (verdict.registers) verdict.notice += "; values are registered with it";
  if (verdict.window == 0) group.devices->gather_within(nullptr);
  if (group.devices->window() != nullptr) {
    verdict.notice +=
        fmt::format("; whole values are gathered within {}", human_bytes(verdict.window));
  }
  group.axes.devices = group.devices.get();
  if (!device_watch_) device_watch_ = std::make_unique<DeviceWatch>(*this);
  tell(LogLevel::info, fmt::format("the devices of {} ranks are joined by {}{}", channel.size(),
                                   library->name(), verdict.notice));
  return check_open();
}

}  // namespace meron
