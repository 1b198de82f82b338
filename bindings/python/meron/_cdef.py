# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
"""The C interface as cffi reads it."""

from __future__ import annotations

# The version of the headers that the declarations were made from.
VERSION = "0.2.0"

CDEF = """
#define MERON_VERSION_MAJOR 0
#define MERON_VERSION_MINOR 2
#define MERON_VERSION_PATCH 0
#define MERON_VERSION 512
#define MERON_RANK_NONE -1
#define MERON_TIMEOUT_DEFAULT -1
typedef int32_t meron_status;
enum {
  MERON_OK = 0,
  MERON_IN_PROGRESS = 1,
  MERON_E_ARGUMENT = -100,
  MERON_E_HANDLE = -101,
  MERON_E_STALE = -102,
  MERON_E_STATE = -103,
  MERON_E_DUPLICATE = -104,
  MERON_E_UNSUPPORTED = -105,
  MERON_E_PARSE = -106,
  MERON_E_NONFINITE = -107,
  MERON_E_CANCELLED = -108,
  MERON_E_NO_MEMORY = -200,
  MERON_E_IO = -201,
  MERON_E_NOT_FOUND = -202,
  MERON_E_CORRUPT = -203,
  MERON_E_NO_SPACE = -204,
  MERON_E_DEVICE = -205,
  MERON_E_TIMEOUT = -300,
  MERON_E_PEER_DEAD = -301,
  MERON_E_PEER_CLOSED = -302,
  MERON_E_MISMATCH = -303,
  MERON_E_ABORTED = -304,
  MERON_E_AUTH = -305,
  MERON_E_VERSION = -306,
  MERON_E_FORKED = -400,
  MERON_E_CLOSED = -401,
  MERON_E_INTERNAL = -402,
};
typedef int32_t meron_dtype;
enum {
  MERON_F32 = 0,
  MERON_BF16 = 1,
  MERON_F16 = 2,
  MERON_F64 = 3,
  MERON_I64 = 4,
};
typedef struct meron_error meron_error;
meron_status meron_error_code(const meron_error *error);
const char *meron_error_message(const meron_error *error);
const char *meron_error_operation(const meron_error *error);
const char *meron_error_subject(const meron_error *error);
const char *meron_error_advice(const meron_error *error);
int32_t meron_error_rank(const meron_error *error);
int32_t meron_error_peer(const meron_error *error);
void meron_error_free(meron_error *error);
const char *meron_status_name(meron_status status);
uint32_t meron_version(void);
const char *meron_version_string(void);
meron_status meron_system_info(char **out, meron_error **err);
void meron_string_free(char *string);
size_t meron_dtype_size(meron_dtype dtype);
typedef struct { uint64_t id; } meron_future;
meron_status meron_future_wait(meron_future future, int64_t timeout_ns, meron_error **err);
meron_status meron_future_poll(meron_future future, meron_error **err);
meron_status meron_future_release(meron_future future, meron_error **err);
meron_status meron_future_finish(meron_future future, int64_t timeout_ns, meron_error **err);
meron_status meron_future_wait_any(size_t *out, const meron_future *futures, size_t count, int64_t
    timeout_ns, meron_error **err);
typedef struct { uint64_t id; } meron_plan;
meron_status meron_plan_preset(meron_plan *out, const char *name, meron_error **err);
meron_status meron_plan_parse(meron_plan *out, const char *json, size_t bytes, meron_error **err);
meron_status meron_plan_json(char **out, meron_plan plan, meron_error **err);
meron_status meron_plan_table(char **out, meron_plan plan, meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t ranks;
  uint32_t micro_batches;
  uint32_t gathers_per_micro_batch;
  uint32_t ranks_per_node;
  uint32_t optimizer_states;
  uint32_t reserved_0;
} meron_workload;
meron_status meron_workload_init(meron_workload *workload, size_t struct_size, meron_error **err);
meron_status meron_plan_predict(char **out, meron_plan plan, const char *model, size_t bytes, const
    meron_workload *workload, uint32_t table, meron_error **err);
meron_status meron_plan_release(meron_plan plan, meron_error **err);
typedef meron_status (*meron_send_fn)(void *user, uint64_t *request, int32_t peer, uint64_t tag,
    const void *data, uint64_t bytes);
typedef meron_status (*meron_receive_fn)(void *user, uint64_t *request, int32_t peer, uint64_t tag,
    void *data, uint64_t bytes);
typedef meron_status (*meron_test_fn)(void *user, uint64_t request, uint64_t *bytes);
typedef void (*meron_cancel_fn)(void *user, uint64_t request);
typedef void (*meron_idle_fn)(void *user, int64_t timeout_ns);
typedef int32_t (*meron_alive_fn)(void *user, int32_t peer);
typedef void (*meron_closed_fn)(void *user);
typedef struct {
  uint32_t struct_size;
  uint32_t reserved_0;
  const char *name;
  void *user;
  uint64_t max_message;
  meron_send_fn send;
  meron_receive_fn receive;
  meron_test_fn test;
  meron_cancel_fn cancel;
  meron_idle_fn idle;
  meron_alive_fn alive;
  meron_closed_fn closed;
} meron_transport;
meron_status meron_transport_init(meron_transport *transport, size_t struct_size, meron_error
    **err);
typedef struct { uint64_t id; } meron_context;
typedef int32_t meron_log_level;
enum {
  MERON_LOG_ERROR = 0,
  MERON_LOG_WARNING = 1,
  MERON_LOG_INFO = 2,
};
typedef void (*meron_log_fn)(void *user, meron_log_level level, const char *message, size_t length);
typedef int32_t (*meron_should_stop_fn)(void *user);
typedef void *(*meron_device_allocate_fn)(void *user, uint64_t bytes, void *stream);
typedef void (*meron_device_release_fn)(void *user, void *data, uint64_t bytes, void *stream);
typedef struct {
  uint32_t struct_size;
  uint32_t reserved_0;
  meron_device_allocate_fn allocate;
  meron_device_release_fn release;
  void *user;
} meron_allocator;
meron_status meron_allocator_init(meron_allocator *allocator, size_t struct_size, meron_error
    **err);
typedef struct {
  uint32_t struct_size;
  uint32_t header_version;
  int32_t rank;
  int32_t world_size;
  const char *transport;
  const char *job;
  const char *token;
  int64_t timeout_ns;
  uint64_t host_memory_limit;
  uint64_t arena_reserve;
  uint32_t threads;
  uint32_t reserved_0;
  meron_plan plan;
  meron_log_fn log;
  void *log_user;
  meron_should_stop_fn should_stop;
  void *should_stop_user;
  const meron_transport *custom;
  const char *device;
  const meron_allocator *allocator;
} meron_context_options;
meron_status meron_context_options_init(meron_context_options *options, size_t struct_size,
    meron_error **err);
meron_status meron_context_open(meron_context *out, const meron_context_options *options,
    meron_error **err);
meron_status meron_context_close(meron_context context, meron_error **err);
meron_status meron_context_rank(int32_t *out, meron_context context, meron_error **err);
meron_status meron_context_world_size(int32_t *out, meron_context context, meron_error **err);
meron_status meron_context_transport(const char **out, meron_context context, meron_error **err);
meron_status meron_context_plan_json(char **out, meron_context context, meron_error **err);
meron_status meron_context_progress(meron_context context, meron_error **err);
meron_status meron_context_event_fd(int32_t *out, meron_context context, meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t reserved_0;
  uint64_t gather_mapped_bytes;
  uint64_t gather_copied_bytes;
  uint64_t reduce_bytes;
  uint64_t collective_bytes;
  uint64_t operations;
  uint64_t wait_ns;
  uint64_t param_bytes;
  uint64_t gradient_bytes;
  uint64_t optimizer_bytes;
  uint64_t staging_bytes;
  uint64_t control_bytes;
  uint64_t peak_bytes;
  uint64_t arena_pages_bytes;
  uint64_t inter_node_gather_bytes;
  uint64_t inter_node_reduce_bytes;
  uint64_t nvme_read_bytes;
  uint64_t nvme_written_bytes;
  uint64_t nvme_bytes;
  uint64_t device_up_bytes;
  uint64_t device_down_bytes;
  uint64_t device_bytes;
} meron_stats;
meron_status meron_context_stats(meron_stats *out, meron_context context, meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t reserved_0;
  uint64_t param_bytes;
  uint64_t gradient_bytes;
  uint64_t optimizer_bytes;
  uint64_t peak_bytes;
  uint64_t gather_mapped_bytes;
  uint64_t gather_copied_bytes;
  uint64_t reduce_bytes;
  uint64_t secondary_partition_bytes;
  uint64_t inter_node_gather_bytes;
  uint64_t inter_node_reduce_bytes;
  uint64_t nvme_read_bytes;
  uint64_t nvme_written_bytes;
  uint64_t nvme_bytes;
  uint64_t device_bytes;
} meron_prediction;
meron_status meron_context_predict(meron_prediction *out, meron_context context, const
    meron_workload *workload, meron_error **err);
meron_status meron_context_flight_record(char **out, meron_context context, meron_error **err);
typedef struct { uint64_t id; } meron_group;
typedef int32_t meron_reduce_op;
enum {
  MERON_REDUCE_OP_SUM = 0,
  MERON_REDUCE_OP_MEAN = 1,
  MERON_REDUCE_OP_MAX = 2,
  MERON_REDUCE_OP_MIN = 3,
};
meron_status meron_context_world(meron_group *out, meron_context context, meron_error **err);
meron_status meron_group_create(meron_group *out, meron_context context, const int32_t *ranks,
    size_t count, meron_error **err);
meron_status meron_group_rank(int32_t *out, meron_group group, meron_error **err);
meron_status meron_group_size(int32_t *out, meron_group group, meron_error **err);
meron_status meron_group_status(meron_group group, meron_error **err);
meron_status meron_group_abort(meron_group group, const char *reason, meron_error **err);
meron_status meron_barrier_begin(meron_future *out, meron_group group, meron_error **err);
meron_status meron_broadcast_begin(meron_future *out, meron_group group, void *data, size_t bytes,
    int32_t root, meron_error **err);
meron_status meron_all_reduce_begin(meron_future *out, meron_group group, void *data, size_t count,
    meron_dtype dtype, meron_reduce_op op, meron_error **err);
meron_status meron_group_release(meron_group group, meron_error **err);
typedef struct { uint64_t id; } meron_param;
typedef struct { uint64_t id; } meron_unit;
#define MERON_MAX_DIMS 16
typedef struct {
  uint32_t struct_size;
  meron_dtype dtype;
  const char *name;
  const int64_t *shape;
  uint32_t dims;
  uint32_t frozen;
  meron_group group;
} meron_param_desc;
meron_status meron_param_desc_init(meron_param_desc *desc, size_t struct_size, meron_error **err);
#define MERON_DEVICE_HOST -1
typedef struct {
  void *data;
  uint64_t count;
  uint64_t offset;
  meron_dtype dtype;
  uint32_t writable;
  int32_t device;
  uint32_t reserved_0;
  uint64_t reserved_1;
  uint64_t reserved_2;
} meron_view;
struct DLManagedTensorVersioned;
meron_status meron_param_register(meron_param *out, meron_context context, const meron_param_desc
    *desc, meron_error **err);
typedef struct {
  uint32_t struct_size;
  meron_dtype dtype;
  uint32_t dims;
  uint32_t frozen;
  int64_t shape[16];
  uint64_t count;
  uint64_t shard_offset;
  uint64_t shard_count;
  uint64_t flat;
  uint64_t flat_offset;
} meron_param_info;
meron_status meron_param_get_info(meron_param_info *out, meron_param param, meron_error **err);
meron_status meron_param_name(const char **out, meron_param param, meron_error **err);
meron_status meron_param_release(meron_param param, meron_error **err);
meron_status meron_unit_create(meron_unit *out, meron_context context, const char *name, const
    meron_param *params, size_t count, meron_error **err);
meron_status meron_unit_destroy(meron_unit unit, meron_error **err);
typedef int32_t meron_codec;
enum {
  MERON_CODEC_NONE = 0,
  MERON_CODEC_BF16 = 1,
  MERON_CODEC_INT8 = 2,
  MERON_CODEC_INT4 = 3,
};
typedef int32_t meron_unit_state;
enum {
  MERON_UNIT_STATE_PARTITIONED = 0,
  MERON_UNIT_STATE_GATHERING = 1,
  MERON_UNIT_STATE_AVAILABLE = 2,
  MERON_UNIT_STATE_UPDATING = 3,
};
typedef struct {
  uint32_t struct_size;
  meron_unit_state state;
  uint64_t version;
  uint32_t leases;
  uint32_t reduced;
  meron_codec param_codec;
  meron_codec gradient_codec;
  double param_error;
  double param_worst_block;
  double gradient_error;
  double gradient_worst_block;
  uint64_t params;
  uint64_t flats;
} meron_unit_info;
meron_status meron_unit_get_info(meron_unit_info *out, meron_unit unit, meron_error **err);
meron_status meron_unit_name(const char **out, meron_unit unit, meron_error **err);
meron_status meron_unit_param(meron_param *out, meron_unit unit, uint64_t index, meron_error **err);
typedef struct {
  uint32_t struct_size;
  meron_dtype dtype;
  uint32_t frozen;
  uint32_t reserved_0;
  uint64_t elements;
  uint64_t bytes;
} meron_flat_info;
meron_status meron_unit_flat(meron_flat_info *out, meron_unit unit, uint64_t index, meron_error
    **err);
meron_status meron_unit_release(meron_unit unit, meron_error **err);
meron_status meron_update_begin(meron_future *out, const meron_unit *units, size_t count,
    meron_error **err);
meron_status meron_update_view(meron_view *out, meron_future update, meron_param param, meron_error
    **err);
meron_status meron_update_write(meron_future update, meron_param param, const void *data, uint64_t
    count, meron_dtype dtype, meron_error **err);
meron_status meron_update_publish(meron_future update, meron_error **err);
typedef struct { uint64_t id; } meron_optimizer;
typedef int32_t meron_optimizer_kind;
enum {
  MERON_OPTIMIZER_ADAMW = 0,
  MERON_OPTIMIZER_ADAM = 1,
  MERON_OPTIMIZER_ADAGRAD = 2,
  MERON_OPTIMIZER_LION = 3,
  MERON_OPTIMIZER_SGD = 4,
};
typedef struct {
  uint32_t struct_size;
  meron_optimizer_kind kind;
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  double max_norm;
  double dampening;
  uint32_t nesterov;
  uint32_t defaults_of;
  double lr_decay;
} meron_optimizer_options;
meron_status meron_optimizer_rule_init(meron_optimizer_options *options, size_t struct_size,
    meron_optimizer_kind kind, meron_error **err);
meron_status meron_optimizer_create(meron_optimizer *out, const meron_unit *units, size_t count,
    const meron_optimizer_options *options, meron_error **err);
meron_status meron_optimizer_set_learning_rate(meron_optimizer optimizer, double learning_rate,
    meron_error **err);
meron_status meron_optimizer_set_max_norm(meron_optimizer optimizer, double max_norm, meron_error
    **err);
typedef struct {
  uint32_t struct_size;
  uint32_t defaults_of;
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
  double lr_decay;
} meron_optimizer_group;
meron_status meron_optimizer_group_init(meron_optimizer_group *group, size_t struct_size,
    meron_error **err);
meron_status meron_optimizer_add_group(uint32_t *out, meron_optimizer optimizer, const meron_param
    *params, size_t count, const meron_optimizer_group *group, meron_error **err);
meron_status meron_optimizer_set_group(meron_optimizer optimizer, uint32_t number, const
    meron_optimizer_group *group, meron_error **err);
meron_status meron_optimizer_get_group(meron_optimizer_group *out, meron_optimizer optimizer,
    uint32_t number, meron_error **err);
meron_status meron_optimizer_step_begin(meron_future *out, meron_optimizer optimizer, meron_error
    **err);
meron_status meron_optimizer_set_steps(meron_optimizer optimizer, uint64_t steps, meron_error
    **err);
meron_status meron_optimizer_set_skipped(meron_optimizer optimizer, const meron_param *params,
    size_t count, meron_error **err);
meron_status meron_optimizer_param_steps(uint64_t *out, meron_optimizer optimizer, meron_param
    param, meron_error **err);
meron_status meron_optimizer_set_param_steps(meron_optimizer optimizer, meron_param param, uint64_t
    steps, meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t reserved_0;
  uint64_t steps;
  double norm;
  double learning_rate;
  uint32_t groups;
  uint32_t states;
  uint64_t nvme_bytes;
  uint64_t offloaded_bytes;
} meron_optimizer_info;
meron_status meron_optimizer_get_info(meron_optimizer_info *out, meron_optimizer optimizer,
    meron_error **err);
typedef int32_t meron_optimizer_state;
enum {
  MERON_OPTIMIZER_STATE_MASTER = 0,
  MERON_OPTIMIZER_STATE_EXP_AVG = 1,
  MERON_OPTIMIZER_STATE_EXP_AVG_SQ = 2,
};
meron_status meron_optimizer_state_view(meron_view *out, meron_optimizer optimizer, meron_param
    param, meron_optimizer_state state, meron_error **err);
meron_status meron_optimizer_read_state(float *out, uint64_t count, meron_optimizer optimizer,
    meron_param param, meron_optimizer_state state, meron_error **err);
meron_status meron_optimizer_write_state(meron_optimizer optimizer, meron_param param,
    meron_optimizer_state state, const float *data, uint64_t count, meron_error **err);
meron_status meron_optimizer_offload(meron_optimizer optimizer, const char *folder, meron_error
    **err);
meron_status meron_optimizer_reload(meron_optimizer optimizer, meron_error **err);
meron_status meron_optimizer_release(meron_optimizer optimizer, meron_error **err);
typedef struct { uint64_t id; } meron_checkpoint;
typedef struct {
  uint32_t struct_size;
  uint32_t dims;
  const char *name;
  const char *kind;
  const char *dtype;
  const uint64_t *shape;
  uint64_t begin;
  uint64_t count;
  const void *data;
} meron_checkpoint_tensor;
meron_status meron_checkpoint_tensor_init(meron_checkpoint_tensor *tensor, size_t struct_size,
    meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t values_only;
  uint32_t skip_frozen;
  uint32_t overwrite;
  uint64_t step;
  uint64_t keep;
  const char *extra;
  const meron_optimizer *optimizers;
  uint64_t optimizer_count;
  const meron_checkpoint_tensor *tensors;
  uint64_t tensor_count;
  const char *mapping;
  uint32_t per_node;
  uint32_t reserved_0;
  const meron_unit *units;
  uint64_t unit_count;
} meron_checkpoint_save_options;
meron_status meron_checkpoint_save_options_init(meron_checkpoint_save_options *options, size_t
    struct_size, meron_error **err);
meron_status meron_checkpoint_save_begin(meron_future *out, meron_context context, const char
    *folder, const char *name, const meron_checkpoint_save_options *options, meron_error **err);
meron_status meron_checkpoint_wait_copied(meron_context context, int64_t timeout_ns, meron_error
    **err);
meron_status meron_checkpoint_cancel_save(meron_context context, meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t saving;
  uint64_t total;
  uint64_t copied;
  uint64_t written;
} meron_checkpoint_progress;
meron_status meron_checkpoint_get_progress(meron_checkpoint_progress *out, meron_context context,
    meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t overwrite;
  uint64_t step;
  const char *extra;
  const char *optimizers;
  const meron_checkpoint_tensor *tensors;
  uint64_t tensor_count;
} meron_checkpoint_write_options;
meron_status meron_checkpoint_write_options_init(meron_checkpoint_write_options *options, size_t
    struct_size, meron_error **err);
meron_status meron_checkpoint_write(const char *folder, const char *name, const
    meron_checkpoint_write_options *options, meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t lenient;
  uint32_t values_only;
  uint32_t rank0_only;
  const meron_optimizer *optimizers;
  uint64_t optimizer_count;
  const char *mapping;
  const char *claimed;
  uint32_t per_node;
  uint32_t reserved_0;
  const meron_unit *units;
  uint64_t unit_count;
} meron_checkpoint_load_options;
meron_status meron_checkpoint_load_options_init(meron_checkpoint_load_options *options, size_t
    struct_size, meron_error **err);
meron_status meron_checkpoint_load(meron_checkpoint *out, meron_context context, const char *folder,
    const char *name, const meron_checkpoint_load_options *options, meron_error **err);
meron_status meron_checkpoint_open(meron_checkpoint *out, const char *folder, const char *name,
    meron_error **err);
meron_status meron_checkpoint_list(char **out, const char *folder, meron_error **err);
meron_status meron_checkpoint_remove(const char *folder, const char *name, meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t world;
  uint64_t step;
  uint64_t bytes;
  uint64_t tensors;
  uint64_t bytes_read;
  uint64_t missing;
  uint64_t unexpected;
} meron_checkpoint_info;
meron_status meron_checkpoint_get_info(meron_checkpoint_info *out, meron_checkpoint checkpoint,
    meron_error **err);
typedef int32_t meron_checkpoint_text_kind;
enum {
  MERON_CHECKPOINT_TEXT_PATH = 0,
  MERON_CHECKPOINT_TEXT_EXTRA = 1,
  MERON_CHECKPOINT_TEXT_MISSING = 2,
  MERON_CHECKPOINT_TEXT_UNEXPECTED = 3,
  MERON_CHECKPOINT_TEXT_MANIFEST = 4,
  MERON_CHECKPOINT_TEXT_PASSED_OVER = 5,
};
meron_status meron_checkpoint_text(const char **out, meron_checkpoint checkpoint,
    meron_checkpoint_text_kind kind, meron_error **err);
meron_status meron_checkpoint_read(void *data, uint64_t bytes, meron_checkpoint checkpoint, const
    char *kind, const char *name, uint64_t begin, uint64_t count, meron_error **err);
meron_status meron_checkpoint_release(meron_checkpoint checkpoint, meron_error **err);
typedef struct {
  uint32_t struct_size;
  meron_dtype dtype;
  uint32_t keep_dtype;
  uint32_t overwrite;
  uint64_t max_file_bytes;
  const char *mapping;
  const meron_checkpoint_tensor *tensors;
  uint64_t tensor_count;
} meron_checkpoint_export_options;
meron_status meron_checkpoint_export_options_init(meron_checkpoint_export_options *options, size_t
    struct_size, meron_error **err);
meron_status meron_checkpoint_export(meron_context context, const char *folder, const
    meron_checkpoint_export_options *options, meron_error **err);
typedef int32_t meron_gather_mode;
enum {
  MERON_GATHER_VIEW = 0,
  MERON_GATHER_COPY = 1,
  MERON_GATHER_INTO = 2,
};
typedef int32_t meron_tier;
enum {
  MERON_TIER_DEVICE = 0,
  MERON_TIER_HOST = 1,
};
typedef struct {
  meron_param param;
  void *data;
  uint64_t bytes;
} meron_destination;
typedef struct {
  meron_unit unit;
  uint64_t flat;
  void *data;
  uint64_t bytes;
} meron_flat_destination;
typedef struct {
  uint32_t struct_size;
  meron_gather_mode mode;
  const meron_destination *destinations;
  uint64_t destination_count;
  meron_tier tier;
  uint32_t reserved_0;
  void *stream;
  const meron_flat_destination *flats;
  uint64_t flat_count;
} meron_gather_options;
meron_status meron_gather_options_init(meron_gather_options *options, size_t struct_size,
    meron_error **err);
meron_status meron_gather_begin(meron_future *out, const meron_unit *units, size_t count, const
    meron_gather_options *options, meron_error **err);
meron_status meron_gather_wait_stream(meron_future gather, void *stream, int64_t timeout_ns,
    meron_error **err);
meron_status meron_gather_view(meron_view *out, meron_future gather, meron_param param, meron_error
    **err);
meron_status meron_gather_dlpack(struct DLManagedTensorVersioned **out, meron_future gather,
    meron_param param, meron_error **err);
meron_status meron_gather_release_on_stream(meron_future gather, void *stream, meron_error **err);
typedef struct { uint64_t id; } meron_io;
typedef struct { uint64_t id; } meron_io_buffer;
typedef int32_t meron_io_backend;
enum {
  MERON_IO_BACKEND_AUTO = 0,
  MERON_IO_BACKEND_URING = 1,
  MERON_IO_BACKEND_THREADS = 2,
};
typedef struct {
  uint32_t struct_size;
  meron_io_backend backend;
  uint32_t block_bytes;
  uint32_t depth;
  uint32_t threads;
  uint32_t single_submit;
  uint32_t overlap_events;
  uint32_t reserved_0;
  int64_t timeout_ns;
} meron_io_options;
meron_status meron_io_options_init(meron_io_options *options, size_t struct_size, meron_error
    **err);
meron_status meron_io_open(meron_io *out, const meron_io_options *options, meron_error **err);
meron_status meron_io_read(meron_io io, const char *path, void *data, uint64_t bytes, uint64_t
    offset, meron_error **err);
meron_status meron_io_write(meron_io io, const char *path, const void *data, uint64_t bytes,
    uint64_t offset, meron_error **err);
meron_status meron_io_read_begin(meron_future *out, meron_io io, const char *path, void *data,
    uint64_t bytes, uint64_t offset, meron_error **err);
meron_status meron_io_write_begin(meron_future *out, meron_io io, const char *path, const void
    *data, uint64_t bytes, uint64_t offset, meron_error **err);
meron_status meron_io_wait(meron_io io, int64_t timeout_ns, meron_error **err);
typedef struct {
  uint32_t struct_size;
  meron_io_backend backend;
  uint32_t block_bytes;
  uint32_t depth;
  uint32_t threads;
  uint32_t single_submit;
  uint32_t overlap_events;
  uint32_t reserved_0;
  uint64_t bytes_read;
  uint64_t bytes_written;
  uint64_t calls;
  uint64_t direct_calls;
  uint64_t requests;
  uint64_t pending;
  uint64_t buffer_bytes;
} meron_io_info;
meron_status meron_io_get_info(meron_io_info *out, meron_io io, meron_error **err);
meron_status meron_io_describe(char **out, meron_io io, meron_error **err);
meron_status meron_io_close(meron_io io, meron_error **err);
meron_status meron_io_buffer_create(meron_io_buffer *out, meron_io io, uint64_t bytes, meron_error
    **err);
typedef struct {
  uint32_t struct_size;
  uint32_t registered;
  uint64_t bytes;
  void *data;
} meron_io_buffer_info;
meron_status meron_io_buffer_get_info(meron_io_buffer_info *out, meron_io_buffer buffer, meron_error
    **err);
meron_status meron_io_buffer_release(meron_io_buffer buffer, meron_error **err);
typedef struct {
  meron_param param;
  const void *data;
  uint64_t count;
  meron_dtype dtype;
  uint32_t reserved_0;
} meron_source;
#define MERON_GRADIENT_OVERWRITE 1
meron_status meron_gradient_view(meron_view *out, meron_param param, uint64_t flags, meron_error
    **err);
typedef struct {
  uint32_t struct_size;
  meron_reduce_op op;
  uint32_t boundary;
  uint32_t reserved_0;
  double divisor;
  void *stream;
} meron_reduce_options;
meron_status meron_reduce_options_init(meron_reduce_options *options, size_t struct_size,
    meron_error **err);
meron_status meron_reduce_begin(meron_future *out, meron_unit unit, const meron_source *sources,
    size_t count, const meron_reduce_options *options, meron_error **err);
meron_status meron_reduce_wait(const meron_unit *units, size_t count, int64_t timeout_ns,
    meron_error **err);
meron_status meron_reduced_view(meron_view *out, meron_param param, meron_error **err);
meron_status meron_reduced_dlpack(struct DLManagedTensorVersioned **out, meron_param param,
    meron_error **err);
meron_status meron_gradient_clip(double *out, const meron_unit *units, size_t count, double
    max_norm, meron_error **err);
meron_status meron_reduce_finish_begin(meron_future *out, meron_unit unit, const
    meron_reduce_options *options, meron_error **err);
meron_status meron_reduce_consume(meron_unit unit, meron_error **err);
meron_status meron_reduce_discard(meron_unit unit, meron_error **err);
meron_status meron_reduce_scale_feedback(meron_unit unit, double factor, meron_error **err);
typedef struct { uint64_t id; } meron_schedule;
#define MERON_SCHEDULE_KINDS 16
typedef struct {
  uint32_t struct_size;
  uint32_t initialized;
  uint64_t prefetch_elements;
  uint64_t max_live_elements;
  uint64_t max_reuse_elements;
  uint64_t persist_elements;
  uint64_t persist_total_elements;
  meron_tier tier;
  uint32_t reserved_1;
  void *stream;
} meron_schedule_options;
meron_status meron_schedule_options_init(meron_schedule_options *options, size_t struct_size,
    meron_error **err);
meron_status meron_schedule_create(meron_schedule *out, const meron_unit *units, size_t count, const
    meron_schedule_options *options, meron_error **err);
meron_status meron_schedule_start_pass(meron_schedule schedule, uint32_t kind, meron_error **err);
meron_status meron_schedule_enter(meron_schedule schedule, size_t index, int64_t timeout_ns,
    meron_error **err);
meron_status meron_schedule_leave(meron_schedule schedule, size_t index, meron_error **err);
meron_status meron_schedule_view(meron_view *out, meron_schedule schedule, meron_param param,
    meron_error **err);
meron_status meron_schedule_drop(meron_schedule schedule, meron_error **err);
meron_status meron_schedule_reset(meron_schedule schedule, meron_error **err);
typedef struct {
  uint32_t struct_size;
  uint32_t entered;
  uint64_t units;
  uint64_t passes;
  uint64_t uses;
  uint64_t ready;
  uint64_t ahead;
  uint64_t deviations;
  uint64_t live_elements;
  uint64_t peak_live_elements;
  uint64_t wait_ns;
} meron_schedule_info;
meron_status meron_schedule_get_info(meron_schedule_info *out, meron_schedule schedule, meron_error
    **err);
meron_status meron_schedule_release(meron_schedule schedule, meron_error **err);
"""
