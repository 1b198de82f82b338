// SPDX-License-Identifier: Apache-2.0
// Generated from capi/api.json by tools/generate/generate.py: do not edit.
%module(directors="1", threads="1") meron_swig

%{
#include <meron/meron.h>

// Every function of the library, for the table that runtime.i fills when it loads it.
#define MERON_SWIG_FUNCTIONS(X) \
  X(meron_error_code) \
  X(meron_error_message) \
  X(meron_error_operation) \
  X(meron_error_subject) \
  X(meron_error_advice) \
  X(meron_error_rank) \
  X(meron_error_peer) \
  X(meron_error_free) \
  X(meron_status_name) \
  X(meron_version) \
  X(meron_version_string) \
  X(meron_system_info) \
  X(meron_string_free) \
  X(meron_dtype_size) \
  X(meron_future_wait) \
  X(meron_future_poll) \
  X(meron_future_release) \
  X(meron_future_finish) \
  X(meron_future_wait_any) \
  X(meron_plan_preset) \
  X(meron_plan_parse) \
  X(meron_plan_json) \
  X(meron_plan_table) \
  X(meron_workload_init) \
  X(meron_plan_predict) \
  X(meron_plan_release) \
  X(meron_transport_init) \
  X(meron_allocator_init) \
  X(meron_context_options_init) \
  X(meron_context_open) \
  X(meron_context_close) \
  X(meron_context_rank) \
  X(meron_context_world_size) \
  X(meron_context_transport) \
  X(meron_context_plan_json) \
  X(meron_context_progress) \
  X(meron_context_event_fd) \
  X(meron_context_stats) \
  X(meron_context_predict) \
  X(meron_context_flight_record) \
  X(meron_context_world) \
  X(meron_group_create) \
  X(meron_group_rank) \
  X(meron_group_size) \
  X(meron_group_status) \
  X(meron_group_abort) \
  X(meron_barrier_begin) \
  X(meron_broadcast_begin) \
  X(meron_all_reduce_begin) \
  X(meron_group_release) \
  X(meron_param_desc_init) \
  X(meron_param_register) \
  X(meron_param_get_info) \
  X(meron_param_name) \
  X(meron_param_release) \
  X(meron_unit_create) \
  X(meron_unit_destroy) \
  X(meron_unit_get_info) \
  X(meron_unit_name) \
  X(meron_unit_param) \
  X(meron_unit_flat) \
  X(meron_unit_release) \
  X(meron_update_begin) \
  X(meron_update_view) \
  X(meron_update_write) \
  X(meron_update_publish) \
  X(meron_optimizer_rule_init) \
  X(meron_optimizer_create) \
  X(meron_optimizer_set_learning_rate) \
  X(meron_optimizer_set_max_norm) \
  X(meron_optimizer_group_init) \
  X(meron_optimizer_add_group) \
  X(meron_optimizer_set_group) \
  X(meron_optimizer_get_group) \
  X(meron_optimizer_step_begin) \
  X(meron_optimizer_set_steps) \
  X(meron_optimizer_set_skipped) \
  X(meron_optimizer_param_steps) \
  X(meron_optimizer_set_param_steps) \
  X(meron_optimizer_get_info) \
  X(meron_optimizer_state_view) \
  X(meron_optimizer_read_state) \
  X(meron_optimizer_write_state) \
  X(meron_optimizer_offload) \
  X(meron_optimizer_reload) \
  X(meron_optimizer_release) \
  X(meron_checkpoint_tensor_init) \
  X(meron_checkpoint_save_options_init) \
  X(meron_checkpoint_save_begin) \
  X(meron_checkpoint_wait_copied) \
  X(meron_checkpoint_cancel_save) \
  X(meron_checkpoint_get_progress) \
  X(meron_checkpoint_write_options_init) \
  X(meron_checkpoint_write) \
  X(meron_checkpoint_load_options_init) \
  X(meron_checkpoint_load) \
  X(meron_checkpoint_open) \
  X(meron_checkpoint_list) \
  X(meron_checkpoint_remove) \
  X(meron_checkpoint_get_info) \
  X(meron_checkpoint_text) \
  X(meron_checkpoint_read) \
  X(meron_checkpoint_release) \
  X(meron_checkpoint_export_options_init) \
  X(meron_checkpoint_export) \
  X(meron_gather_options_init) \
  X(meron_gather_begin) \
  X(meron_gather_wait_stream) \
  X(meron_gather_view) \
  X(meron_gather_dlpack) \
  X(meron_gather_release_on_stream) \
  X(meron_io_options_init) \
  X(meron_io_open) \
  X(meron_io_read) \
  X(meron_io_write) \
  X(meron_io_read_begin) \
  X(meron_io_write_begin) \
  X(meron_io_wait) \
  X(meron_io_get_info) \
  X(meron_io_describe) \
  X(meron_io_close) \
  X(meron_io_buffer_create) \
  X(meron_io_buffer_get_info) \
  X(meron_io_buffer_release) \
  X(meron_gradient_view) \
  X(meron_reduce_options_init) \
  X(meron_reduce_begin) \
  X(meron_reduce_wait) \
  X(meron_reduced_view) \
  X(meron_reduced_dlpack) \
  X(meron_gradient_clip) \
  X(meron_reduce_finish_begin) \
  X(meron_reduce_consume) \
  X(meron_reduce_discard) \
  X(meron_reduce_scale_feedback) \
  X(meron_schedule_options_init) \
  X(meron_schedule_create) \
  X(meron_schedule_start_pass) \
  X(meron_schedule_enter) \
  X(meron_schedule_leave) \
  X(meron_schedule_view) \
  X(meron_schedule_drop) \
  X(meron_schedule_reset) \
  X(meron_schedule_get_info) \
  X(meron_schedule_release)
%}

%include "runtime.i"

typedef int32_t meron_status;
typedef int32_t meron_dtype;
typedef int32_t meron_log_level;
typedef int32_t meron_reduce_op;
typedef int32_t meron_codec;
typedef int32_t meron_unit_state;
typedef int32_t meron_optimizer_kind;
typedef int32_t meron_optimizer_state;
typedef int32_t meron_checkpoint_text_kind;
typedef int32_t meron_gather_mode;
typedef int32_t meron_tier;
typedef int32_t meron_io_backend;

// Values as a C++ compiler finds them in the headers.
%constant int32_t MERON_VERSION_MAJOR = MERON_VERSION_MAJOR;
%constant int32_t MERON_VERSION_MINOR = MERON_VERSION_MINOR;
%constant int32_t MERON_VERSION_PATCH = MERON_VERSION_PATCH;
%constant int32_t MERON_VERSION = MERON_VERSION;
%constant int32_t MERON_RANK_NONE = MERON_RANK_NONE;
%constant int32_t MERON_TIMEOUT_DEFAULT = MERON_TIMEOUT_DEFAULT;
%constant int32_t MERON_MAX_DIMS = MERON_MAX_DIMS;
%constant int32_t MERON_DEVICE_HOST = MERON_DEVICE_HOST;
%constant int32_t MERON_GRADIENT_OVERWRITE = MERON_GRADIENT_OVERWRITE;
%constant int32_t MERON_SCHEDULE_KINDS = MERON_SCHEDULE_KINDS;
%constant int32_t MERON_OK = MERON_OK;
%constant int32_t MERON_IN_PROGRESS = MERON_IN_PROGRESS;
%constant int32_t MERON_E_ARGUMENT = MERON_E_ARGUMENT;
%constant int32_t MERON_E_HANDLE = MERON_E_HANDLE;
%constant int32_t MERON_E_STALE = MERON_E_STALE;
%constant int32_t MERON_E_STATE = MERON_E_STATE;
%constant int32_t MERON_E_DUPLICATE = MERON_E_DUPLICATE;
%constant int32_t MERON_E_UNSUPPORTED = MERON_E_UNSUPPORTED;
%constant int32_t MERON_E_PARSE = MERON_E_PARSE;
%constant int32_t MERON_E_NONFINITE = MERON_E_NONFINITE;
%constant int32_t MERON_E_CANCELLED = MERON_E_CANCELLED;
%constant int32_t MERON_E_NO_MEMORY = MERON_E_NO_MEMORY;
%constant int32_t MERON_E_IO = MERON_E_IO;
%constant int32_t MERON_E_NOT_FOUND = MERON_E_NOT_FOUND;
%constant int32_t MERON_E_CORRUPT = MERON_E_CORRUPT;
%constant int32_t MERON_E_NO_SPACE = MERON_E_NO_SPACE;
%constant int32_t MERON_E_DEVICE = MERON_E_DEVICE;
%constant int32_t MERON_E_TIMEOUT = MERON_E_TIMEOUT;
%constant int32_t MERON_E_PEER_DEAD = MERON_E_PEER_DEAD;
%constant int32_t MERON_E_PEER_CLOSED = MERON_E_PEER_CLOSED;
%constant int32_t MERON_E_MISMATCH = MERON_E_MISMATCH;
%constant int32_t MERON_E_ABORTED = MERON_E_ABORTED;
%constant int32_t MERON_E_AUTH = MERON_E_AUTH;
%constant int32_t MERON_E_VERSION = MERON_E_VERSION;
%constant int32_t MERON_E_FORKED = MERON_E_FORKED;
%constant int32_t MERON_E_CLOSED = MERON_E_CLOSED;
%constant int32_t MERON_E_INTERNAL = MERON_E_INTERNAL;
%constant int32_t MERON_F32 = MERON_F32;
%constant int32_t MERON_BF16 = MERON_BF16;
%constant int32_t MERON_F16 = MERON_F16;
%constant int32_t MERON_F64 = MERON_F64;
%constant int32_t MERON_I64 = MERON_I64;
%constant int32_t MERON_LOG_ERROR = MERON_LOG_ERROR;
%constant int32_t MERON_LOG_WARNING = MERON_LOG_WARNING;
%constant int32_t MERON_LOG_INFO = MERON_LOG_INFO;
%constant int32_t MERON_REDUCE_OP_SUM = MERON_REDUCE_OP_SUM;
%constant int32_t MERON_REDUCE_OP_MEAN = MERON_REDUCE_OP_MEAN;
%constant int32_t MERON_REDUCE_OP_MAX = MERON_REDUCE_OP_MAX;
%constant int32_t MERON_REDUCE_OP_MIN = MERON_REDUCE_OP_MIN;
%constant int32_t MERON_CODEC_NONE = MERON_CODEC_NONE;
%constant int32_t MERON_CODEC_BF16 = MERON_CODEC_BF16;
%constant int32_t MERON_CODEC_INT8 = MERON_CODEC_INT8;
%constant int32_t MERON_CODEC_INT4 = MERON_CODEC_INT4;
%constant int32_t MERON_UNIT_STATE_PARTITIONED = MERON_UNIT_STATE_PARTITIONED;
%constant int32_t MERON_UNIT_STATE_GATHERING = MERON_UNIT_STATE_GATHERING;
%constant int32_t MERON_UNIT_STATE_AVAILABLE = MERON_UNIT_STATE_AVAILABLE;
%constant int32_t MERON_UNIT_STATE_UPDATING = MERON_UNIT_STATE_UPDATING;
%constant int32_t MERON_OPTIMIZER_ADAMW = MERON_OPTIMIZER_ADAMW;
%constant int32_t MERON_OPTIMIZER_ADAM = MERON_OPTIMIZER_ADAM;
%constant int32_t MERON_OPTIMIZER_ADAGRAD = MERON_OPTIMIZER_ADAGRAD;
%constant int32_t MERON_OPTIMIZER_LION = MERON_OPTIMIZER_LION;
%constant int32_t MERON_OPTIMIZER_SGD = MERON_OPTIMIZER_SGD;
%constant int32_t MERON_OPTIMIZER_STATE_MASTER = MERON_OPTIMIZER_STATE_MASTER;
%constant int32_t MERON_OPTIMIZER_STATE_EXP_AVG = MERON_OPTIMIZER_STATE_EXP_AVG;
%constant int32_t MERON_OPTIMIZER_STATE_EXP_AVG_SQ = MERON_OPTIMIZER_STATE_EXP_AVG_SQ;
%constant int32_t MERON_CHECKPOINT_TEXT_PATH = MERON_CHECKPOINT_TEXT_PATH;
%constant int32_t MERON_CHECKPOINT_TEXT_EXTRA = MERON_CHECKPOINT_TEXT_EXTRA;
%constant int32_t MERON_CHECKPOINT_TEXT_MISSING = MERON_CHECKPOINT_TEXT_MISSING;
%constant int32_t MERON_CHECKPOINT_TEXT_UNEXPECTED = MERON_CHECKPOINT_TEXT_UNEXPECTED;
%constant int32_t MERON_CHECKPOINT_TEXT_MANIFEST = MERON_CHECKPOINT_TEXT_MANIFEST;
%constant int32_t MERON_CHECKPOINT_TEXT_PASSED_OVER = MERON_CHECKPOINT_TEXT_PASSED_OVER;
%constant int32_t MERON_GATHER_VIEW = MERON_GATHER_VIEW;
%constant int32_t MERON_GATHER_COPY = MERON_GATHER_COPY;
%constant int32_t MERON_GATHER_INTO = MERON_GATHER_INTO;
%constant int32_t MERON_TIER_DEVICE = MERON_TIER_DEVICE;
%constant int32_t MERON_TIER_HOST = MERON_TIER_HOST;
%constant int32_t MERON_IO_BACKEND_AUTO = MERON_IO_BACKEND_AUTO;
%constant int32_t MERON_IO_BACKEND_URING = MERON_IO_BACKEND_URING;
%constant int32_t MERON_IO_BACKEND_THREADS = MERON_IO_BACKEND_THREADS;
%constant int32_t SIZEOF_meron_workload = sizeof(meron_workload);
%constant int32_t SIZEOF_meron_transport = sizeof(meron_transport);
%constant int32_t SIZEOF_meron_allocator = sizeof(meron_allocator);
%constant int32_t SIZEOF_meron_context_options = sizeof(meron_context_options);
%constant int32_t SIZEOF_meron_stats = sizeof(meron_stats);
%constant int32_t SIZEOF_meron_prediction = sizeof(meron_prediction);
%constant int32_t SIZEOF_meron_param_desc = sizeof(meron_param_desc);
%constant int32_t SIZEOF_meron_view = sizeof(meron_view);
%constant int32_t SIZEOF_meron_param_info = sizeof(meron_param_info);
%constant int32_t SIZEOF_meron_unit_info = sizeof(meron_unit_info);
%constant int32_t SIZEOF_meron_flat_info = sizeof(meron_flat_info);
%constant int32_t SIZEOF_meron_optimizer_options = sizeof(meron_optimizer_options);
%constant int32_t SIZEOF_meron_optimizer_group = sizeof(meron_optimizer_group);
%constant int32_t SIZEOF_meron_optimizer_info = sizeof(meron_optimizer_info);
%constant int32_t SIZEOF_meron_checkpoint_tensor = sizeof(meron_checkpoint_tensor);
%constant int32_t SIZEOF_meron_checkpoint_save_options = sizeof(meron_checkpoint_save_options);
%constant int32_t SIZEOF_meron_checkpoint_progress = sizeof(meron_checkpoint_progress);
%constant int32_t SIZEOF_meron_checkpoint_write_options = sizeof(meron_checkpoint_write_options);
%constant int32_t SIZEOF_meron_checkpoint_load_options = sizeof(meron_checkpoint_load_options);
%constant int32_t SIZEOF_meron_checkpoint_info = sizeof(meron_checkpoint_info);
%constant int32_t SIZEOF_meron_checkpoint_export_options = sizeof(meron_checkpoint_export_options);
%constant int32_t SIZEOF_meron_destination = sizeof(meron_destination);
%constant int32_t SIZEOF_meron_flat_destination = sizeof(meron_flat_destination);
%constant int32_t SIZEOF_meron_gather_options = sizeof(meron_gather_options);
%constant int32_t SIZEOF_meron_io_options = sizeof(meron_io_options);
%constant int32_t SIZEOF_meron_io_info = sizeof(meron_io_info);
%constant int32_t SIZEOF_meron_io_buffer_info = sizeof(meron_io_buffer_info);
%constant int32_t SIZEOF_meron_source = sizeof(meron_source);
%constant int32_t SIZEOF_meron_reduce_options = sizeof(meron_reduce_options);
%constant int32_t SIZEOF_meron_schedule_options = sizeof(meron_schedule_options);
%constant int32_t SIZEOF_meron_schedule_info = sizeof(meron_schedule_info);

// ---- Structs, as they are returned; what only C can use is left out ----------------------------

%immutable;
%nodefaultctor;
/** Workload of a step, for a prediction. */
struct meron_workload {
  uint32_t struct_size; /**< sizeof(meron_workload) */
  uint32_t ranks; /**< world size, at least 1 */
  uint32_t micro_batches; /**< per optimizer step; default 1 */
  uint32_t gathers_per_micro_batch; /**< of every unit; default 2: forward and backward */
  uint32_t ranks_per_node; /**< consecutive ranks that share memory; 0: all of them */
  uint32_t optimizer_states; /**< of the rule per element; default 2: AdamW */
  uint32_t reserved_0; /**< must be 0 */
};

/** The caller's transport. Read when the context is opened; `user` must outlive the context. */
struct meron_transport {
  uint32_t struct_size; /**< sizeof(meron_transport) */
  uint32_t reserved_0; /**< must be 0 */
  const char *name; /**< for messages; NULL: "custom" */
  uint64_t max_message; /**< maximal bytes of a message, at least 4096; 0: no limit */
};

/** The trainer's own allocator of device memory, a framework's cache for example. */
struct meron_allocator {
  uint32_t struct_size; /**< sizeof(meron_allocator) */
  uint32_t reserved_0; /**< must be 0 */
};

/** Options of a context. Fill by meron_context_options_init or MERON_CONTEXT_OPTIONS_INIT. */
struct meron_context_options {
  uint32_t struct_size; /**< sizeof(meron_context_options) */
  uint32_t header_version; /**< MERON_VERSION of the caller's headers */
  int32_t rank; /**< -1: from the environment (meron run, torchrun, Slurm, Open MPI, PMI) */
  int32_t world_size; /**< -1: from the environment; without one: 1 */
  const char *transport; /**< "self", "local", "shm", "mpi", "custom", "cluster"; NULL or "auto": custom if that is given, self for one rank, mpi under mpirun if neither a token nor MERON_STORE is given, else shm. "cluster": ranks of a node share memory, and `custom` connects the nodes; "mpi": MPI connects them */
  const char *job; /**< local: ranks of one process with an equal job meet; NULL: "default". In a directory MERON_STORE: the job's name among others'; NULL: MERON_JOB, or the launcher's name */
  const char *token; /**< shm: 64 hexadecimal digits, the same on all ranks; NULL: from the descriptor MERON_TOKEN_FD or from the variable MERON_TOKEN; if there is none, ranks meet in the directory that the variable MERON_STORE names */
  int64_t timeout_ns; /**< deadline of every operation (see future.h); 0 or -1: 600 s */
  uint64_t host_memory_limit; /**< bytes that this rank may allocate; 0: only the host's limit */
  uint64_t arena_reserve; /**< bytes of address space, twice per window; 0: the host's memory */
  uint32_t threads; /**< for compute on this rank; 0: cores / ranks on this host */
  uint32_t reserved_0; /**< must be 0 */
  const char *device; /**< that this rank computes on: "cuda" (the calling thread's current one), "cuda:1"; "emulated": memory of the host and threads, for tests without a device. NULL or "": the host. Views of gathers, and of schedules that ask for it, are then in the device's memory, and meron_source.data may be. All other views stay in the host's: of gradients, updates and states */
};

/** Counters since the context was opened, and the memory in use now, in bytes. */
struct meron_stats {
  uint32_t struct_size; /**< sizeof(meron_stats), as the INIT macro sets it */
  uint32_t reserved_0; /**< 0 */
  uint64_t gather_mapped_bytes; /**< shards of peers read in place, or fetched by devices */
  uint64_t gather_copied_bytes; /**< parts of peers copied */
  uint64_t reduce_bytes; /**< gradients read from peers */
  uint64_t collective_bytes; /**< read from peers by broadcast and all-reduce */
  uint64_t operations; /**< collectives begun */
  uint64_t wait_ns; /**< nanoseconds spent waiting for peers */
  uint64_t param_bytes; /**< of values, held now */
  uint64_t gradient_bytes; /**< counted from meron_unit_create on, allocated by the first gradient */
  uint64_t optimizer_bytes; /**< of optimizer states, held now */
  uint64_t staging_bytes; /**< of staging buffers, held now */
  uint64_t control_bytes; /**< of the control data that keeps the ranks in step, held now */
  uint64_t peak_bytes; /**< maximum of param + gradient + optimizer + staging */
  uint64_t arena_pages_bytes; /**< bytes of pages in this rank's arena */
  uint64_t inter_node_gather_bytes; /**< gathered from ranks that share no memory, as on the wire */
  uint64_t inter_node_reduce_bytes; /**< reduced from such ranks, likewise */
  uint64_t nvme_read_bytes; /**< read from this rank's file on tier nvme */
  uint64_t nvme_written_bytes; /**< written to it */
  uint64_t nvme_bytes; /**< of that file, in use now */
  uint64_t device_up_bytes; /**< copied from the host to this rank's device */
  uint64_t device_down_bytes; /**< copied from it to the host */
  uint64_t device_bytes; /**< on the device at all times: entries of tier device */
};

/** The plan's predictions for this rank and its current units, in bytes. */
struct meron_prediction {
  uint32_t struct_size; /**< sizeof(meron_prediction), as the INIT macro sets it */
  uint32_t reserved_0; /**< 0 */
  uint64_t param_bytes; /**< of values, held */
  uint64_t gradient_bytes; /**< of gradients, held */
  uint64_t optimizer_bytes; /**< of optimizer states, held */
  uint64_t peak_bytes; /**< without messages in flight between nodes, and without up to 32 MiB if these, or values of tier nvme, are copied to a device */
  uint64_t gather_mapped_bytes; /**< as in meron_stats, per optimizer step; so are those below */
  uint64_t gather_copied_bytes; /**< parts of peers copied */
  uint64_t reduce_bytes; /**< gradients read from peers */
  uint64_t secondary_partition_bytes; /**< of params, from the first gather to the update (of frozen ones permanently), on top of param_bytes and within peak_bytes */
  uint64_t inter_node_gather_bytes; /**< gathered from ranks that share no memory, as on the wire */
  uint64_t inter_node_reduce_bytes; /**< reduced from such ranks, likewise */
  uint64_t nvme_read_bytes; /**< read from this rank's file on tier nvme */
  uint64_t nvme_written_bytes; /**< written to it */
  uint64_t nvme_bytes; /**< in use there, at all times */
  uint64_t device_bytes; /**< as in meron_stats. If ranks cannot exchange on their devices, these lack the sums of gradients, which this figure contains */
};

/** Description of a param. */
struct meron_param_desc {
  uint32_t struct_size; /**< sizeof(meron_param_desc) */
  meron_dtype dtype; /**< of the values that are gathered */
  const char *name; /**< unique in the context, 1 to 512 bytes of UTF-8 */
  uint32_t dims; /**< 0: a scalar; at most MERON_MAX_DIMS */
  uint32_t frozen; /**< 1: has no gradient and no optimizer state */
};

/** Information about a param. */
struct meron_param_info {
  uint32_t struct_size; /**< sizeof(meron_param_info), as the INIT macro sets it */
  meron_dtype dtype;
  uint32_t dims;
  uint32_t frozen;
  uint64_t count; /**< elements of the full tensor */
  uint64_t shard_offset; /**< first element that this rank updates */
  uint64_t shard_count; /**< number of these elements; 0 before the param is in a unit */
  uint64_t flat; /**< index of its flat: see meron_unit_flat; 0 before the param is in a unit */
  uint64_t flat_offset; /**< elements of the flat before the param; 0 before it is in a unit */
};
%extend meron_param_info {
  /** shape[index]; 0 from 16 on. */
  int64_t shape_at(int32_t index) const {
    return index >= 0 && index < 16 ? $self->shape[index] : 0;
  }
}

/** Information about a unit. */
struct meron_unit_info {
  uint32_t struct_size; /**< sizeof(meron_unit_info), as the INIT macro sets it */
  meron_unit_state state;
  uint64_t version; /**< of the values; 0 until the first update */
  uint32_t leases;
  uint32_t reduced; /**< 1: a reduced gradient waits for an optimizer step */
  meron_codec param_codec; /**< Codecs of values and gradients between replicas: the plan's, or bf16 if its error was above the plan's limit. */
  meron_codec gradient_codec;
  double param_error; /**< Relative error of this rank's last encoding: |x - decoded x| / |x| in the 2-norm, of all values and of the worst block. 0 before the first one, and without a codec; NaN or infinite if values were. */
  double param_worst_block;
  double gradient_error;
  double gradient_worst_block;
  uint64_t params; /**< number of its params: see meron_unit_param */
  uint64_t flats; /**< number of its flats: see meron_unit_flat */
};

/** Information about a flat: the params of a unit that have one dtype and are all trained or all frozen, one after another in memory. Each begins at its meron_param_info.flat_offset; the elements between a param and the next one are padding. The layout depends only on the unit's params, so it is the same on all ranks and under all plans. */
struct meron_flat_info {
  uint32_t struct_size; /**< sizeof(meron_flat_info), as the INIT macro sets it */
  meron_dtype dtype;
  uint32_t frozen; /**< 1: its params are frozen; 0: they are trained */
  uint32_t reserved_0; /**< 0 */
  uint64_t elements; /**< with the padding behind each param */
  uint64_t bytes; /**< of these elements */
};

/** A contiguous range of a tensor in memory. The library fills all fields. */
struct meron_view {
  uint64_t count; /**< elements, contiguous */
  uint64_t offset; /**< index of the first element in the full tensor, row-major */
  meron_dtype dtype; /**< of the elements */
  uint32_t writable; /**< 1: may be written; 0: a write faults or is undefined */
  int32_t device; /**< owner of the memory: MERON_DEVICE_HOST, or the number of the context's device ("cuda:1" has the number 1) */
  uint32_t reserved_0; /**< 0, as the next two: for later versions */
  uint64_t reserved_1;
  uint64_t reserved_2;
};

/** Options of an optimizer. Start from the INIT macro of the rule, such as MERON_OPTIMIZER_SGD_INIT: each rule has its own defaults, and a struct with the defaults of another rule is refused. */
struct meron_optimizer_options {
  uint32_t struct_size; /**< sizeof(meron_optimizer_options) */
  meron_optimizer_kind kind;
  double learning_rate; /**< >= 0 */
  double beta1; /**< 0 <= beta1 < 1. SGD: the momentum; 0 keeps no state */
  double beta2; /**< 0 <= beta2 < 1 */
  double epsilon; /**< > 0 */
  double weight_decay; /**< >= 0 */
  double max_norm; /**< gradients are scaled to at most this 2-norm, of all gradients of the optimizer together, as meron_gradient_clip does; 0: no clipping */
  double dampening; /**< SGD: 0 <= dampening < 1; else 0 */
  uint32_t nesterov; /**< SGD with a momentum and no dampening: 1 for Nesterov's; else 0 */
  uint32_t defaults_of; /**< 1 + the kind whose defaults these are; set by the INIT macros and meron_optimizer_rule_init, not by the caller */
  double lr_decay; /**< Adagrad: >= 0; step t has the rate learning_rate / (1 + (t - 1) lr_decay) */
};

/** Hyperparameters of the params of one group. The rule ignores those that it does not use. Start from a group of the optimizer (meron_optimizer_get_group). */
struct meron_optimizer_group {
  uint32_t struct_size; /**< sizeof(meron_optimizer_group) */
  uint32_t defaults_of; /**< as in meron_optimizer_options; meron_optimizer_get_group sets it, too */
  double learning_rate; /**< >= 0 */
  double beta1; /**< 0 <= beta1 < 1. SGD: the momentum, 0 in all groups or in none */
  double beta2; /**< 0 <= beta2 < 1 */
  double epsilon; /**< > 0 */
  double weight_decay; /**< >= 0 */
  double lr_decay; /**< Adagrad: >= 0; else 0 */
};

/** Information about an optimizer. */
struct meron_optimizer_info {
  uint32_t struct_size; /**< sizeof(meron_optimizer_info), as the INIT macro sets it */
  uint32_t reserved_0; /**< 0 */
  uint64_t steps; /**< taken so far, with those of meron_optimizer_set_steps and of a loaded checkpoint; without steps that ended in MERON_E_NONFINITE */
  double norm; /**< 2-norm of all gradients of the last step, before clipping */
  double learning_rate; /**< of group 0 */
  uint32_t groups; /**< of params, at least 1 */
  uint32_t states; /**< of the rule per element, besides the master */
  uint64_t nvme_bytes; /**< of this rank's states on tier nvme */
  uint64_t offloaded_bytes; /**< of the states that meron_optimizer_offload has moved to a drive */
};

/** The caller's own tensor, or a range of one. */
struct meron_checkpoint_tensor {
  uint32_t struct_size; /**< sizeof(meron_checkpoint_tensor) */
  uint32_t dims; /**< 0: a scalar; at most MERON_MAX_DIMS */
  const char *name; /**< 1 to 512 bytes of UTF-8 */
  const char *kind; /**< NULL: "extra". As docs/checkpoint-format.md lists them: "values" for a buffer, "exp_avg", "state.KEY" for a state of an optimizer. A load ignores "extra" and "state.KEY". A value that is no param must be claimed there, or is unexpected */
  const char *dtype; /**< as safetensors names it: "F32", "BF16", "I64", ... */
  uint64_t begin; /**< first element in `data` */
  uint64_t count; /**< elements in `data` */
};

/** Options of a save: its content, and the fate of other checkpoints. */
struct meron_checkpoint_save_options {
  uint32_t struct_size; /**< sizeof(meron_checkpoint_save_options) */
  uint32_t values_only; /**< 1: neither masters nor states of optimizers */
  uint32_t skip_frozen; /**< 1: no frozen params */
  uint32_t overwrite; /**< 1: replaces a checkpoint of that name */
  uint64_t step; /**< the caller's count: of a line, the newest checkpoint has the highest */
  uint64_t keep; /**< complete checkpoints of the line that stay in the folder, with this one; the newest with all states stays, too. 0: all */
  const char *extra; /**< NULL, or the caller's own state: the text of a JSON object. That of rank 0 is saved */
  uint64_t optimizer_count;
  uint64_t tensor_count;
  const char *mapping; /**< NULL, or a JSON object: "PARAM": "NAME" in the files, for states too; "" leaves the param out */
  uint32_t per_node; /**< 1: each node has its own folder, such as one on a local disk. Ranks of a node pass the same */
  uint32_t reserved_0; /**< must be 0 */
  uint64_t unit_count;
};

/** Progress of a save. */
struct meron_checkpoint_progress {
  uint32_t struct_size; /**< sizeof(meron_checkpoint_progress), as the INIT macro sets it */
  uint32_t saving; /**< 1: a save is pending */
  uint64_t total; /**< bytes that this rank writes; 0: not known yet, or no save */
  uint64_t copied; /**< of these, copied from the units */
  uint64_t written; /**< of these, written to files */
};

/** Options of a write without a context, by one process. */
struct meron_checkpoint_write_options {
  uint32_t struct_size; /**< sizeof(meron_checkpoint_write_options) */
  uint32_t overwrite; /**< 1: replaces a checkpoint of that name */
  uint64_t step; /**< the caller's count */
  const char *extra; /**< NULL, or the text of a JSON object */
  const char *optimizers; /**< NULL, or the manifest's list of them, a JSON array */
  uint64_t tensor_count;
};

/** Options of a load. */
struct meron_checkpoint_load_options {
  uint32_t struct_size; /**< sizeof(meron_checkpoint_load_options) */
  uint32_t lenient; /**< 1: ignore params and tensors that the other side lacks */
  uint32_t values_only; /**< 1: values, and masters computed from them; optimizers keep their states */
  uint32_t rank0_only; /**< 1: only rank 0 sees the files, and sends each rank its shards */
  uint64_t optimizer_count;
  const char *mapping; /**< NULL, or a JSON object: "PARAM": "TENSOR", or "PARAM": ["TENSOR", ...], one after the other along the first dimension; others by their name */
  const char *claimed; /**< NULL, or names of tensors of kind "values" that are no params, with line breaks between them: they must exist, and the caller reads them */
  uint32_t per_node; /**< 1: each node has its own folder: one rank per node reads the node's files, and sends each rank its shards */
  uint32_t reserved_0; /**< must be 0 */
  uint64_t unit_count;
};

/** Information about a checkpoint. */
struct meron_checkpoint_info {
  uint32_t struct_size; /**< sizeof(meron_checkpoint_info), as the INIT macro sets it */
  uint32_t world; /**< ranks that saved it */
  uint64_t step; /**< the caller's count */
  uint64_t bytes; /**< of its files */
  uint64_t tensors; /**< in the checkpoint */
  uint64_t bytes_read; /**< of its files, by this rank, so far */
  uint64_t missing; /**< states that it lacks; the load did not change them */
  uint64_t unexpected; /**< tensors that no unit has */
};

/** Options of an export. */
struct meron_checkpoint_export_options {
  uint32_t struct_size; /**< sizeof(meron_checkpoint_export_options) */
  meron_dtype dtype; /**< of the floating-point values in the files, if keep_dtype is 0 */
  uint32_t keep_dtype; /**< 1, the initial value: each param's own dtype; `dtype` is ignored */
  uint32_t overwrite; /**< 1: replaces an existing model */
  uint64_t max_file_bytes; /**< of a file's tensors: the next file begins before they would exceed it, and a larger tensor has its own file; 0: 5 GB */
  const char *mapping; /**< NULL, or a JSON object: "PARAM": "NAME" in the files; "" leaves the param out */
  uint64_t tensor_count;
};

/** Options of a gather. */
struct meron_gather_options {
  uint32_t struct_size; /**< sizeof(meron_gather_options) */
  meron_gather_mode mode;
  uint64_t destination_count;
  meron_tier tier; /**< of a view; a copy is in the host's memory */
  uint32_t reserved_0; /**< must be 0 */
  uint64_t flat_count;
};

/** Options of an io. */
struct meron_io_options {
  uint32_t struct_size; /**< sizeof(meron_io_options) */
  meron_io_backend backend;
  uint32_t block_bytes; /**< of one call of the kernel: a multiple of 4096; default 1 MiB */
  uint32_t depth; /**< pending calls of io_uring, 1 to 4096; default 32 */
  uint32_t threads; /**< of the backend of threads, 1 to 256: as many calls at a time */
  uint32_t single_submit; /**< 1: submit each call to the kernel alone; default 0: together */
  uint32_t overlap_events; /**< default 1; 0: the next calls begin after the last ones have ended */
  uint32_t reserved_0; /**< must be 0 */
  int64_t timeout_ns; /**< a wait fails after this time without any transfer; 0 or -1: 600 s */
};

/** Information about an io. */
struct meron_io_info {
  uint32_t struct_size; /**< sizeof(meron_io_info), as the INIT macro sets it */
  meron_io_backend backend; /**< in use: MERON_IO_BACKEND_URING or MERON_IO_BACKEND_THREADS */
  uint32_t block_bytes; /**< these as in meron_io_options */
  uint32_t depth;
  uint32_t threads;
  uint32_t single_submit;
  uint32_t overlap_events;
  uint32_t reserved_0; /**< 0 */
  uint64_t bytes_read; /**< by requests that have succeeded */
  uint64_t bytes_written; /**< likewise */
  uint64_t calls; /**< of the kernel, completed */
  uint64_t direct_calls; /**< of these, past the page cache */
  uint64_t requests; /**< reads and writes that were begun, also blocking ones */
  uint64_t pending; /**< of these, pending or not waited for */
  uint64_t buffer_bytes; /**< of all existing buffers */
};

/** Information about a buffer. */
struct meron_io_buffer_info {
  uint32_t struct_size; /**< sizeof(meron_io_buffer_info), as the INIT macro sets it */
  uint32_t registered; /**< 1: the kernel has it pinned; 0: it pins it at each call */
  uint64_t bytes;
};

/** Options of a reduction. */
struct meron_reduce_options {
  uint32_t struct_size; /**< sizeof(meron_reduce_options) */
  meron_reduce_op op; /**< MERON_REDUCE_OP_MEAN divides by the group's size, once, as `divisor` */
  uint32_t boundary; /**< 1: last micro-batch before the step; 0: more follow */
  uint32_t reserved_0; /**< must be 0 */
  double divisor; /**< additional divisor of the sum, e.g. the number of micro-batches, times the loss scale. The complete sum is divided once, as the call with `boundary` 1 says; in each call all ranks pass the same. With a codec that has feedback, give the same one for each micro-batch of an accumulation: what was lost of the accumulation before is scaled by the change, so that it counts as much as it did */
};

/** Options of a schedule: limits in elements, and the memory of views. Start from MERON_SCHEDULE_OPTIONS_INIT: limits that are all 0 would prefetch nothing. */
struct meron_schedule_options {
  uint32_t struct_size; /**< sizeof(meron_schedule_options) */
  uint32_t initialized; /**< 1; set by the INIT macro and function, not by the caller */
  uint64_t prefetch_elements; /**< gathers are prefetched for the next uses within this many elements; default 5e7; 0: no prefetch */
  uint64_t max_live_elements; /**< limit of prefetched and kept units, never of the unit in use; default 1e9 */
  uint64_t max_reuse_elements; /**< a unit stays full if its next recorded use is within this many elements of other units' uses; default 1e9 */
  uint64_t persist_elements; /**< a unit of at most this many elements stays full from its first use until meron_schedule_drop; default 1e5 */
  uint64_t persist_total_elements; /**< limit for all such units together, in the order of meron_schedule_create; default UINT64_MAX */
  meron_tier tier; /**< memory of views: default MERON_TIER_HOST, unlike that of a gather; MERON_TIER_DEVICE: the context's device, if it has one */
  uint32_t reserved_1; /**< must be 0 */
};

/** Information about a schedule. */
struct meron_schedule_info {
  uint32_t struct_size; /**< sizeof(meron_schedule_info), as the INIT macro sets it */
  uint32_t entered; /**< units that are entered now */
  uint64_t units; /**< of the schedule */
  uint64_t passes; /**< started so far */
  uint64_t uses; /**< units entered so far */
  uint64_t ready; /**< uses whose unit was full already */
  uint64_t ahead; /**< uses with a prefetched gather */
  uint64_t deviations; /**< uses that differ from the recorded order */
  uint64_t live_elements; /**< of the units that are full or gathering now */
  uint64_t peak_live_elements; /**< maximum of live_elements */
  uint64_t wait_ns; /**< nanoseconds that uses have waited */
};

%clearnodefaultctor;
%mutable;

// ---- Lists of structs --------------------------------------------------------------------------

%inline %{
namespace meron_swig {
/** Values of meron_destination. They point to memory that the caller keeps. */
class meron_destination_list {
 public:
  void add(int64_t param, writable_memory data) {
    ::meron_destination item = {};
    item.param = ::meron_param{static_cast<uint64_t>(param)};
    item.data = data.data;
    item.bytes = data.bytes;
    items_.push_back(item);
  }
  void add_at(int64_t param, int64_t data, int64_t bytes) {
    ::meron_destination item = {};
    item.param = ::meron_param{static_cast<uint64_t>(param)};
    item.data = reinterpret_cast<void *>(data);
    item.bytes = unsigned_of<uint64_t>(bytes, "bytes");
    items_.push_back(item);
  }
#ifndef SWIG
  const ::meron_destination *data() const { return items_.data(); }
  size_t size() const { return items_.size(); }
#endif
 private:
  std::vector< ::meron_destination> items_;
};

/** Values of meron_flat_destination. They point to memory that the caller keeps. */
class meron_flat_destination_list {
 public:
  void add(int64_t unit, int64_t flat, writable_memory data) {
    ::meron_flat_destination item = {};
    item.unit = ::meron_unit{static_cast<uint64_t>(unit)};
    item.flat = unsigned_of<uint64_t>(flat, "flat");
    item.data = data.data;
    item.bytes = data.bytes;
    items_.push_back(item);
  }
  void add_at(int64_t unit, int64_t flat, int64_t data, int64_t bytes) {
    ::meron_flat_destination item = {};
    item.unit = ::meron_unit{static_cast<uint64_t>(unit)};
    item.flat = unsigned_of<uint64_t>(flat, "flat");
    item.data = reinterpret_cast<void *>(data);
    item.bytes = unsigned_of<uint64_t>(bytes, "bytes");
    items_.push_back(item);
  }
#ifndef SWIG
  const ::meron_flat_destination *data() const { return items_.data(); }
  size_t size() const { return items_.size(); }
#endif
 private:
  std::vector< ::meron_flat_destination> items_;
};

/** Values of meron_source. They point to memory that the caller keeps. */
class meron_source_list {
 public:
  void add(int64_t param, readable_memory data, int32_t dtype) {
    ::meron_source item = {};
    item.param = ::meron_param{static_cast<uint64_t>(param)};
    item.data = data.data;
    item.count = elements(data.bytes, dtype);
    item.dtype = static_cast<meron_dtype>(dtype);
    items_.push_back(item);
  }
  void add_at(int64_t param, int64_t data, int64_t count, int32_t dtype) {
    ::meron_source item = {};
    item.param = ::meron_param{static_cast<uint64_t>(param)};
    item.data = reinterpret_cast<const void *>(data);
    item.count = unsigned_of<uint64_t>(count, "count");
    item.dtype = static_cast<meron_dtype>(dtype);
    items_.push_back(item);
  }
#ifndef SWIG
  const ::meron_source *data() const { return items_.data(); }
  size_t size() const { return items_.size(); }
#endif
 private:
  std::vector< ::meron_source> items_;
};

}  // namespace meron_swig
%}

// ---- Functions ---------------------------------------------------------------------------------

%newobject meron_swig::meron_system_info;
%feature("nothread", "0") meron_swig::meron_future_wait;
%feature("nothread", "0") meron_swig::meron_future_finish;
%feature("nothread", "0") meron_swig::meron_future_wait_any;
%newobject meron_swig::meron_plan_json;
%newobject meron_swig::meron_plan_table;
%newobject meron_swig::meron_plan_predict;
%feature("nothread", "0") meron_swig::meron_context_open;
%feature("nothread", "0") meron_swig::meron_context_close;
%newobject meron_swig::meron_context_plan_json;
%newobject meron_swig::meron_context_flight_record;
%feature("nothread", "0") meron_swig::meron_group_create;
%feature("nothread", "0") meron_swig::meron_barrier_begin;
%feature("nothread", "0") meron_swig::meron_broadcast_begin;
%feature("nothread", "0") meron_swig::meron_all_reduce_begin;
%feature("nothread", "0") meron_swig::meron_param_register;
%feature("nothread", "0") meron_swig::meron_unit_create;
%feature("nothread", "0") meron_swig::meron_unit_destroy;
%feature("nothread", "0") meron_swig::meron_update_begin;
%feature("nothread", "0") meron_swig::meron_update_write;
%feature("nothread", "0") meron_swig::meron_update_publish;
%feature("nothread", "0") meron_swig::meron_optimizer_create;
%feature("nothread", "0") meron_swig::meron_optimizer_add_group;
%feature("nothread", "0") meron_swig::meron_optimizer_step_begin;
%feature("nothread", "0") meron_swig::meron_optimizer_read_state;
%feature("nothread", "0") meron_swig::meron_optimizer_write_state;
%feature("nothread", "0") meron_swig::meron_optimizer_offload;
%feature("nothread", "0") meron_swig::meron_optimizer_reload;
%feature("nothread", "0") meron_swig::meron_optimizer_release;
%feature("nothread", "0") meron_swig::meron_checkpoint_save_begin;
%feature("nothread", "0") meron_swig::meron_checkpoint_wait_copied;
%feature("nothread", "0") meron_swig::meron_checkpoint_write;
%feature("nothread", "0") meron_swig::meron_checkpoint_load;
%feature("nothread", "0") meron_swig::meron_checkpoint_open;
%newobject meron_swig::meron_checkpoint_list;
%feature("nothread", "0") meron_swig::meron_checkpoint_list;
%feature("nothread", "0") meron_swig::meron_checkpoint_remove;
%feature("nothread", "0") meron_swig::meron_checkpoint_read;
%feature("nothread", "0") meron_swig::meron_checkpoint_export;
%feature("nothread", "0") meron_swig::meron_gather_begin;
%feature("nothread", "0") meron_swig::meron_gather_wait_stream;
%feature("nothread", "0") meron_swig::meron_io_read;
%feature("nothread", "0") meron_swig::meron_io_write;
%feature("nothread", "0") meron_swig::meron_io_read_begin;
%feature("nothread", "0") meron_swig::meron_io_write_begin;
%feature("nothread", "0") meron_swig::meron_io_wait;
%newobject meron_swig::meron_io_describe;
%feature("nothread", "0") meron_swig::meron_io_close;
%feature("nothread", "0") meron_swig::meron_io_buffer_create;
%feature("nothread", "0") meron_swig::meron_gradient_view;
%feature("nothread", "0") meron_swig::meron_reduce_begin;
%feature("nothread", "0") meron_swig::meron_reduce_wait;
%feature("nothread", "0") meron_swig::meron_reduced_view;
%feature("nothread", "0") meron_swig::meron_reduced_dlpack;
%feature("nothread", "0") meron_swig::meron_gradient_clip;
%feature("nothread", "0") meron_swig::meron_reduce_finish_begin;
%feature("nothread", "0") meron_swig::meron_reduce_consume;
%feature("nothread", "0") meron_swig::meron_reduce_discard;
%feature("nothread", "0") meron_swig::meron_reduce_scale_feedback;
%feature("nothread", "0") meron_swig::meron_schedule_create;
%feature("nothread", "0") meron_swig::meron_schedule_start_pass;
%feature("nothread", "0") meron_swig::meron_schedule_enter;
%feature("nothread", "0") meron_swig::meron_schedule_leave;
%feature("nothread", "0") meron_swig::meron_schedule_drop;
%feature("nothread", "0") meron_swig::meron_schedule_reset;
%inline %{
namespace meron_swig {
/**
 * The constant's name, for example "MERON_E_TIMEOUT"; "MERON_E_UNKNOWN" for a code that this
 * version does not know. Ownership: static. Blocks: never. Threads: any. Errors: none.
 */
inline const char *meron_status_name(int32_t status) {
  return api().meron_status_name(static_cast<meron_status>(status));
}

/**
 * The library's version in the form of MERON_VERSION. Compatible with a caller's headers when the
 * major numbers are equal (and, before 1.0, the minor numbers) and it is not older than they are.
 * Blocks: never. Threads: any. Errors: none.
 */
inline int32_t meron_version() {
  return static_cast<int32_t>(api().meron_version());
}

/**
 * The library's version as text, for example "0.2.0". Ownership: static. Blocks: never. Threads:
 * any. Errors: none.
 */
inline const char *meron_version_string() {
  return api().meron_version_string();
}

/**
 * Describes this host and this build, as JSON: version, compiler, CPU features and the kernel
 * target in use, transports with the reason if one is unavailable, memory, huge pages, /dev/shm,
 * memlock limit, io_uring. Ownership: the caller frees *out with meron_string_free. Blocks: never
 * (reads /proc). Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_NO_MEMORY.
 */
inline char *meron_system_info() {
  char *out = nullptr;
  error_slot error;
  error.check(api().meron_system_info(&out, error));
  return out;
}

/**
 * Bytes per element of a dtype; 0 for an unknown one. Blocks: never. Threads: any. Errors: none.
 */
inline int64_t meron_dtype_size(int32_t dtype) {
  return static_cast<int64_t>(api().meron_dtype_size(static_cast<meron_dtype>(dtype)));
}

/**
 * Waits for a future. Returns MERON_IN_PROGRESS if timeout_ns passed first; the operation
 * continues. Blocks: on peers, a device's copies or a drive, at most the deadline; advances other
 * operations of the context meanwhile. Threads: any; several may wait for one future. Errors: those
 * of the operation, MERON_E_TIMEOUT, MERON_E_PEER_DEAD, MERON_E_PEER_CLOSED, MERON_E_MISMATCH,
 * MERON_E_ABORTED, MERON_E_CANCELLED, MERON_E_ARGUMENT (another negative timeout), MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_future_wait(int64_t future, int64_t timeout_ns) {
  error_slot error;
  return error.check(api().meron_future_wait(::meron_future{static_cast<uint64_t>(future)}, static_cast<int64_t>(timeout_ns), error));
}

/**
 * Returns MERON_OK if the operation has succeeded, MERON_IN_PROGRESS if it has not ended, else its
 * error. Without `err`, a failure counts as unseen, and is logged as meron_future_release says.
 * Called from a callback, it does not advance the operation. Blocks: never on peers, a device or a
 * drive; may compute and copy. Threads: any. Errors: as meron_future_wait.
 */
inline int32_t meron_future_poll(int64_t future) {
  error_slot error;
  return error.check(api().meron_future_poll(::meron_future{static_cast<uint64_t>(future)}, error));
}

/**
 * Releases a future. A pending operation continues, so that the ranks stay in step; a pending
 * gather or update is cancelled (see meron_gather_begin, meron_update_begin). If it fails, or has
 * failed, and no wait or poll returned the error, that is logged once at level MERON_LOG_ERROR, by
 * the next call that waits or by meron_context_close; the failure of a save is reported by the next
 * save instead, or logged by the close. If the group is broken, one line is logged at the close,
 * and none if another call returned the error. Blocks: never. Threads: any, also a finalizer's.
 * Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_future_release(int64_t future) {
  error_slot error;
  return error.check(api().meron_future_release(::meron_future{static_cast<uint64_t>(future)}, error));
}

/**
 * Waits for a future, then releases it: meron_future_wait and meron_future_release in one. Whatever
 * the wait returns, also an error, the future is released, with one exception: if timeout_ns passed
 * first, it returns MERON_IN_PROGRESS and the future stays. An operation whose wait should_stop
 * ended (MERON_E_CANCELLED) continues without its future, and may use its memory until the close.
 * Ownership: takes the future, unless it returns MERON_IN_PROGRESS. Blocks: as meron_future_wait.
 * Threads: any. Errors: as meron_future_wait, MERON_E_HANDLE also for an update, which
 * meron_update_publish ends; after MERON_E_ARGUMENT and MERON_E_HANDLE the future stays.
 */
inline int32_t meron_future_finish(int64_t future, int64_t timeout_ns) {
  error_slot error;
  return error.check(api().meron_future_finish(::meron_future{static_cast<uint64_t>(future)}, static_cast<int64_t>(timeout_ns), error));
}

/**
 * Waits until one of several futures has ended, well or with an error, and says which: the first
 * such one of the array. It returns no error of an operation: meron_future_finish, wait or poll of
 * that future returns it, and then does not wait. Local: other ranks may wait for other futures.
 * finished. Returns MERON_IN_PROGRESS if timeout_ns passed first. Ownership: all futures stay the
 * caller's. Blocks: as meron_future_wait. Threads: any. Errors: MERON_E_ARGUMENT (NULL, another
 * negative timeout), MERON_E_HANDLE (all futures are null, one belongs to another context, or one
 * is a transfer of io.h, which belongs to none), MERON_E_STALE, MERON_E_CANCELLED (should_stop),
 * MERON_E_CLOSED, MERON_E_FORKED.
 */
inline int64_t meron_future_wait_any(int64_array futures, int64_t timeout_ns) {
  size_t out = 0;
  error_slot error;
  error.check(api().meron_future_wait_any(&out, reinterpret_cast<const ::meron_future *>(futures.items), futures.count, static_cast<int64_t>(timeout_ns), error));
  return static_cast<int64_t>(out);
}

/**
 * Creates one of the named plans: "zero0" (everything replicated, as in DDP), "zero1" (optimizer
 * states sharded), "zero2" (gradients too), "zero3" (parameters too); for several nodes "mics(4)"
 * (zero3 within groups of 4 ranks, gradients synchronized between the groups at the accumulation
 * boundary), "hpz(4)" (zero3 with a secondary partition of the parameters in each group from
 * forward to backward) and "zeropp(4)" (the same, with parameters in int8 and gradients in int4
 * between groups). Without an argument, or with "node", a group is the ranks of a node. Follows
 * ZeRO (arXiv 1910.02054), MiCS (arXiv 2205.00119) and ZeRO++ (arXiv 2306.10209). Ownership: the
 * caller releases *out with meron_plan_release; a context keeps its own reference. Blocks: never.
 * Threads: any. Errors: MERON_E_ARGUMENT for an unknown name (the message lists the known ones).
 */
inline int64_t meron_plan_preset(const char *name) {
  ::meron_plan out = {};
  error_slot error;
  error.check(api().meron_plan_preset(&out, name, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Reads a plan from JSON. `{"preset": "zero2", "gradient": {"dtype": "f32"}}` starts from a preset;
 * docs/plan.md has every key. Ownership: as meron_plan_preset. Blocks: never. Threads: any. Errors:
 * MERON_E_PARSE (line and key), MERON_E_ARGUMENT, MERON_E_UNSUPPORTED.
 */
inline int64_t meron_plan_parse(const char *json) {
  ::meron_plan out = {};
  error_slot error;
  error.check(api().meron_plan_parse(&out, json, length_of(json), error));
  return static_cast<int64_t>(out.id);
}

/**
 * The plan as JSON that meron_plan_parse reads back to an equal plan. Ownership: the caller frees
 * *out with meron_string_free. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE.
 */
inline char *meron_plan_json(int64_t plan) {
  char *out = nullptr;
  error_slot error;
  error.check(api().meron_plan_json(&out, ::meron_plan{static_cast<uint64_t>(plan)}, error));
  return out;
}

/**
 * The plan as a table for people, several lines. Ownership: the caller frees *out with
 * meron_string_free. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE,
 * MERON_E_STALE.
 */
inline char *meron_plan_table(int64_t plan) {
  char *out = nullptr;
  error_slot error;
  error.check(api().meron_plan_table(&out, ::meron_plan{static_cast<uint64_t>(plan)}, error));
  return out;
}

/**
 * Fills the first `struct_size` bytes of *workload with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_workload meron_workload_init() {
  return initial(api().meron_workload_init);
}

/**
 * Predicts bytes per link and step and peak bytes per tier, per rank, as JSON. If the ranks use
 * codecs with which models train worse, the JSON has a list `warnings` of the texts that a run
 * logs, and the table ends with them. Ownership: the caller frees *out with meron_string_free.
 * Blocks: never. Threads: any. Errors: MERON_E_PARSE, MERON_E_ARGUMENT, MERON_E_HANDLE,
 * MERON_E_STALE.
 */
inline char *meron_plan_predict(int64_t plan, const char *model, int32_t ranks, int32_t micro_batches, int32_t gathers_per_micro_batch, int32_t ranks_per_node, int32_t optimizer_states, int32_t table) {
  ::meron_workload workload = initial(api().meron_workload_init);
  workload.ranks = unsigned_of<uint32_t>(ranks, "ranks", workload.ranks);
  workload.micro_batches = unsigned_of<uint32_t>(micro_batches, "micro_batches", workload.micro_batches);
  workload.gathers_per_micro_batch = unsigned_of<uint32_t>(gathers_per_micro_batch, "gathers_per_micro_batch", workload.gathers_per_micro_batch);
  workload.ranks_per_node = unsigned_of<uint32_t>(ranks_per_node, "ranks_per_node", workload.ranks_per_node);
  workload.optimizer_states = unsigned_of<uint32_t>(optimizer_states, "optimizer_states", workload.optimizer_states);
  char *out = nullptr;
  error_slot error;
  error.check(api().meron_plan_predict(&out, ::meron_plan{static_cast<uint64_t>(plan)}, model, length_of(model), &workload, unsigned_of<uint32_t>(table, "table"), error));
  return out;
}

/**
 * Releases a plan. A context that was opened with it keeps it. Blocks: never. Threads: any, also a
 * finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_plan_release(int64_t plan) {
  error_slot error;
  return error.check(api().meron_plan_release(::meron_plan{static_cast<uint64_t>(plan)}, error));
}

/**
 * Fills the first `struct_size` bytes of *transport with zeros and its size (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_transport meron_transport_init() {
  return initial(api().meron_transport_init);
}

/**
 * Fills the first `struct_size` bytes of *allocator with zeros and its size (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_allocator meron_allocator_init() {
  return initial(api().meron_allocator_init);
}

/**
 * Fills the first `struct_size` bytes of *options with defaults (for languages without macros).
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_context_options meron_context_options_init() {
  return initial(api().meron_context_options_init);
}

/**
 * Opens this rank's context and connects it to the other ranks. Ownership: the caller closes *out.
 * Blocks: until all ranks have arrived, at most the deadline. Threads: any. Errors:
 * MERON_E_ARGUMENT (rank beyond the world, unknown transport), MERON_E_AUTH (token missing or
 * wrong), MERON_E_TIMEOUT (names the missing ranks), MERON_E_VERSION, MERON_E_NO_MEMORY,
 * MERON_E_IO, MERON_E_NOT_FOUND (no directory MERON_STORE), MERON_E_UNSUPPORTED (no transport
 * connects the ranks' hosts; the device's module cannot be loaded or cannot work here, with the
 * reason), MERON_E_DEVICE (it has failed), MERON_E_DUPLICATE (a rank arrived twice), or the error
 * with which calls of a faster rank have broken the world.
 */
inline int64_t meron_context_open(int32_t header_version, int32_t rank, int32_t world_size, const char *transport, const char *job, const char *token, int64_t timeout_ns, int64_t host_memory_limit, int64_t arena_reserve, int32_t threads, int64_t plan, callbacks *hooks, custom_transport *custom, const char *device) {
  ::meron_context_options options = initial(api().meron_context_options_init);
  options.header_version = unsigned_of<uint32_t>(header_version, "header_version", options.header_version);
  options.rank = static_cast<int32_t>(rank);
  options.world_size = static_cast<int32_t>(world_size);
  options.transport = transport;
  options.job = job;
  options.token = token;
  options.timeout_ns = static_cast<int64_t>(timeout_ns);
  options.host_memory_limit = unsigned_of<uint64_t>(host_memory_limit, "host_memory_limit", options.host_memory_limit);
  options.arena_reserve = unsigned_of<uint64_t>(arena_reserve, "arena_reserve", options.arena_reserve);
  options.threads = unsigned_of<uint32_t>(threads, "threads", options.threads);
  options.plan = ::meron_plan{static_cast<uint64_t>(plan)};
  if (hooks) hooks->connect(options);
  if (custom) custom->connect(options);
  options.device = device;
  ::meron_context out = {};
  error_slot error;
  error.check(api().meron_context_open(&out, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Closes the context: pending operations are cancelled, all its handles become stale, views become
 * invalid, and after the return nothing touches memory that the caller passed to operations. DLPack
 * tensors stay readable. Nothing uses log_user and should_stop_user afterwards: it waits for
 * callbacks that run on other threads. If a callback closes a context, it waits for no callback,
 * and the pointers are used until that callback has returned. Local: it does not wait for peers,
 * but first for a pending save of a checkpoint. If should_stop ends that wait, the save is
 * abandoned and leaves no checkpoint. If the last save has failed and no wait returned its error,
 * the log has it. Peers that still need this rank get MERON_E_PEER_CLOSED: for operations that it
 * has not begun, or that it has begun and not waited for. Once it has waited for all that it began,
 * it may close without a barrier. Another context may be opened afterwards in the same process.
 * Blocks: on such a save and on such callbacks, without a deadline; else until calls of other
 * threads on this context have ended, whose waits it ends. Threads: any. Errors: MERON_E_HANDLE,
 * MERON_E_STALE (closed already), MERON_E_STATE (from an allocator or a transport), MERON_E_FORKED.
 */
inline int32_t meron_context_close(int64_t context) {
  error_slot error;
  return error.check(api().meron_context_close(::meron_context{static_cast<uint64_t>(context)}, error));
}

/**
 * This rank, 0 to world size - 1. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_context_rank(int64_t context) {
  int32_t out = 0;
  error_slot error;
  error.check(api().meron_context_rank(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return static_cast<int32_t>(out);
}

/**
 * The number of ranks. Blocks: never. Threads: any. Errors: as meron_context_rank.
 */
inline int32_t meron_context_world_size(int64_t context) {
  int32_t out = 0;
  error_slot error;
  error.check(api().meron_context_world_size(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return static_cast<int32_t>(out);
}

/**
 * The name of the transport in use: "self", "local", "shm", or that of a custom one. Ownership: the
 * context, until it is closed. Blocks: never. Threads: any. Errors: as meron_context_rank.
 */
inline const char *meron_context_transport(int64_t context) {
  const char *out = nullptr;
  error_slot error;
  error.check(api().meron_context_transport(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return out;
}

/**
 * The plan that the context was opened with, as JSON that meron_plan_parse reads back to an equal
 * plan; "zero3" if it was opened without one. Ownership: the caller frees *out with
 * meron_string_free. Blocks: never. Threads: any. Errors: as meron_context_rank.
 */
inline char *meron_context_plan_json(int64_t context) {
  char *out = nullptr;
  error_slot error;
  error.check(api().meron_context_plan_json(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return out;
}

/**
 * Advances every operation of this context that can advance, without waiting. Waits do the same; a
 * trainer that computes for long between begin and wait may call it in between. Clears the
 * descriptor of meron_context_event_fd first. Blocks: never on peers; computes. Threads: any.
 * Errors: as meron_future_wait.
 */
inline int32_t meron_context_progress(int64_t context) {
  error_slot error;
  return error.check(api().meron_context_progress(::meron_context{static_cast<uint64_t>(context)}, error));
}

/**
 * A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a future of
 * the context may have advanced. A thread of the engine writes to it when a peer has done
 * something, and at least 50 times a second while an operation is pending; it advances no
 * operation. In the loop, call meron_context_progress, which clears the descriptor, or read its 8
 * bytes; then poll the futures. Clear it before the polls: what comes later makes it readable
 * again. Poll a future once after its begin, too: if it has ended by then, no sign follows. Futures
 * of io.h are of no context and have none. Ownership: the context's: do not close it. The close of
 * the context makes it readable and closes it: take it out of the loop before. A child after fork
 * shares it with its parent: it must neither read nor watch it. Blocks: never. Threads: any; all
 * watchers share one count, so one loop should watch it. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_CLOSED, MERON_E_FORKED, MERON_E_NO_MEMORY (no thread), MERON_E_IO (no
 * descriptor is left).
 */
inline int32_t meron_context_event_fd(int64_t context) {
  int32_t out = 0;
  error_slot error;
  error.check(api().meron_context_event_fd(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return static_cast<int32_t>(out);
}

/**
 * Reads the counters. Blocks: never. Threads: any. Errors: as meron_context_rank.
 */
inline ::meron_stats meron_context_stats(int64_t context) {
  ::meron_stats out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_context_stats(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return out;
}

/**
 * Predicts memory and traffic of this rank from the plan and the current units. The counters of
 * meron_stats grow by exactly these bytes per step of that workload. Blocks: never. Threads: any.
 * Errors: as meron_context_rank, MERON_E_ARGUMENT.
 */
inline ::meron_prediction meron_context_predict(int64_t context, int32_t ranks, int32_t micro_batches, int32_t gathers_per_micro_batch, int32_t ranks_per_node, int32_t optimizer_states) {
  ::meron_workload workload = initial(api().meron_workload_init);
  workload.ranks = unsigned_of<uint32_t>(ranks, "ranks", workload.ranks);
  workload.micro_batches = unsigned_of<uint32_t>(micro_batches, "micro_batches", workload.micro_batches);
  workload.gathers_per_micro_batch = unsigned_of<uint32_t>(gathers_per_micro_batch, "gathers_per_micro_batch", workload.gathers_per_micro_batch);
  workload.ranks_per_node = unsigned_of<uint32_t>(ranks_per_node, "ranks_per_node", workload.ranks_per_node);
  workload.optimizer_states = unsigned_of<uint32_t>(optimizer_states, "optimizer_states", workload.optimizer_states);
  ::meron_prediction out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_context_predict(&out, ::meron_context{static_cast<uint64_t>(context)}, &workload, error));
  return out;
}

/**
 * The flight recorder: the last operations (up to 1,024) of every rank of the world, as JSON. Works
 * on a broken group too. Ownership: the caller frees *out with meron_string_free. Blocks: never.
 * Threads: any. Errors: as meron_context_rank.
 */
inline char *meron_context_flight_record(int64_t context) {
  char *out = nullptr;
  error_slot error;
  error.check(api().meron_context_flight_record(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return out;
}

/**
 * The group of all ranks. Ownership: the caller releases *out; the group itself lives as long as
 * the context. Blocks: never. Threads: any. Errors: as meron_context_rank.
 */
inline int64_t meron_context_world(int64_t context) {
  ::meron_group out = {};
  error_slot error;
  error.check(api().meron_context_world(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Creates a group of some ranks. Collective over the world: every rank calls it with the same list;
 * ranks outside of the list get a null group. Ownership: the caller releases *out. Blocks: as
 * meron_barrier_begin; if the plan has parameters on tier device, also until the ranks of the group
 * have called it, because it connects their devices. Threads: any. Errors: MERON_E_ARGUMENT (a rank
 * beyond the world or twice), MERON_E_UNSUPPORTED (more than 64 groups), MERON_E_VERSION (libraries
 * of collectives that differ), MERON_E_NO_MEMORY, -3xx. A lack of memory on one rank breaks the
 * world, with MERON_E_NO_MEMORY on all ranks: the error names the rank.
 */
inline int64_t meron_group_create(int64_t context, int32_array ranks) {
  ::meron_group out = {};
  error_slot error;
  error.check(api().meron_group_create(&out, ::meron_context{static_cast<uint64_t>(context)}, ranks.items, ranks.count, error));
  return static_cast<int64_t>(out.id);
}

/**
 * This rank's number in the group. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_group_rank(int64_t group) {
  int32_t out = 0;
  error_slot error;
  error.check(api().meron_group_rank(&out, ::meron_group{static_cast<uint64_t>(group)}, error));
  return static_cast<int32_t>(out);
}

/**
 * The number of ranks in the group. Blocks: never. Threads: any. Errors: as meron_group_rank.
 */
inline int32_t meron_group_size(int64_t group) {
  int32_t out = 0;
  error_slot error;
  error.check(api().meron_group_size(&out, ::meron_group{static_cast<uint64_t>(group)}, error));
  return static_cast<int32_t>(out);
}

/**
 * MERON_OK while the group works, else the error that broke it, of any class. So it decides, after
 * an error of another call, if the program can continue. Blocks: never; checks if peers are alive.
 * Threads: any. Errors: the one that broke the group, -3xx, as meron_group_rank.
 */
inline int32_t meron_group_status(int64_t group) {
  error_slot error;
  return error.check(api().meron_group_status(::meron_group{static_cast<uint64_t>(group)}, error));
}

/**
 * Breaks the group on every rank: pending waits end with MERON_E_ABORTED, which contains `reason`.
 * Blocks: never. Threads: any. Errors: as meron_group_rank.
 */
inline int32_t meron_group_abort(int64_t group, const char *reason) {
  error_slot error;
  return error.check(api().meron_group_abort(::meron_group{static_cast<uint64_t>(group)}, reason, error));
}

/**
 * Begins a barrier: the future ends when every rank of the group has begun it. Ownership: the
 * caller releases *out. Blocks: if this rank is 1,024 calls ahead of a peer, until that peer has
 * followed, at most the deadline; and while another thread of this rank begins an operation.
 * Threads: any. Errors: as meron_group_rank, MERON_E_CANCELLED (nothing was begun), -3xx.
 */
inline int64_t meron_barrier_begin(int64_t group) {
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_barrier_begin(&out, ::meron_group{static_cast<uint64_t>(group)}, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Begins a broadcast of `bytes` bytes from rank `root` of the group. Ownership: `data` must stay
 * valid until the future has ended. Blocks: as meron_barrier_begin. Threads: any. Errors:
 * MERON_E_ARGUMENT, as meron_barrier_begin.
 */
inline int64_t meron_broadcast_begin(int64_t group, writable_memory data, int32_t root) {
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_broadcast_begin(&out, ::meron_group{static_cast<uint64_t>(group)}, data.data, data.bytes, static_cast<int32_t>(root), error));
  return static_cast<int64_t>(out.id);
}

/**
 * Begins an all-reduce of `count` elements in place. Values are combined in rank order, so that
 * every rank gets the same bits in every run. For small arrays (losses, metrics, counts): every
 * rank reads all peers' values. For gradients, use meron_reduce_begin. Ownership: `data` must stay
 * valid until the future has ended. Blocks: as meron_barrier_begin. Threads: any. Errors:
 * MERON_E_ARGUMENT, as meron_barrier_begin.
 */
inline int64_t meron_all_reduce_begin(int64_t group, writable_memory data, int32_t dtype, int32_t op) {
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_all_reduce_begin(&out, ::meron_group{static_cast<uint64_t>(group)}, data.data, elements(data.bytes, dtype), static_cast<meron_dtype>(dtype), static_cast<meron_reduce_op>(op), error));
  return static_cast<int64_t>(out.id);
}

/**
 * Releases a group. Params and operations keep it while they need it. Blocks: never. Threads: any,
 * also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_group_release(int64_t group) {
  error_slot error;
  return error.check(api().meron_group_release(::meron_group{static_cast<uint64_t>(group)}, error));
}

/**
 * Fills the first `struct_size` bytes of *desc with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_param_desc meron_param_desc_init() {
  return initial(api().meron_param_desc_init);
}

/**
 * Registers a param. Collective over its group: all ranks register the same params in the same
 * order; a difference is reported with both descriptions. Ownership: the caller releases *out.
 * Blocks: as meron_barrier_begin. Threads: any. Errors: MERON_E_ARGUMENT (negative or overflowing
 * shape, unknown dtype), MERON_E_DUPLICATE (name), MERON_E_HANDLE, MERON_E_STALE, MERON_E_MISMATCH,
 * -3xx.
 */
inline int64_t meron_param_register(int64_t context, int32_t dtype, const char *name, int64_array shape, int32_t frozen, int64_t group) {
  ::meron_param_desc desc = initial(api().meron_param_desc_init);
  desc.dtype = static_cast<meron_dtype>(dtype);
  desc.name = name;
  desc.shape = shape.items;
  desc.dims = shape.count;
  desc.frozen = unsigned_of<uint32_t>(frozen, "frozen", desc.frozen);
  desc.group = ::meron_group{static_cast<uint64_t>(group)};
  ::meron_param out = {};
  error_slot error;
  error.check(api().meron_param_register(&out, ::meron_context{static_cast<uint64_t>(context)}, &desc, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Reads the information about a param. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline ::meron_param_info meron_param_get_info(int64_t param) {
  ::meron_param_info out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_param_get_info(&out, ::meron_param{static_cast<uint64_t>(param)}, error));
  return out;
}

/**
 * The param's name. Ownership: borrowed from the param. Blocks: never. Threads: any. Errors: as
 * meron_param_get_info.
 */
inline const char *meron_param_name(int64_t param) {
  const char *out = nullptr;
  error_slot error;
  error.check(api().meron_param_name(&out, ::meron_param{static_cast<uint64_t>(param)}, error));
  return out;
}

/**
 * Releases the handle. A param that is in a unit lives as long as the unit. Blocks: never. Threads:
 * any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_param_release(int64_t param) {
  error_slot error;
  return error.check(api().meron_param_release(::meron_param{static_cast<uint64_t>(param)}, error));
}

/**
 * Creates a unit and reserves its memory on this rank according to the plan; values are zero at
 * version 0. The memory of gradients is counted, and checked against the host's free memory, but
 * the first gradient allocates it: see meron_gradient_view. Collective over the params' group.
 * Ownership: the caller releases *out; the memory stays until meron_unit_destroy or until the
 * context is closed, because peers may read it. Blocks: as meron_barrier_begin. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_DUPLICATE (a param twice, or in a unit already, or the name),
 * MERON_E_NO_MEMORY (figures), -3xx. In a group of several ranks, a lack of memory on one of them
 * breaks the group, with MERON_E_NO_MEMORY on all of them: the error names the rank.
 */
inline int64_t meron_unit_create(int64_t context, const char *name, int64_array params) {
  ::meron_unit out = {};
  error_slot error;
  error.check(api().meron_unit_create(&out, ::meron_context{static_cast<uint64_t>(context)}, name, reinterpret_cast<const ::meron_param *>(params.items), params.count, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Destroys a unit and its params: releases their memory on the host, on the device and on the
 * drive, and their names. Collective over the unit's group: all ranks call it, and no rank creates
 * units or groups meanwhile. All handles of the unit and of its params become stale; views of its
 * values and gradients must not be read any more. Ownership: none. Blocks: while a save copies
 * states, without a deadline; then until every rank has called it and no rank uses the unit any
 * more, at most the deadline. Threads: any, one unit at a time. Errors: MERON_E_STATE, before this
 * rank notifies its peers and before anything has changed (the unit is gathered, updated, reduced
 * or stepped, or it belongs to a schedule or an optimizer: release these first; another thread
 * destroys a unit), MERON_E_CANCELLED (should_stop: call again to continue), MERON_E_HANDLE,
 * MERON_E_STALE (also the second time), -3xx (names a rank that does not call).
 */
inline int32_t meron_unit_destroy(int64_t unit) {
  error_slot error;
  return error.check(api().meron_unit_destroy(::meron_unit{static_cast<uint64_t>(unit)}, error));
}

/**
 * Reads the information about a unit. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline ::meron_unit_info meron_unit_get_info(int64_t unit) {
  ::meron_unit_info out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_unit_get_info(&out, ::meron_unit{static_cast<uint64_t>(unit)}, error));
  return out;
}

/**
 * The unit's name. Ownership: borrowed from the unit, until it is destroyed or the context is
 * closed. Blocks: never. Threads: any. Errors: as meron_unit_get_info.
 */
inline const char *meron_unit_name(int64_t unit) {
  const char *out = nullptr;
  error_slot error;
  error.check(api().meron_unit_name(&out, ::meron_unit{static_cast<uint64_t>(unit)}, error));
  return out;
}

/**
 * A param of the unit, for meron_param_get_info and meron_param_name. Ownership: the caller
 * releases *out. Blocks: never. Threads: any. Errors: as meron_unit_get_info; MERON_E_ARGUMENT also
 * for another index.
 */
inline int64_t meron_unit_param(int64_t unit, int64_t index) {
  ::meron_param out = {};
  error_slot error;
  error.check(api().meron_unit_param(&out, ::meron_unit{static_cast<uint64_t>(unit)}, unsigned_of<uint64_t>(index, "index"), error));
  return static_cast<int64_t>(out.id);
}

/**
 * Reads the information about a flat of the unit. meron_gather_begin can copy a flat into the
 * caller's memory as a whole. Blocks: never. Threads: any. Errors: as meron_unit_get_info;
 * MERON_E_ARGUMENT also for another index.
 */
inline ::meron_flat_info meron_unit_flat(int64_t unit, int64_t index) {
  ::meron_flat_info out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_unit_flat(&out, ::meron_unit{static_cast<uint64_t>(unit)}, unsigned_of<uint64_t>(index, "index"), error));
  return out;
}

/**
 * Releases the handle. Blocks: never. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_unit_release(int64_t unit) {
  error_slot error;
  return error.check(api().meron_unit_release(::meron_unit{static_cast<uint64_t>(unit)}, error));
}

/**
 * Begins an update of some units: requests that every rank release the current version. Collective
 * over the units' group. When it has ended, this rank's shards may be written. Ownership: the
 * caller ends *out by meron_update_publish. A release before that cancels the update: if this rank
 * has waited for it and called neither meron_update_write nor meron_update_view, its values are
 * published unchanged; otherwise the group breaks with MERON_E_ABORTED on every rank, because
 * partly written values must not be published and peers continue the update. Blocks: as
 * meron_barrier_begin. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_STATE (a unit is leased here
 * or being updated, a step is pending, or a master is offloaded), MERON_E_DUPLICATE,
 * MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
inline int64_t meron_update_begin(int64_array units) {
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_update_begin(&out, reinterpret_cast<const ::meron_unit *>(units.items), units.count, error));
  return static_cast<int64_t>(out.id);
}

/**
 * The shard of `param` that this rank updates (the full tensor if the plan replicates the optimizer
 * states), in the param's dtype, writable, in memory of the host. If the param has a master, the
 * publication copies all of the view into it. Ownership: borrowed until meron_update_publish.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (the param is in none of the units),
 * MERON_E_STATE (no call has waited for the update), MERON_E_HANDLE, MERON_E_STALE.
 */
inline ::meron_view meron_update_view(int64_t update, int64_t param) {
  ::meron_view out = {};
  error_slot error;
  error.check(api().meron_update_view(&out, ::meron_future{static_cast<uint64_t>(update)}, ::meron_param{static_cast<uint64_t>(param)}, error));
  return out;
}

/**
 * Writes this rank's shard of `param` from the full tensor. Every rank passes equal values.
 * Converts between dtypes, and keeps f32 values in the master copy if there is one. Ownership:
 * `data` is only read, during the call. Blocks: only while another thread of this rank begins an
 * operation. Threads: any. Errors: as meron_update_view.
 */
inline int32_t meron_update_write(int64_t update, int64_t param, readable_memory data, int32_t dtype) {
  error_slot error;
  return error.check(api().meron_update_write(::meron_future{static_cast<uint64_t>(update)}, ::meron_param{static_cast<uint64_t>(param)}, data.data, elements(data.bytes, dtype), static_cast<meron_dtype>(dtype), error));
}

/**
 * Publishes the written shards as the next version and ends the update; the handle becomes stale.
 * Elements that were not written keep their values. Blocks: only while another thread of this rank
 * begins an operation. Threads: any. Errors: MERON_E_STATE (not waited for), MERON_E_HANDLE,
 * MERON_E_STALE, -3xx.
 */
inline int32_t meron_update_publish(int64_t update) {
  error_slot error;
  return error.check(api().meron_update_publish(::meron_future{static_cast<uint64_t>(update)}, error));
}

/**
 * Fills the first `struct_size` bytes of *options with the defaults of a rule, as its INIT macro
 * does (for languages without macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_optimizer_options meron_optimizer_rule_init(int32_t kind) {
  return initial(api().meron_optimizer_rule_init, static_cast<meron_optimizer_kind>(kind));
}

/**
 * Creates an optimizer and its states (zero) for the trainable params of some units: the states of
 * the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have 16 bits.
 * A master begins with the param's value at this call, and later updates write it too, so initial
 * values may be written before or after. States on tier nvme are written once here, so that steps
 * only overwrite existing data; if that takes long, the log reports the progress. Collective over
 * the units' group. Ownership: the caller releases *out. Blocks: as meron_barrier_begin; while a
 * save copies states, without a deadline; also on this rank's drive if states are on nvme. Threads:
 * any. Errors: MERON_E_ARGUMENT (a value out of range, no unit with a trainable param),
 * MERON_E_DUPLICATE (a unit twice, or in an optimizer already), MERON_E_STATE (a unit is updated),
 * MERON_E_HANDLE, MERON_E_STALE, -3xx. If this rank cannot hold the states, that breaks a group of
 * several ranks: MERON_E_NO_MEMORY, and of tier nvme MERON_E_ARGUMENT (an unusable folder),
 * MERON_E_NOT_FOUND, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT.
 */
inline int64_t meron_optimizer_create(int64_array units, int32_t kind, double learning_rate, double beta1, double beta2, double epsilon, double weight_decay, double max_norm, double dampening, int32_t nesterov, int32_t defaults_of, double lr_decay) {
  ::meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
  options.kind = static_cast<meron_optimizer_kind>(kind);
  options.learning_rate = learning_rate;
  options.beta1 = beta1;
  options.beta2 = beta2;
  options.epsilon = epsilon;
  options.weight_decay = weight_decay;
  options.max_norm = max_norm;
  options.dampening = dampening;
  options.nesterov = unsigned_of<uint32_t>(nesterov, "nesterov", options.nesterov);
  options.defaults_of = unsigned_of<uint32_t>(defaults_of, "defaults_of", options.defaults_of);
  options.lr_decay = lr_decay;
  ::meron_optimizer out = {};
  error_slot error;
  error.check(api().meron_optimizer_create(&out, reinterpret_cast<const ::meron_unit *>(units.items), units.count, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Sets the learning rate of the next steps for params of group 0; the same on all ranks (it is part
 * of the step's fingerprint). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_set_learning_rate(int64_t optimizer, double learning_rate) {
  error_slot error;
  return error.check(api().meron_optimizer_set_learning_rate(::meron_optimizer{static_cast<uint64_t>(optimizer)}, learning_rate, error));
}

/**
 * Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones stay; 0
 * does not clip. The same on all ranks (it is part of the step's fingerprint). Blocks: never.
 * Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_set_max_norm(int64_t optimizer, double max_norm) {
  error_slot error;
  return error.check(api().meron_optimizer_set_max_norm(::meron_optimizer{static_cast<uint64_t>(optimizer)}, max_norm, error));
}

/**
 * Fills the first `struct_size` bytes of *group with the initial value, which is AdamW's (for
 * languages without macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_optimizer_group meron_optimizer_group_init() {
  return initial(api().meron_optimizer_group_init);
}

/**
 * Gives some params their own hyperparameters, for example no weight decay. All ranks must do the
 * same before the next step, because it is part of the step's fingerprint. Blocks: only while
 * another thread of this rank begins an operation. Threads: any, not during a step. Errors:
 * MERON_E_ARGUMENT (a value out of range, or a group that does not start from one of this
 * optimizer's rule), MERON_E_DUPLICATE (a param is in a group already), MERON_E_STATE (a step is
 * pending), MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_add_group(int64_t optimizer, int64_array params, int32_t defaults_of, double learning_rate, double beta1, double beta2, double epsilon, double weight_decay, double lr_decay) {
  ::meron_optimizer_group group = initial(api().meron_optimizer_group_init);
  group.defaults_of = unsigned_of<uint32_t>(defaults_of, "defaults_of", group.defaults_of);
  group.learning_rate = learning_rate;
  group.beta1 = beta1;
  group.beta2 = beta2;
  group.epsilon = epsilon;
  group.weight_decay = weight_decay;
  group.lr_decay = lr_decay;
  uint32_t out = 0;
  error_slot error;
  error.check(api().meron_optimizer_add_group(&out, ::meron_optimizer{static_cast<uint64_t>(optimizer)}, reinterpret_cast<const ::meron_param *>(params.items), params.count, &group, error));
  return static_cast<int32_t>(out);
}

/**
 * Sets the hyperparameters of a group for the next steps; the same on all ranks. Blocks: never.
 * Threads: any. Errors: MERON_E_ARGUMENT (no such group, or as meron_optimizer_add_group),
 * MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_set_group(int64_t optimizer, int32_t number, int32_t defaults_of, double learning_rate, double beta1, double beta2, double epsilon, double weight_decay, double lr_decay) {
  ::meron_optimizer_group group = initial(api().meron_optimizer_group_init);
  group.defaults_of = unsigned_of<uint32_t>(defaults_of, "defaults_of", group.defaults_of);
  group.learning_rate = learning_rate;
  group.beta1 = beta1;
  group.beta2 = beta2;
  group.epsilon = epsilon;
  group.weight_decay = weight_decay;
  group.lr_decay = lr_decay;
  error_slot error;
  return error.check(api().meron_optimizer_set_group(::meron_optimizer{static_cast<uint64_t>(optimizer)}, unsigned_of<uint32_t>(number, "number"), &group, error));
}

/**
 * Reads the hyperparameters of a group. Ownership: *out is the caller's, a plain copy. Blocks:
 * never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline ::meron_optimizer_group meron_optimizer_get_group(int64_t optimizer, int32_t number) {
  ::meron_optimizer_group out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_optimizer_get_group(&out, ::meron_optimizer{static_cast<uint64_t>(optimizer)}, unsigned_of<uint32_t>(number, "number"), error));
  return out;
}

/**
 * Begins a step: norm of all gradients of this optimizer (exact, so equal for every number of
 * ranks), clipping, update of this rank's shards, publication of the next version. Needs the
 * reduced gradient of every unit, and no lease on any of them on this rank: release gathers before,
 * also pending ones, and drop schedules. A gather may begin again when the step has ended here.
 * Collective over the units' group. States on tier nvme are read, updated and written at the same
 * time, piece by piece; nothing is written before the norm is known to be finite. Ownership: the
 * caller releases *out. Blocks: as meron_barrier_begin; the future waits for a save that copies the
 * states. Threads: any. Errors: MERON_E_STATE (names the unit that is leased or not reduced; a step
 * is pending; states are offloaded), MERON_E_HANDLE, MERON_E_STALE, -3xx. From the wait:
 * MERON_E_NONFINITE on all ranks if the norm is not finite, or if the step would make a state
 * infinite or a value too large for its dtype. Nothing was changed, the step does not count, and
 * the gradients are discarded, so that training can continue. Two tiers differ. On nvme, an
 * overflow that several steps have added up to is found only while it is written: then this error
 * breaks the group. On device, only gradients are looked at before the step: a later step whose
 * norm is not finite names a value of f16 that became infinite. MERON_E_IO and MERON_E_CORRUPT if a
 * drive failed or returned other bytes than were written: these break the group, so continue from a
 * checkpoint.
 */
inline int64_t meron_optimizer_step_begin(int64_t optimizer) {
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_optimizer_step_begin(&out, ::meron_optimizer{static_cast<uint64_t>(optimizer)}, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Sets the number of steps that the optimizer and all of its params have taken, for an optimizer
 * that continues from a checkpoint, beside its states (meron_optimizer_write_state). Adam's bias
 * corrections, the first step of SGD with a momentum (which takes no average) and the random
 * rounding of states in 16 or 8 bits depend on it. All ranks set the same number, because the
 * fingerprint of the next step includes it. Changes nothing else. Blocks: never. Threads: any, not
 * during a step. Errors: MERON_E_ARGUMENT, MERON_E_STATE (a step is pending), MERON_E_HANDLE,
 * MERON_E_STALE.
 */
inline int32_t meron_optimizer_set_steps(int64_t optimizer, int64_t steps) {
  error_slot error;
  return error.check(api().meron_optimizer_set_steps(::meron_optimizer{static_cast<uint64_t>(optimizer)}, unsigned_of<uint64_t>(steps, "steps"), error));
}

/**
 * Makes the next steps skip some params: their values, states and counts of steps stay as they are,
 * like those of a torch.optim param whose gradient is None. Replaces the params of the call before.
 * All ranks give the same params before the next step, whose fingerprint includes them. Gradients
 * of skipped params still count in the norm. States in 8 bits are rounded anew if they share a
 * block with a param that is not skipped. Ownership: the array is copied. Blocks: never. Threads:
 * any, not during a step. Errors: MERON_E_ARGUMENT, MERON_E_STATE (a step is pending),
 * MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_set_skipped(int64_t optimizer, int64_array params) {
  error_slot error;
  return error.check(api().meron_optimizer_set_skipped(::meron_optimizer{static_cast<uint64_t>(optimizer)}, reinterpret_cast<const ::meron_param *>(params.items), params.count, error));
}

/**
 * Reads the number of steps that a param has taken: those of the optimizer, without the steps that
 * skipped the param (meron_optimizer_set_skipped). Blocks: never. Threads: any. Errors:
 * MERON_E_ARGUMENT (not a param of this optimizer), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int64_t meron_optimizer_param_steps(int64_t optimizer, int64_t param) {
  uint64_t out = 0;
  error_slot error;
  error.check(api().meron_optimizer_param_steps(&out, ::meron_optimizer{static_cast<uint64_t>(optimizer)}, ::meron_param{static_cast<uint64_t>(param)}, error));
  return static_cast<int64_t>(out);
}

/**
 * Sets the number of steps that one param has taken, for states that begin anew (0, beside
 * meron_optimizer_write_state of zeros) or come from elsewhere. All ranks set the same number,
 * because the fingerprint of the next step includes it. meron_optimizer_set_steps resets it.
 * Blocks: never. Threads: any, not during a step. Errors: MERON_E_ARGUMENT (also for a param that
 * this optimizer does not train), MERON_E_STATE (a step is pending), MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_set_param_steps(int64_t optimizer, int64_t param, int64_t steps) {
  error_slot error;
  return error.check(api().meron_optimizer_set_param_steps(::meron_optimizer{static_cast<uint64_t>(optimizer)}, ::meron_param{static_cast<uint64_t>(param)}, unsigned_of<uint64_t>(steps, "steps"), error));
}

/**
 * Reads the information about an optimizer. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline ::meron_optimizer_info meron_optimizer_get_info(int64_t optimizer) {
  ::meron_optimizer_info out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_optimizer_get_info(&out, ::meron_optimizer{static_cast<uint64_t>(optimizer)}, error));
  return out;
}

/**
 * This rank's shard of a state of `param`, if the state is in memory of the host in f32. Writable,
 * except for a master that is the param itself: that is mapped read-only (write it through an
 * update). Ownership: borrowed until the next step, meron_optimizer_offload or
 * meron_optimizer_release. Blocks: never. Threads: any, not during a step. Errors: MERON_E_ARGUMENT
 * (not a param of this optimizer, a state that the rule does not keep), MERON_E_STATE (the states
 * are offloaded), MERON_E_UNSUPPORTED (it is on nvme or a device, or in 16 or 8 bits: use
 * meron_optimizer_read_state), MERON_E_HANDLE, MERON_E_STALE.
 */
inline ::meron_view meron_optimizer_state_view(int64_t optimizer, int64_t param, int32_t state) {
  ::meron_view out = {};
  error_slot error;
  error.check(api().meron_optimizer_state_view(&out, ::meron_optimizer{static_cast<uint64_t>(optimizer)}, ::meron_param{static_cast<uint64_t>(param)}, static_cast<meron_optimizer_state>(state), error));
  return out;
}

/**
 * Copies this rank's shard of a state of `param` in f32, from any tier and dtype. Blocks: while
 * another thread of this rank begins an operation; if states are on nvme, on this rank's drive, and
 * while a save copies states, without a deadline. Threads: any, not during a step. Errors:
 * MERON_E_ARGUMENT (as meron_optimizer_state_view, or another count), MERON_E_STATE (a step is
 * pending, the states are offloaded), MERON_E_IO, MERON_E_CORRUPT, MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_read_state(writable_memory out, int64_t optimizer, int64_t param, int32_t state) {
  error_slot error;
  return error.check(api().meron_optimizer_read_state(static_cast<float *>(out.data), elements(out.bytes, MERON_F32), ::meron_optimizer{static_cast<uint64_t>(optimizer)}, ::meron_param{static_cast<uint64_t>(param)}, static_cast<meron_optimizer_state>(state), error));
}

/**
 * Replaces this rank's shard of a state of `param`, from f32; states of 16 or 8 bits are rounded to
 * nearest. Blocks: as meron_optimizer_read_state, and while a save copies states of any tier.
 * Threads: any, not during a step. Errors: as meron_optimizer_read_state, MERON_E_ARGUMENT also for
 * a master that is the param itself (write that through an update).
 */
inline int32_t meron_optimizer_write_state(int64_t optimizer, int64_t param, int32_t state, readable_memory data) {
  error_slot error;
  return error.check(api().meron_optimizer_write_state(::meron_optimizer{static_cast<uint64_t>(optimizer)}, ::meron_param{static_cast<uint64_t>(param)}, static_cast<meron_optimizer_state>(state), static_cast<const float *>(data.data), elements(data.bytes, MERON_F32), error));
}

/**
 * Moves this rank's states in memory, including the f32 master, to this rank's file on a drive, and
 * frees their memory, for a phase that needs it for something else, like DeepSpeed's
 * offload_states. Values stay usable. Until meron_optimizer_reload, steps, updates, saves, loads
 * and reads and writes of states return MERON_E_STATE. Blocks: on this rank's drive, and meanwhile
 * other calls of this rank that begin an operation; while a save copies states, without a deadline;
 * never on peers. Threads: any. An error changes nothing. Errors: MERON_E_ARGUMENT (no folder, an
 * unusable one), MERON_E_STATE (a step is pending, they are offloaded already), MERON_E_UNSUPPORTED
 * (they are on tier device), MERON_E_NO_SPACE, MERON_E_IO, MERON_E_NOT_FOUND, MERON_E_TIMEOUT,
 * MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_offload(int64_t optimizer, const char *folder) {
  error_slot error;
  return error.check(api().meron_optimizer_offload(::meron_optimizer{static_cast<uint64_t>(optimizer)}, folder, error));
}

/**
 * Restores the states that meron_optimizer_offload moved, bit for bit. Blocks: as
 * meron_optimizer_offload. Threads: any. After an error they are still offloaded. Errors:
 * MERON_E_STATE (they are not offloaded), MERON_E_NO_MEMORY, MERON_E_IO, MERON_E_CORRUPT (the drive
 * returned other bytes), MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_optimizer_reload(int64_t optimizer) {
  error_slot error;
  return error.check(api().meron_optimizer_reload(::meron_optimizer{static_cast<uint64_t>(optimizer)}, error));
}

/**
 * Releases the optimizer and its states. A pending step keeps them until it has ended. Blocks: if
 * states are on nvme, until the writes of the last step have completed, at most 5 s; never on
 * peers. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_optimizer_release(int64_t optimizer) {
  error_slot error;
  return error.check(api().meron_optimizer_release(::meron_optimizer{static_cast<uint64_t>(optimizer)}, error));
}

/**
 * Fills the first `struct_size` bytes of *tensor with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_checkpoint_tensor meron_checkpoint_tensor_init() {
  return initial(api().meron_checkpoint_tensor_init);
}

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_checkpoint_save_options meron_checkpoint_save_options_init() {
  return initial(api().meron_checkpoint_save_options_init);
}

/**
 * Begins to save the states of all units, or of those in the options, as they are now, as `name` in
 * `folder`. Collective over the world. A thread of the engine copies them into bounded memory and
 * writes: gathers, forward and backward continue meanwhile. The save completes without a wait, also
 * if its future is released and the program only computes. (Over a custom transport between ranks
 * it progresses within calls on the context.) The futures of a step or an update of a unit wait
 * until the unit is copied, and so does a reduction with a codec that keeps feedback. Until all
 * units are copied, these calls wait: meron_optimizer_create, meron_optimizer_write_state,
 * meron_optimizer_read_state of tier nvme, meron_optimizer_offload, meron_optimizer_reload and
 * meron_unit_destroy. Views of states must not be written before that. The counts of steps and the
 * hyperparameters are those of the call. After a failure on any rank (a full disk) the future
 * returns the error on all ranks, and the error names that rank. If some rank has not waited for
 * the future, the begin of the next save returns the error once more, on all ranks, and begins
 * nothing; the save after that is a new one. A failure of the last save that no wait returned is
 * logged by meron_context_close. Existing checkpoints stay, and training can continue. One save at
 * a time: the next save, and a load, wait for the previous one. Closing the context waits for it
 * too. A save within an accumulation, or between a reduction and its step, has what the last update
 * left: gradients are not saved, and stay as they are. A codec's feedback that replicas' exchange
 * of such a gradient has changed is not saved either: it starts from zero after a load. A cancelled
 * wait for the future does not affect the save. A rank that makes no progress for twice the
 * context's timeout breaks the group (MERON_E_TIMEOUT); a slow rank does not, nor do steps that
 * wait for it. With `per_node` a node's folder has the files of its ranks, and the manifest of all
 * (docs/checkpoint-format.md): the checkpoint exists after every node has renamed its folder; a
 * name that only some nodes have, because a host died meanwhile, is free. A killed save never takes
 * its name: what it leaves is hidden, and the next save removes it. meron_checkpoint_cancel_save
 * cancels a save. Ownership: texts and arrays are copied; the memory at a tensor's `data` must not
 * change until meron_checkpoint_wait_copied; the caller releases *out. Blocks: as
 * meron_barrier_begin; also until the previous save has ended, without a deadline, and until
 * reductions under way that change feedback have ended. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_DUPLICATE (an optimizer or a unit twice), MERON_E_PARSE (`mapping`), MERON_E_STATE (a
 * unit is gathered, also by a schedule that keeps it, or updated; a step is pending; states are
 * offloaded), MERON_E_UNSUPPORTED (a unit of some ranks only), MERON_E_HANDLE, MERON_E_STALE, -3xx,
 * and any of the previous save. From the future: MERON_E_ARGUMENT (an invalid name, `mapping`,
 * tensors that do not fit each other), MERON_E_PARSE (`extra` is no JSON object), MERON_E_DUPLICATE
 * (the name is taken), MERON_E_STATE (another process saves that name), MERON_E_NO_SPACE,
 * MERON_E_IO, MERON_E_NO_MEMORY, MERON_E_NOT_FOUND, MERON_E_TIMEOUT, MERON_E_CANCELLED
 * (meron_checkpoint_cancel_save), MERON_E_CLOSED, -3xx.
 */
inline int64_t meron_checkpoint_save_begin(int64_t context, const char *folder, const char *name, int32_t values_only, int32_t skip_frozen, int32_t overwrite, int64_t step, int64_t keep, const char *extra, int64_array optimizers, const checkpoint_tensors *tensors, const char *mapping, int32_t per_node, int64_array units) {
  ::meron_checkpoint_save_options options = initial(api().meron_checkpoint_save_options_init);
  options.values_only = unsigned_of<uint32_t>(values_only, "values_only", options.values_only);
  options.skip_frozen = unsigned_of<uint32_t>(skip_frozen, "skip_frozen", options.skip_frozen);
  options.overwrite = unsigned_of<uint32_t>(overwrite, "overwrite", options.overwrite);
  options.step = unsigned_of<uint64_t>(step, "step", options.step);
  options.keep = unsigned_of<uint64_t>(keep, "keep", options.keep);
  options.extra = extra;
  options.optimizers = reinterpret_cast<const ::meron_optimizer *>(optimizers.items);
  options.optimizer_count = optimizers.count;
  options.tensors = tensors ? tensors->data() : nullptr;
  options.tensor_count = tensors ? tensors->size() : 0;
  options.mapping = mapping;
  options.per_node = unsigned_of<uint32_t>(per_node, "per_node", options.per_node);
  options.units = reinterpret_cast<const ::meron_unit *>(units.items);
  options.unit_count = units.count;
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_checkpoint_save_begin(&out, ::meron_context{static_cast<uint64_t>(context)}, folder, name, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Waits until the pending save has copied all its data: then the caller's tensors may change.
 * Returns MERON_OK also if no save is pending, or if it has failed; MERON_IN_PROGRESS if timeout_ns
 * passed first. Blocks: on the drive; by default without a deadline. Threads: any. Errors:
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_checkpoint_wait_copied(int64_t context, int64_t timeout_ns) {
  error_slot error;
  return error.check(api().meron_checkpoint_wait_copied(::meron_context{static_cast<uint64_t>(context)}, static_cast<int64_t>(timeout_ns), error));
}

/**
 * Cancels the pending save. Any rank may do so, without the others: all of them stop writing, and
 * the save's future ends on each with MERON_E_CANCELLED, whose peer is a rank that cancelled. If
 * all ranks have written their files by then, the save succeeds instead, on all of them. A
 * cancelled save leaves no files, also with `overwrite` and `keep`: earlier checkpoints stay as
 * they were. If a process is killed meanwhile, a hidden directory may remain (.saving-...), which
 * the next save removes. The next save does not report the cancelled one. It begins nothing and
 * waits for nothing: wait for the future. Returns MERON_OK also if no save is pending. Blocks:
 * never. Threads: any. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_CLOSED, MERON_E_FORKED.
 */
inline int32_t meron_checkpoint_cancel_save(int64_t context) {
  error_slot error;
  return error.check(api().meron_checkpoint_cancel_save(::meron_context{static_cast<uint64_t>(context)}, error));
}

/**
 * Reads the progress of the pending save, or of the last one. Ownership: the caller's. Blocks:
 * never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline ::meron_checkpoint_progress meron_checkpoint_get_progress(int64_t context) {
  ::meron_checkpoint_progress out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_checkpoint_get_progress(&out, ::meron_context{static_cast<uint64_t>(context)}, error));
  return out;
}

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_checkpoint_write_options meron_checkpoint_write_options_init() {
  return initial(api().meron_checkpoint_write_options_init);
}

/**
 * Writes tensors as a checkpoint of one rank, for importers of other formats. `data` is read once
 * and in order, so it may be mapped files. Ownership: everything is only read, during the call.
 * Blocks: on the drive. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_PARSE (`extra`,
 * `optimizers`), MERON_E_DUPLICATE, MERON_E_STATE, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT.
 */
inline int32_t meron_checkpoint_write(const char *folder, const char *name, int32_t overwrite, int64_t step, const char *extra, const char *optimizers, const checkpoint_tensors *tensors) {
  ::meron_checkpoint_write_options options = initial(api().meron_checkpoint_write_options_init);
  options.overwrite = unsigned_of<uint32_t>(overwrite, "overwrite", options.overwrite);
  options.step = unsigned_of<uint64_t>(step, "step", options.step);
  options.extra = extra;
  options.optimizers = optimizers;
  options.tensors = tensors ? tensors->data() : nullptr;
  options.tensor_count = tensors ? tensors->size() : 0;
  error_slot error;
  return error.check(api().meron_checkpoint_write(folder, name, &options, error));
}

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_checkpoint_load_options meron_checkpoint_load_options_init() {
  return initial(api().meron_checkpoint_load_options_init);
}

/**
 * Loads a checkpoint into all units, or those in the options, and into their optimizers: see the
 * top of checkpoint.h. Collective over the world. Before anything changes, all ranks have compared
 * names, shapes and optimizers, and opened the files: such an error is one on all ranks and changes
 * nothing, so that a program can begin anew after MERON_E_NOT_FOUND. A later error, also a wait
 * that should_stop ended (MERON_E_ABORTED), is an error on all ranks and breaks the group, because
 * states are of two checkpoints. When it ends on one rank, no rank reads the files any more. With
 * `per_node` the newest checkpoint is the newest that has all its files in the nodes' folders
 * together; the numbers of nodes and ranks may differ from those at the save, and a node may have
 * the files of several. Ownership: the caller releases *out. Blocks: until a pending save has
 * ended, without a deadline; on the drive and on all ranks; other threads of this rank that begin
 * an operation wait. A rank that makes no progress for twice the context's timeout ends the load
 * (MERON_E_TIMEOUT, which names it); raise the timeout for such slow drives. Threads: any. Errors:
 * MERON_E_NOT_FOUND (the folder or the name does not exist, or no checkpoint in it is complete),
 * MERON_E_CORRUPT (names tensor, file and offset), MERON_E_PARSE (`mapping`, a manifest),
 * MERON_E_VERSION (of a newer version), MERON_E_ARGUMENT (it does not fit: the message lists
 * missing, unexpected and different shapes), MERON_E_DUPLICATE, MERON_E_STATE and
 * MERON_E_UNSUPPORTED as meron_checkpoint_save_begin, MERON_E_STATE also for a gradient in another
 * state than empty, MERON_E_IO, MERON_E_NO_MEMORY, MERON_E_AUTH (its manifest is a symbolic link;
 * links of a Hugging Face model are followed), MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
inline int64_t meron_checkpoint_load(int64_t context, const char *folder, const char *name, int32_t lenient, int32_t values_only, int32_t rank0_only, int64_array optimizers, const char *mapping, const char *claimed, int32_t per_node, int64_array units) {
  ::meron_checkpoint_load_options options = initial(api().meron_checkpoint_load_options_init);
  options.lenient = unsigned_of<uint32_t>(lenient, "lenient", options.lenient);
  options.values_only = unsigned_of<uint32_t>(values_only, "values_only", options.values_only);
  options.rank0_only = unsigned_of<uint32_t>(rank0_only, "rank0_only", options.rank0_only);
  options.optimizers = reinterpret_cast<const ::meron_optimizer *>(optimizers.items);
  options.optimizer_count = optimizers.count;
  options.mapping = mapping;
  options.claimed = claimed;
  options.per_node = unsigned_of<uint32_t>(per_node, "per_node", options.per_node);
  options.units = reinterpret_cast<const ::meron_unit *>(units.items);
  options.unit_count = units.count;
  ::meron_checkpoint out = {};
  error_slot error;
  error.check(api().meron_checkpoint_load(&out, ::meron_context{static_cast<uint64_t>(context)}, folder, name, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Opens a checkpoint, or a model as Hugging Face publishes it, to inspect it and to read tensors.
 * Ownership: the caller releases *out. Blocks: on the drive. Threads: any. Errors:
 * MERON_E_NOT_FOUND, MERON_E_CORRUPT, MERON_E_PARSE, MERON_E_VERSION, MERON_E_ARGUMENT,
 * MERON_E_AUTH (its manifest is a symbolic link), MERON_E_IO, MERON_E_NO_MEMORY.
 */
inline int64_t meron_checkpoint_open(const char *folder, const char *name) {
  ::meron_checkpoint out = {};
  error_slot error;
  error.check(api().meron_checkpoint_open(&out, folder, name, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Lists the complete checkpoints in a folder. Incomplete and damaged ones, links, and everything
 * that is no checkpoint are left out. Ownership: the caller frees *out with meron_string_free.
 * Blocks: on the drive. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_NOT_FOUND (no such folder),
 * MERON_E_IO, MERON_E_NO_MEMORY.
 */
inline char *meron_checkpoint_list(const char *folder) {
  char *out = nullptr;
  error_slot error;
  error.check(api().meron_checkpoint_list(&out, folder, error));
  return out;
}

/**
 * Removes a checkpoint, complete or not, with all that is in its directory. It loses its name
 * first: if the process is killed or the host loses power, the checkpoint is there as before or
 * gone, and the next save removes what remains. Any one process may call it, beside a job that
 * saves to the folder; ranks need not agree. If each node has its own folder, remove it in each.
 * Blocks: on the drive; at most half a minute while a save begins or ends in the folder. Threads:
 * any. Errors: MERON_E_ARGUMENT (an invalid name; it is no checkpoint, and stays),
 * MERON_E_NOT_FOUND, MERON_E_AUTH (the name is a symbolic link), MERON_E_STATE (a save of that name
 * is pending, or a process reads the checkpoint or has not released a meron_checkpoint of it; file
 * systems without locks, such as some over a network, cannot tell), MERON_E_PARSE, MERON_E_CORRUPT
 * and MERON_E_VERSION (its manifest cannot be read: remove it by hand), MERON_E_IO,
 * MERON_E_TIMEOUT.
 */
inline int32_t meron_checkpoint_remove(const char *folder, const char *name) {
  error_slot error;
  return error.check(api().meron_checkpoint_remove(folder, name, error));
}

/**
 * Reads the information about a checkpoint. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline ::meron_checkpoint_info meron_checkpoint_get_info(int64_t checkpoint) {
  ::meron_checkpoint_info out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_checkpoint_get_info(&out, ::meron_checkpoint{static_cast<uint64_t>(checkpoint)}, error));
  return out;
}

/**
 * A text of a checkpoint. Ownership: borrowed from the checkpoint. Blocks: never. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline const char *meron_checkpoint_text(int64_t checkpoint, int32_t kind) {
  const char *out = nullptr;
  error_slot error;
  error.check(api().meron_checkpoint_text(&out, ::meron_checkpoint{static_cast<uint64_t>(checkpoint)}, static_cast<meron_checkpoint_text_kind>(kind), error));
  return out;
}

/**
 * Reads elements of a tensor in the files' dtype, after a comparison of their checksums. Local: no
 * other rank takes part. Ownership: the caller owns `data`. Blocks: on the drive. Threads: any; one
 * at a time reads. Errors: MERON_E_NOT_FOUND (no such tensor, a file is gone), MERON_E_ARGUMENT
 * (outside of the tensor), MERON_E_CORRUPT, MERON_E_IO, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
inline int32_t meron_checkpoint_read(writable_memory data, int64_t checkpoint, const char *kind, const char *name, int64_t begin, int64_t count) {
  error_slot error;
  return error.check(api().meron_checkpoint_read(data.data, data.bytes, ::meron_checkpoint{static_cast<uint64_t>(checkpoint)}, kind, name, unsigned_of<uint64_t>(begin, "begin"), unsigned_of<uint64_t>(count, "count"), error));
}

/**
 * Releases a checkpoint; loaded states stay. Blocks: never. Threads: any, also a finalizer's.
 * Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_checkpoint_release(int64_t checkpoint) {
  error_slot error;
  return error.check(api().meron_checkpoint_release(::meron_checkpoint{static_cast<uint64_t>(checkpoint)}, error));
}

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_checkpoint_export_options meron_checkpoint_export_options_init() {
  return initial(api().meron_checkpoint_export_options_init);
}

/**
 * Writes the values of all units as Hugging Face publishes models: model.safetensors, or several
 * files and model.safetensors.index.json. Collective over the world; each rank writes its own shard
 * of each tensor in place, so nothing is gathered. If a param has an f32 master and its own dtype
 * is not the written one, the master is the source: MERON_F32 writes the masters. A tensor that
 * layers share is one param and written once. A unit whose params the mapping leaves out may be in
 * use. At every moment, also if a rank is killed, the folder has the former model or the new one.
 * Its other files are unchanged, and the next export removes the files of a killed one. NaNs are
 * written as they are. Ownership: everything is only read, during the call. Blocks: until a pending
 * save has ended, on the drive and on all ranks, without a deadline; other threads of this rank
 * that begin an operation wait. Threads: any. Errors: MERON_E_ARGUMENT and MERON_E_PARSE (the
 * mapping or a tensor, two tensors of one name, nothing to export), MERON_E_DUPLICATE (a model
 * exists), MERON_E_STATE (another export to the folder is pending; and as
 * meron_checkpoint_save_begin), MERON_E_UNSUPPORTED as that, MERON_E_NO_SPACE, MERON_E_IO,
 * MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
inline int32_t meron_checkpoint_export(int64_t context, const char *folder, int32_t dtype, int32_t keep_dtype, int32_t overwrite, int64_t max_file_bytes, const char *mapping, const checkpoint_tensors *tensors) {
  ::meron_checkpoint_export_options options = initial(api().meron_checkpoint_export_options_init);
  options.dtype = static_cast<meron_dtype>(dtype);
  options.keep_dtype = unsigned_of<uint32_t>(keep_dtype, "keep_dtype", options.keep_dtype);
  options.overwrite = unsigned_of<uint32_t>(overwrite, "overwrite", options.overwrite);
  options.max_file_bytes = unsigned_of<uint64_t>(max_file_bytes, "max_file_bytes", options.max_file_bytes);
  options.mapping = mapping;
  options.tensors = tensors ? tensors->data() : nullptr;
  options.tensor_count = tensors ? tensors->size() : 0;
  error_slot error;
  return error.check(api().meron_checkpoint_export(::meron_context{static_cast<uint64_t>(context)}, folder, &options, error));
}

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_gather_options meron_gather_options_init() {
  return initial(api().meron_gather_options_init);
}

/**
 * Begins a gather. Collective over the units' group; the mode may differ between ranks. When it has
 * ended, the tensors are full, those on a device too. A wait makes the requested copy, and may end
 * with MERON_E_NO_MEMORY (the device is full: only this rank is concerned, and everything else
 * stays usable) or MERON_E_DEVICE. Ownership: the caller releases *out, which releases the leases;
 * destinations must stay valid until it has ended or is released. A release cancels a pending
 * gather, and makes views invalid: on a device the caller must first wait for all work that uses
 * them (or see meron_gather_release_on_stream). Blocks: as meron_barrier_begin. Threads: any.
 * Errors: MERON_E_ARGUMENT (also a destination on another device), MERON_E_DUPLICATE (a unit or a
 * flat twice; a param with a destination of its own and one of its flat), MERON_E_STATE (a unit is
 * being updated here, or a step is pending), MERON_E_NO_MEMORY (a copy), MERON_E_DEVICE,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, -3xx.
 */
inline int64_t meron_gather_begin(int64_array units, int32_t mode, const meron_destination_list *destinations, int32_t tier, int64_t stream, const meron_flat_destination_list *flats) {
  ::meron_gather_options options = initial(api().meron_gather_options_init);
  options.mode = static_cast<meron_gather_mode>(mode);
  options.destinations = destinations ? destinations->data() : nullptr;
  options.destination_count = destinations ? destinations->size() : 0;
  options.tier = static_cast<meron_tier>(tier);
  options.stream = reinterpret_cast<void *>(stream);
  options.flats = flats ? flats->data() : nullptr;
  options.flat_count = flats ? flats->size() : 0;
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_gather_begin(&out, reinterpret_cast<const ::meron_unit *>(units.items), units.count, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Makes `stream` wait until the tensors are full on the device: later work on the stream sees them.
 * Does not wait for the device; for tensors on the host it is meron_future_wait. Blocks: on peers,
 * at most the deadline. Threads: any. Errors: as of a wait for the gather; MERON_E_ARGUMENT (the
 * context has no device, a stream of another one), MERON_E_STATE (the stream is being captured into
 * a graph).
 */
inline int32_t meron_gather_wait_stream(int64_t gather, int64_t stream, int64_t timeout_ns) {
  error_slot error;
  return error.check(api().meron_gather_wait_stream(::meron_future{static_cast<uint64_t>(gather)}, reinterpret_cast<void *>(stream), static_cast<int64_t>(timeout_ns), error));
}

/**
 * The full tensor of a param of a gather that has ended. On a device, a call of meron_future_wait
 * or meron_gather_wait_stream must have waited for the gather, and the pointer is one of the
 * device. Ownership: borrowed until meron_future_release. Read-only for MERON_GATHER_VIEW, because
 * it is the memory of the values, which other ranks may read. On the host it is mapped read-only
 * under every plan: a write ends the process by a segmentation fault. A device does not protect its
 * memory: a write there damages the values. Gather with MERON_GATHER_COPY or MERON_GATHER_INTO to
 * change values; the tensor is then in the copy, or in the destination of the param or of its flat.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (not in this gather), MERON_E_STATE (not
 * full yet, or on a device and no call has waited for it), MERON_E_DEVICE, MERON_E_HANDLE,
 * MERON_E_STALE.
 */
inline ::meron_view meron_gather_view(int64_t gather, int64_t param) {
  ::meron_view out = {};
  error_slot error;
  error.check(api().meron_gather_view(&out, ::meron_future{static_cast<uint64_t>(gather)}, ::meron_param{static_cast<uint64_t>(param)}, error));
  return out;
}

/**
 * The same as a DLPack tensor (version 1.x; of the CPU or of a CUDA device), with a separate lease
 * that its deleter releases. Its flags are read-only for MERON_GATHER_VIEW; a consumer that ignores
 * them, as PyTorch does, must not write: see meron_gather_view. MERON_GATHER_INTO is an error: that
 * memory is the caller's. On a device it may be taken before a call has waited; work that waits for
 * the gather may read it. Ownership: the caller calls (*out)->deleter(*out) once. Until then the
 * memory stays readable, also after the context was closed; peers may change the values from then
 * on. On a device, work that was requested before the deleter's call may still use the memory, on
 * streams that have waited for the gather (meron_gather_wait_stream): these must exist then, and
 * must not be captured into a graph. Blocks: never. Threads: any. Errors: as meron_gather_view,
 * MERON_E_UNSUPPORTED.
 */
inline int64_t meron_gather_dlpack(int64_t gather, int64_t param) {
  struct DLManagedTensorVersioned *out = nullptr;
  error_slot error;
  error.check(api().meron_gather_dlpack(&out, ::meron_future{static_cast<uint64_t>(gather)}, ::meron_param{static_cast<uint64_t>(param)}, error));
  return reinterpret_cast<int64_t>(out);
}

/**
 * As meron_future_release, if queued work of `stream` still uses the views: their memory on the
 * device is released when that work is done. DLPack tensors keep theirs. Blocks: never. Threads:
 * any. Errors: MERON_E_ARGUMENT and MERON_E_STATE as meron_gather_wait_stream (then nothing is
 * released), MERON_E_DEVICE, MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_gather_release_on_stream(int64_t gather, int64_t stream) {
  error_slot error;
  return error.check(api().meron_gather_release_on_stream(::meron_future{static_cast<uint64_t>(gather)}, reinterpret_cast<void *>(stream), error));
}

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_io_options meron_io_options_init() {
  return initial(api().meron_io_options_init);
}

/**
 * Opens a queue to the kernel, with the threads that serve it. Ownership: the caller closes *out.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (a value out of range), MERON_E_UNSUPPORTED
 * (MERON_IO_BACKEND_URING if the host forbids io_uring: the message names the cause),
 * MERON_E_NO_MEMORY, MERON_E_FORKED.
 */
inline int64_t meron_io_open(int32_t backend, int32_t block_bytes, int32_t depth, int32_t threads, int32_t single_submit, int32_t overlap_events, int64_t timeout_ns) {
  ::meron_io_options options = initial(api().meron_io_options_init);
  options.backend = static_cast<meron_io_backend>(backend);
  options.block_bytes = unsigned_of<uint32_t>(block_bytes, "block_bytes", options.block_bytes);
  options.depth = unsigned_of<uint32_t>(depth, "depth", options.depth);
  options.threads = unsigned_of<uint32_t>(threads, "threads", options.threads);
  options.single_submit = unsigned_of<uint32_t>(single_submit, "single_submit", options.single_submit);
  options.overlap_events = unsigned_of<uint32_t>(overlap_events, "overlap_events", options.overlap_events);
  options.timeout_ns = static_cast<int64_t>(timeout_ns);
  ::meron_io out = {};
  error_slot error;
  error.check(api().meron_io_open(&out, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Reads `bytes` bytes of a file from `offset` on, and waits for them. Offset, length and memory
 * need no alignment. Full pages bypass the page cache if the file system allows it and memory and
 * file have the same alignment, for example both at multiples of the page. The rest uses the page
 * cache. Ownership: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still write
 * to it, until meron_io_wait or meron_io_close has returned. Blocks: on the drive, until the
 * options' timeout_ns has passed without any transfer, and on the file system while the file is
 * opened. Threads: any; no pending request may write the same bytes. Errors: MERON_E_NOT_FOUND,
 * MERON_E_IO (the file is too short: the message has the file, the offset, the requested bytes and
 * the available ones; or the error of the drive), MERON_E_ARGUMENT (no regular file),
 * MERON_E_TIMEOUT, MERON_E_NO_MEMORY, MERON_E_CLOSED (meanwhile), MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
inline int32_t meron_io_read(int64_t io, const char *path, writable_memory data, int64_t offset) {
  error_slot error;
  return error.check(api().meron_io_read(::meron_io{static_cast<uint64_t>(io)}, path, data.data, data.bytes, unsigned_of<uint64_t>(offset, "offset"), error));
}

/**
 * Writes `bytes` bytes to a file from `offset` on, and waits until the kernel has accepted them.
 * Creates the file if it does not exist, with mode 0666 less the umask. Other content of the file
 * stays, and the file is not truncated. Data that must survive a loss of power needs a sync by the
 * caller. A file that has to grow gets its disk space before anything is written. Ownership: the
 * memory stays the caller's; after MERON_E_TIMEOUT the drive may still read it, as meron_io_read.
 * Blocks: as meron_io_read. Threads: any; no pending request may read or write the same bytes.
 * Errors: as meron_io_read, MERON_E_NO_SPACE (a file that had to grow keeps its size),
 * MERON_E_NOT_FOUND if the directory does not exist.
 */
inline int32_t meron_io_write(int64_t io, const char *path, readable_memory data, int64_t offset) {
  error_slot error;
  return error.check(api().meron_io_write(::meron_io{static_cast<uint64_t>(io)}, path, data.data, data.bytes, unsigned_of<uint64_t>(offset, "offset"), error));
}

/**
 * Begins a read. Requests begin in the order of the calls, run at the same time and end in any
 * order: wait for a request before you begin another that depends on it. A request is a future. A
 * wait for it ends also after the options' timeout_ns without any transfer (MERON_E_TIMEOUT: it is
 * still pending), with MERON_E_IO or MERON_E_NO_SPACE (both name file, offset and bytes;
 * meron_io_wait does not report them again), or with MERON_E_CLOSED (the io was closed before it
 * ended). A pending request continues after its release: its memory must stay valid, and
 * meron_io_wait or meron_io_close returns its result. Ownership: the caller releases *out; the
 * memory must stay until the request has ended (the memory of a meron_io_buffer does so by itself).
 * Blocks: on the file system while the file is opened, never on the transfer. Threads: any. Errors:
 * as meron_io_read; a wait returns the errors of the drive.
 */
inline int64_t meron_io_read_begin(int64_t io, const char *path, writable_memory data, int64_t offset) {
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_io_read_begin(&out, ::meron_io{static_cast<uint64_t>(io)}, path, data.data, data.bytes, unsigned_of<uint64_t>(offset, "offset"), error));
  return static_cast<int64_t>(out.id);
}

/**
 * Begins a write. This call creates the file and lets it grow. Ownership: as meron_io_read_begin;
 * the memory must not change until the request has ended. Blocks: as meron_io_read_begin. Threads:
 * any. Errors: as meron_io_write; a wait returns the errors of the drive.
 */
inline int64_t meron_io_write_begin(int64_t io, const char *path, readable_memory data, int64_t offset) {
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_io_write_begin(&out, ::meron_io{static_cast<uint64_t>(io)}, path, data.data, data.bytes, unsigned_of<uint64_t>(offset, "offset"), error));
  return static_cast<int64_t>(out.id);
}

/**
 * Waits for all requests that no call has waited for, also for those with a released handle.
 * Returns MERON_IN_PROGRESS if timeout_ns passed first; the requests continue. Blocks: on the
 * drive, until the options' timeout_ns has passed without any transfer. Threads: any. Errors: after
 * all have ended, their first error, which names its file and the number of other failures;
 * MERON_E_TIMEOUT: no transfer progresses, and they are still pending; MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_io_wait(int64_t io, int64_t timeout_ns) {
  error_slot error;
  return error.check(api().meron_io_wait(::meron_io{static_cast<uint64_t>(io)}, static_cast<int64_t>(timeout_ns), error));
}

/**
 * Reads the information about an io. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline ::meron_io_info meron_io_get_info(int64_t io) {
  ::meron_io_info out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_io_get_info(&out, ::meron_io{static_cast<uint64_t>(io)}, error));
  return out;
}

/**
 * Describes the speed for people, one line per fact: the backend and the kernel's grants, the
 * reason if it is not a faster one, and the files that use the page cache with the reason.
 * Ownership: the caller frees *out with meron_string_free. Blocks: never. Threads: any. Errors:
 * MERON_E_ARGUMENT, MERON_E_NO_MEMORY, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline char *meron_io_describe(int64_t io) {
  char *out = nullptr;
  error_slot error;
  error.check(api().meron_io_describe(&out, ::meron_io{static_cast<uint64_t>(io)}, error));
  return out;
}

/**
 * Closes the io after pending requests have ended; its handle is stale at once. Requests and
 * buffers stay until they are released. Ownership: memory of requests is the caller's again, unless
 * this returns MERON_E_CLOSED or MERON_E_TIMEOUT: a drive has not returned some of it and may still
 * use it. Blocks: on the drive, at most 5 s, or 10 s if it does not answer at all. Threads: any,
 * also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, and, although the io
 * is closed, the first error of requests that no call has waited for.
 */
inline int32_t meron_io_close(int64_t io) {
  error_slot error;
  return error.check(api().meron_io_close(::meron_io{static_cast<uint64_t>(io)}, error));
}

/**
 * Allocates pinned memory of `bytes` bytes, which read as 0. Reads and writes are fastest with it,
 * although they accept any memory. Ownership: the caller releases *out. Blocks: until the host has
 * allocated the memory. Threads: any. Errors: MERON_E_ARGUMENT (no bytes), MERON_E_NO_MEMORY (the
 * host, its cgroup or a limit), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED. If the kernel does
 * not register it, it works unregistered (meron_io_describe has the reason).
 */
inline int64_t meron_io_buffer_create(int64_t io, int64_t bytes) {
  ::meron_io_buffer out = {};
  error_slot error;
  error.check(api().meron_io_buffer_create(&out, ::meron_io{static_cast<uint64_t>(io)}, unsigned_of<uint64_t>(bytes, "bytes"), error));
  return static_cast<int64_t>(out.id);
}

/**
 * Address and size of a buffer. Ownership: the memory is borrowed until meron_io_buffer_release.
 * Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
inline ::meron_io_buffer_info meron_io_buffer_get_info(int64_t buffer) {
  ::meron_io_buffer_info out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_io_buffer_get_info(&out, ::meron_io_buffer{static_cast<uint64_t>(buffer)}, error));
  return out;
}

/**
 * Releases a buffer. Its memory is freed after the last request that uses it has ended and a call
 * has waited for that request. The buffer outlives its io if that is closed first. Blocks: never on
 * the drive. Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE,
 * MERON_E_FORKED.
 */
inline int32_t meron_io_buffer_release(int64_t buffer) {
  error_slot error;
  return error.check(api().meron_io_buffer_release(::meron_io_buffer{static_cast<uint64_t>(buffer)}, error));
}

/**
 * The memory in this rank's bucket for the gradient of `param`, writable, in memory of the host:
 * the trainer adds to it. Under a plan that shards gradients it is zero at the start of each
 * micro-batch. Under one that keeps them full it is zero at the start of an accumulation, and later
 * has the sum of the micro-batches so far: always add then. Its dtype is the plan's gradient dtype.
 * With "auto", the default, that is the param's own; full gradients of a 16-bit param are f32 from
 * the second micro-batch on. Ownership: borrowed until meron_reduce_begin of the unit. Blocks: on
 * peers that still read the bucket's last contents, at most the deadline. The unit's first gradient
 * allocates the memory of gradients, which meron_unit_create has only counted. Threads: any.
 * Errors: MERON_E_ARGUMENT, MERON_E_STATE (frozen, not in a unit, the gradient is reduced and not
 * used, or all buckets are being filled), MERON_E_UNSUPPORTED (the gradient is summed on the
 * device: pass sources to meron_reduce_begin), MERON_E_NO_MEMORY (nothing has changed: the call may
 * be made again), MERON_E_HANDLE, MERON_E_STALE, MERON_E_CANCELLED (no bucket is taken), -3xx, also
 * of another group if its reduction keeps the buckets.
 */
inline ::meron_view meron_gradient_view(int64_t param, int64_t flags) {
  ::meron_view out = {};
  error_slot error;
  error.check(api().meron_gradient_view(&out, ::meron_param{static_cast<uint64_t>(param)}, unsigned_of<uint64_t>(flags, "flags"), error));
  return out;
}

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_reduce_options meron_reduce_options_init() {
  return initial(api().meron_reduce_options_init);
}

/**
 * Begins the reduction of a unit's gradients of one micro-batch. Collective over the unit's group.
 * Under a plan that keeps full gradients, a call with boundary 0 only accumulates: no
 * communication. Ownership: the caller releases *out; sources on the host are read during the call,
 * those on the device until the reduction has ended: do not change these before a wait for the
 * future, or meron_reduce_wait, has returned. Blocks: as meron_barrier_begin; from another state
 * than filling, also as meron_gradient_view; if a device has the codec's feedback, also while a
 * save copies states. Threads: any. Errors: MERON_E_ARGUMENT (a wrong count, a param of another
 * unit, a source on another device), MERON_E_DEVICE, MERON_E_DUPLICATE, MERON_E_STATE (reduced
 * already and not used, or all params frozen), MERON_E_HANDLE, MERON_E_STALE, -3xx; and as
 * meron_gradient_view.
 */
inline int64_t meron_reduce_begin(int64_t unit, const meron_source_list *sources, int32_t op, int32_t boundary, double divisor, int64_t stream) {
  ::meron_reduce_options options = initial(api().meron_reduce_options_init);
  options.op = static_cast<meron_reduce_op>(op);
  options.boundary = unsigned_of<uint32_t>(boundary, "boundary", options.boundary);
  options.divisor = divisor;
  options.stream = reinterpret_cast<void *>(stream);
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_reduce_begin(&out, ::meron_unit{static_cast<uint64_t>(unit)}, sources ? sources->data() : nullptr, sources ? sources->size() : 0, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Waits until the last reduction and the last end of an accumulation of each unit have ended, also
 * those without a future. One call for many units. Returns MERON_IN_PROGRESS if timeout_ns passed
 * first; all operations continue. Blocks: as meron_future_wait. Threads: any. Errors: as
 * meron_future_wait; MERON_E_ARGUMENT (no unit), MERON_E_HANDLE (units of several contexts).
 */
inline int32_t meron_reduce_wait(int64_array units, int64_t timeout_ns) {
  error_slot error;
  return error.check(api().meron_reduce_wait(reinterpret_cast<const ::meron_unit *>(units.items), units.count, static_cast<int64_t>(timeout_ns), error));
}

/**
 * The reduced gradient of the shard of `param` that this rank updates, f32, writable, in memory of
 * the host: a sum on the device is copied there, and back by a step. It is for trainers with their
 * own optimizer, or for changes: a step of Meron's optimizer computes norm, clipping and its test
 * for NaN and infinity from the current content. Ownership: borrowed until the next gradient of the
 * unit is begun, a step, or meron_reduce_discard. Blocks: only while another thread of this rank
 * begins an operation, and while a device copies the sum. Threads: any. Errors: MERON_E_STATE (no
 * boundary reduction has ended), MERON_E_DEVICE, MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
 */
inline ::meron_view meron_reduced_view(int64_t param) {
  ::meron_view out = {};
  error_slot error;
  error.check(api().meron_reduced_view(&out, ::meron_param{static_cast<uint64_t>(param)}, error));
  return out;
}

/**
 * The same as a DLPack tensor (version 1.x, of the CPU): one dimension, the param's shard_count
 * elements of f32, writable. The gradient is lent until its deleter is called: until then a step,
 * meron_reduce_consume, meron_reduce_discard and meron_unit_destroy of the unit return
 * MERON_E_STATE. Ownership: the caller calls (*out)->deleter(*out) once, on any thread; until then
 * the memory stays valid, also after the context was closed. Blocks: as meron_reduced_view; the
 * deleter never. Threads: any. Errors: as meron_reduced_view; MERON_E_STATE also while a step uses
 * the gradient.
 */
inline int64_t meron_reduced_dlpack(int64_t param) {
  struct DLManagedTensorVersioned *out = nullptr;
  error_slot error;
  error.check(api().meron_reduced_dlpack(&out, ::meron_param{static_cast<uint64_t>(param)}, error));
  return reinterpret_cast<int64_t>(out);
}

/**
 * Computes the global 2-norm of the reduced gradients of some units, and scales them to at most
 * `max_norm`, for an optimizer of the trainer's own: as torch.nn.utils.clip_grad_norm_. The norm is
 * exact, so that it has the same bits for every number of ranks and every plan. Norm and scaled
 * gradients have the bits with which a step of Meron's optimizer with `max_norm` works. Collective
 * over the units' group, with equal units and max_norm. Ownership: none. Views of
 * meron_reduced_view stay valid, and must not be written meanwhile; until the call has ended, a new
 * one is MERON_E_STATE. On a device, gradients travel to the host: see meron_reduced_view. Blocks:
 * until every rank has called it, at most the deadline. Threads: any. Errors: MERON_E_NONFINITE on
 * all ranks (a gradient is NaN or infinite: the message has param, element and rank, of a gradient
 * on a device unit and rank; no gradient is changed, so meron_reduce_discard them),
 * MERON_E_ARGUMENT (no unit, no unit that trains, a negative or infinite max_norm),
 * MERON_E_DUPLICATE (a unit twice), MERON_E_STATE (names the unit that is not reduced, or is in use
 * by a step), MERON_E_CANCELLED (should_stop: the gradients are scaled once all peers have called
 * it), MERON_E_NO_MEMORY (the call may be made again), MERON_E_DEVICE, MERON_E_MISMATCH,
 * MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
inline double meron_gradient_clip(int64_array units, double max_norm) {
  double out = 0;
  error_slot error;
  error.check(api().meron_gradient_clip(&out, reinterpret_cast<const ::meron_unit *>(units.items), units.count, max_norm, error));
  return out;
}

/**
 * Ends an accumulation without another micro-batch: all of them had boundary 0, and the result has
 * the same bits as if the last one had boundary 1. Under a plan that shards gradients, no bytes
 * move and the sum is scaled; under a plan that keeps full gradients, the accumulated gradient is
 * reduced. A rank without a gradient contributes zeros. Collective over the unit's group.
 * Ownership: the caller releases *out. Blocks: as meron_barrier_begin; if the end moves gradients,
 * also as meron_reduce_begin. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_STATE (the gradient
 * is written but not passed to meron_reduce_begin, or reduced and not used, or all params are
 * frozen), MERON_E_NO_MEMORY (as meron_gradient_view), MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
inline int64_t meron_reduce_finish_begin(int64_t unit, int32_t op, int32_t boundary, double divisor, int64_t stream) {
  ::meron_reduce_options options = initial(api().meron_reduce_options_init);
  options.op = static_cast<meron_reduce_op>(op);
  options.boundary = unsigned_of<uint32_t>(boundary, "boundary", options.boundary);
  options.divisor = divisor;
  options.stream = reinterpret_cast<void *>(stream);
  ::meron_future out = {};
  error_slot error;
  error.check(api().meron_reduce_finish_begin(&out, ::meron_unit{static_cast<uint64_t>(unit)}, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If the
 * codec has feedback, the next gradient makes up for what was lost of this one. Blocks: only while
 * another thread of this rank begins an operation. Threads: any. Errors: MERON_E_STATE (there is
 * none, or a reduction or step is pending), MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_reduce_consume(int64_t unit) {
  error_slot error;
  return error.check(api().meron_reduce_consume(::meron_unit{static_cast<uint64_t>(unit)}, error));
}

/**
 * Throws the reduced gradient of a unit away, or before the accumulation boundary the accumulation:
 * then all ranks of the group must do the same. The codec's feedback, which is of this gradient, is
 * thrown away too. Call meron_reduce_consume instead if an optimizer has used the gradient. Blocks:
 * while another thread of this rank begins an operation and, if there is feedback, while a save
 * copies it. Threads: any. Errors: MERON_E_STATE (there is neither, or a reduction or step is
 * pending), MERON_E_HANDLE, MERON_E_STALE.
 */
inline int32_t meron_reduce_discard(int64_t unit) {
  error_slot error;
  return error.check(api().meron_reduce_discard(::meron_unit{static_cast<uint64_t>(unit)}, error));
}

/**
 * Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it if a loss
 * scale changes that is not a part of options.divisor, with the new scale divided by the old one.
 * Does nothing if the plan has no feedback. Blocks: while another thread of this rank begins an
 * operation and, if there is feedback, while a save copies it. Threads: any. Errors:
 * MERON_E_ARGUMENT (the factor), MERON_E_STATE (a reduction is pending), MERON_E_HANDLE,
 * MERON_E_STALE.
 */
inline int32_t meron_reduce_scale_feedback(int64_t unit, double factor) {
  error_slot error;
  return error.check(api().meron_reduce_scale_feedback(::meron_unit{static_cast<uint64_t>(unit)}, factor, error));
}

/**
 * Fills the first `struct_size` bytes of *options with the initial value (for languages without
 * macros). Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT.
 */
inline ::meron_schedule_options meron_schedule_options_init() {
  return initial(api().meron_schedule_options_init);
}

/**
 * Creates a schedule of some units. Later calls use a unit by its index. Collective over the units'
 * group: units and options are equal on all ranks. Ownership: the caller releases *out; a stream in
 * the options must live as long as the schedule. Blocks: as meron_barrier_begin. Threads: any.
 * Errors: MERON_E_ARGUMENT (also options that were not initialized, and a stream of another
 * device), MERON_E_DUPLICATE (a unit twice), MERON_E_HANDLE, MERON_E_STALE, -3xx.
 */
inline int64_t meron_schedule_create(int64_array units, int64_t prefetch_elements, int64_t max_live_elements, int64_t max_reuse_elements, int64_t persist_elements, int64_t persist_total_elements, int32_t tier, int64_t stream) {
  ::meron_schedule_options options = initial(api().meron_schedule_options_init);
  options.prefetch_elements = unsigned_of<uint64_t>(prefetch_elements, "prefetch_elements", options.prefetch_elements);
  options.max_live_elements = unsigned_of<uint64_t>(max_live_elements, "max_live_elements", options.max_live_elements);
  options.max_reuse_elements = unsigned_of<uint64_t>(max_reuse_elements, "max_reuse_elements", options.max_reuse_elements);
  options.persist_elements = unsigned_of<uint64_t>(persist_elements, "persist_elements", options.persist_elements);
  options.persist_total_elements = unsigned_of<uint64_t>(persist_total_elements, "persist_total_elements", options.persist_total_elements);
  options.tier = static_cast<meron_tier>(tier);
  options.stream = reinterpret_cast<void *>(stream);
  ::meron_schedule out = {};
  error_slot error;
  error.check(api().meron_schedule_create(&out, reinterpret_cast<const ::meron_unit *>(units.items), units.count, &options, error));
  return static_cast<int64_t>(out.id);
}

/**
 * Starts a pass. The uses of the previous pass become the recorded order of its kind, unless there
 * were none. Releases prefetched units that were not used, and units that were kept for a use that
 * the new pass does not have soon. Local: it begins no gather. Blocks: only while another thread of
 * this rank begins an operation. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_STATE (names the
 * units that are entered), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_schedule_start_pass(int64_t schedule, int32_t kind) {
  error_slot error;
  return error.check(api().meron_schedule_start_pass(::meron_schedule{static_cast<uint64_t>(schedule)}, unsigned_of<uint32_t>(kind, "kind"), error));
}

/**
 * Enters a unit. It stays full until it is left as often as it was entered. Begins its gather, or
 * uses the prefetched one, prefetches the next units of the recorded order, and waits: if views are
 * on the device, for peers only, and the schedule's stream waits for the rest. Collective over the
 * units' group if the unit is not full already. Before the first meron_schedule_start_pass, and
 * after meron_schedule_reset, uses are not recorded and no gather is prefetched. Blocks: on peers
 * if the unit is not full, at most the deadline from the first call for this use. Threads: any, one
 * at a time. Errors: MERON_E_ARGUMENT, MERON_E_STATE (this rank updates the unit, or one to
 * prefetch; or another thread has reset or released the schedule meanwhile), MERON_E_HANDLE,
 * MERON_E_STALE, MERON_E_FORKED; and as meron_future_wait, also from a prefetched gather.
 */
inline int32_t meron_schedule_enter(int64_t schedule, int64_t index, int64_t timeout_ns) {
  error_slot error;
  return error.check(api().meron_schedule_enter(::meron_schedule{static_cast<uint64_t>(schedule)}, unsigned_of<size_t>(index, "index"), static_cast<int64_t>(timeout_ns), error));
}

/**
 * Leaves a unit once. After as many leaves as enters its views are invalid, and the unit is
 * released, unless the options keep it full. Local, but in the same position among the enters on
 * all ranks: it begins no gather; the next enter does. Blocks: only while another thread of this
 * rank begins an operation. Threads: any. Errors: MERON_E_ARGUMENT, MERON_E_STATE (it is not
 * entered), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_schedule_leave(int64_t schedule, int64_t index) {
  error_slot error;
  return error.check(api().meron_schedule_leave(::meron_schedule{static_cast<uint64_t>(schedule)}, unsigned_of<size_t>(index, "index"), error));
}

/**
 * The full tensor of a param of an entered unit. If views are on the device, it is for work of the
 * schedule's stream. Ownership: borrowed until the unit is left; read-only, as of
 * meron_gather_view. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT (the schedule does not
 * have its unit), MERON_E_STATE (the unit is not entered), MERON_E_HANDLE, MERON_E_STALE.
 */
inline ::meron_view meron_schedule_view(int64_t schedule, int64_t param) {
  ::meron_view out = {};
  error_slot error;
  error.check(api().meron_schedule_view(&out, ::meron_schedule{static_cast<uint64_t>(schedule)}, ::meron_param{static_cast<uint64_t>(param)}, error));
  return out;
}

/**
 * Releases all units that stay full or were prefetched. Call it before an update, an optimizer
 * step, a save or a load, which need all leases released. The pass and the recorded orders stay.
 * Local. Blocks: only while another thread of this rank begins an operation. Threads: any. Errors:
 * MERON_E_STATE (names the units that are entered), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_schedule_drop(int64_t schedule) {
  error_slot error;
  return error.check(api().meron_schedule_drop(::meron_schedule{static_cast<uint64_t>(schedule)}, error));
}

/**
 * Drops all uses and the pass, and releases all units. Call it after an exception in the trainer.
 * The recorded orders stay. Local. Blocks: only while another thread of this rank begins an
 * operation. Threads: any. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_schedule_reset(int64_t schedule) {
  error_slot error;
  return error.check(api().meron_schedule_reset(::meron_schedule{static_cast<uint64_t>(schedule)}, error));
}

/**
 * Reads the information about a schedule. Blocks: never. Threads: any. Errors: MERON_E_ARGUMENT,
 * MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline ::meron_schedule_info meron_schedule_get_info(int64_t schedule) {
  ::meron_schedule_info out = {}; out.struct_size = sizeof out;
  error_slot error;
  error.check(api().meron_schedule_get_info(&out, ::meron_schedule{static_cast<uint64_t>(schedule)}, error));
  return out;
}

/**
 * Releases the schedule and all units that it holds; its views become invalid. Blocks: never.
 * Threads: any, also a finalizer's. Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
 */
inline int32_t meron_schedule_release(int64_t schedule) {
  error_slot error;
  return error.check(api().meron_schedule_release(::meron_schedule{static_cast<uint64_t>(schedule)}, error));
}
}  // namespace meron_swig
%}
