// SPDX-License-Identifier: Apache-2.0
#include "dlpack.h"
#include "operations.h"

namespace conformance {
namespace {

// A tensor has one owner, who calls its deleter once.
struct Dlpack : Object {
  explicit Dlpack(DLManagedTensorVersioned* given) : tensor(given) {}
  ~Dlpack() override { Dlpack::release(); }
  void release() override {
    if (tensor != nullptr) tensor->deleter(tensor);
    tensor = nullptr;
  }
  DLManagedTensorVersioned* tensor;
};

meron_gather_mode mode_of(const std::string& name) {
  if (name == "view") return MERON_GATHER_VIEW;
  if (name == "copy") return MERON_GATHER_COPY;
  if (name == "into") return MERON_GATHER_INTO;
  throw Malformed{"unknown mode '" + name + "'"};
}

meron_tier tier_of(const std::string& name) {
  if (name == "device") return MERON_TIER_DEVICE;
  if (name == "host") return MERON_TIER_HOST;
  throw Malformed{"unknown tier '" + name + "'"};
}

// A destination per param of the units, each filled with -1.
std::vector<meron_destination> make_destinations(Session& session, const Statement& statement,
                                                 Gather& gather) {
  std::vector<meron_destination> destinations;
  const Values before = session.values("fill:-1");
  for (const std::string& unit : statement.list("units")) {
    for (const meron_param param : session.find<Unit>(unit).params) {
      const meron_param_info info = info_of(param);
      std::vector<std::byte>& buffer = gather.buffers[param.id];
      buffer = stored(before, info.dtype, info.count);
      buffer.reserve(1);  // a valid address even if the buffer is empty
      destinations.push_back({param, buffer.data(), buffer.size()});
    }
  }
  return destinations;
}

// The same per flat.
std::vector<meron_flat_destination> make_flats(Session& session, const Statement& statement,
                                               Gather& gather) {
  std::vector<meron_flat_destination> destinations;
  const Values before = session.values("fill:-1");
  for (const meron_unit unit : session.units(statement)) {
    meron_unit_info info{};
    info.struct_size = sizeof info;
    call(meron_unit_get_info, &info, unit);
    for (uint64_t i = 0; i < info.flats; ++i) {
      const meron_flat_info flat = flat_of(unit, i);
      std::vector<std::byte>& buffer =
          gather.flats.emplace_back(stored(before, flat.dtype, flat.elements));
      check_equal("the bytes", static_cast<double>(flat.bytes), static_cast<double>(buffer.size()));
      destinations.push_back({unit, i, buffer.data(), buffer.size()});
    }
  }
  return destinations;
}

std::unique_ptr<Gather> begun(Session& session, const Statement& statement) {
  const std::vector<meron_unit> units = session.units(statement);
  auto gather = std::make_unique<Gather>();
  meron_gather_options options{};
  call(meron_gather_options_init, &options, sizeof options);
  options.mode = gather->mode = mode_of(statement.get("mode", "view"));
  options.tier = tier_of(statement.get("tier", "device"));
  std::vector<meron_destination> destinations;
  std::vector<meron_flat_destination> flats;
  if (gather->mode == MERON_GATHER_INTO && statement.get("by", "param") == "flat") {
    flats = make_flats(session, statement, *gather);
    options.flats = flats.data();
    options.flat_count = flats.size();
  } else if (gather->mode == MERON_GATHER_INTO) {
    destinations = make_destinations(session, statement, *gather);
    options.destinations = destinations.data();
    options.destination_count = destinations.size();
  }
  meron_future handle{};
  call(meron_gather_begin, &handle, units.data(), units.size(),
       static_cast<const meron_gather_options*>(&options));
  gather->owned = std::make_unique<Owned<meron_future, meron_future_release>>(handle);
  return gather;
}

void gather_begin(Session& session, const Statement& statement) {
  session.keep(statement.name, begun(session, statement));
}

void gather(Session& session, const Statement& statement) {
  std::unique_ptr<Gather> gather = begun(session, statement);
  call(meron_future_wait, gather->owned->handle, int64_t{MERON_TIMEOUT_DEFAULT});
  session.keep(statement.name, std::move(gather));
}

void wait_stream(Session& session, const Statement& statement) {
  call(meron_gather_wait_stream, session.find<Gather>(statement.name).owned->handle,
       static_cast<void*>(nullptr), int64_t{MERON_TIMEOUT_DEFAULT});
}

void release_on_stream(Session& session, const Statement& statement) {
  const Gather& gather = session.find<Gather>(statement.name);
  call(meron_gather_release_on_stream, gather.owned->handle, static_cast<void*>(nullptr));
  gather.owned->ended();
}

meron_view view_of(Session& session, const Gather& gather, meron_param param) {
  meron_view view{};
  call(meron_gather_view, &view, gather.owned->handle, param);
  const meron_param_info info = info_of(param);
  check_equal("the dtype", name_of(view.dtype), name_of(info.dtype));
  check_equal("the count", static_cast<double>(view.count), static_cast<double>(info.count));
  check(view.offset == 0 && view.data != nullptr, "the view is not of the whole tensor");
  check_equal("writable", view.writable, gather.mode == MERON_GATHER_VIEW ? 0 : 1);
  const auto buffer = gather.buffers.find(param.id);
  check(buffer == gather.buffers.end() || buffer->second.data() == view.data,
        "rank " + std::to_string(session.setup.rank) + ": not the caller's memory");
  return view;
}

// Every rank of the world has these bytes: the sum of each half of the CRC is a multiple of it.
void check_same(Session& session, const void* data, size_t bytes) {
  const auto crc = static_cast<uint32_t>(std::stoul(crc32_of(data, bytes), nullptr, 16));
  const float own[] = {static_cast<float>(crc >> 16), static_cast<float>(crc & 0xffff)};
  float sums[] = {own[0], own[1]};
  meron_future future{};
  call(meron_all_reduce_begin, &future, session.current().world->handle, static_cast<void*>(sums),
       std::size(sums), meron_dtype{MERON_F32}, meron_reduce_op{MERON_REDUCE_OP_SUM});
  finish(future);
  const auto world = static_cast<float>(session.setup.world);
  check(sums[0] == world * own[0] && sums[1] == world * own[1], "the ranks differ");
}

void full(Session& session, const Statement& statement) {
  const meron_view view = view_of(session, session.find<Gather>(statement.name),
                                  session.find<Param>(statement.get("param")).handle);
  session.check_data(statement, view.dtype, view.data, view.count);
  if (statement.get("same", "0") == "1") {
    check_same(session, view.data, view.count * meron_dtype_size(view.dtype));
  }
}

void overwrite(Session& session, const Statement& statement) {
  const Gather& gather = session.find<Gather>(statement.name);
  if (gather.mode == MERON_GATHER_VIEW) throw Malformed{"a view is not to be written"};
  const meron_view view =
      view_of(session, gather, session.find<Param>(statement.get("param")).handle);
  const Values values = session.values(statement.get("with"));
  for (uint64_t i = 0; i < view.count; ++i) store(view.dtype, view.data, i, values.at(i));
}

void dlpack(Session& session, const Statement& statement) {
  const meron_param param = session.find<Param>(statement.get("param")).handle;
  DLManagedTensorVersioned* out = nullptr;
  call(meron_gather_dlpack, &out, session.find<Gather>(statement.get("gather")).owned->handle,
       param);
  auto owned = std::make_unique<Dlpack>(out);
  const meron_param_info info = info_of(param);
  const DLTensor& tensor = out->dl_tensor;
  check_equal("the major version", out->version.major, 1);
  check(tensor.device.device_type == 1, "not on the CPU");
  check(std::vector<int64_t>(tensor.shape, tensor.shape + tensor.ndim) ==
            std::vector<int64_t>(info.shape, info.shape + info.dims),
        "another shape");
  check_equal("the element's code", tensor.dtype.code, info.dtype == MERON_BF16 ? 4 : 2);
  check_equal("the element's bits", tensor.dtype.bits,
              static_cast<double>(8 * meron_dtype_size(info.dtype)));
  session.check_data(statement, info.dtype, static_cast<char*>(tensor.data) + tensor.byte_offset,
                     info.count);
  session.keep(statement.name, std::move(owned));
}

void reduced_dlpack(Session& session, const Statement& statement) {
  const meron_param param = session.find<Param>(statement.get("param")).handle;
  DLManagedTensorVersioned* out = nullptr;
  call(meron_reduced_dlpack, &out, param);
  auto owned = std::make_unique<Dlpack>(out);
  const meron_param_info info = info_of(param);
  const DLTensor& tensor = out->dl_tensor;
  check(tensor.device.device_type == 1, "not on the CPU");
  check(tensor.ndim == 1 && tensor.shape[0] == static_cast<int64_t>(info.shard_count),
        "another shape");
  check(tensor.dtype.code == 2 && tensor.dtype.bits == 32, "not f32");
  check(out->flags == 0, "read-only");
  session.check_data(statement, MERON_F32, static_cast<char*>(tensor.data) + tensor.byte_offset,
                     info.shard_count, info.shard_offset);
  session.keep(statement.name, std::move(owned));
}

}  // namespace

Operations gather_operations() {
  return {{"gather", gather},
          {"gather_begin", gather_begin},
          {"wait_stream", wait_stream},
          {"release_on_stream", release_on_stream},
          {"full", full},
          {"overwrite", overwrite},
          {"dlpack", dlpack},
          {"reduced_dlpack", reduced_dlpack}};
}

}  // namespace conformance
