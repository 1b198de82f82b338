# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
"""
The C interface as it is: structs with C's layout, constants, a method per function.

Out parameters take a `Ref` or a `Ptr`; `err` takes a `Ref{Ptr{meron_error}}` or `C_NULL`.
Nothing is checked here, and text must be a `String` without NUL or a pointer. A function that may
wait does not hold up the garbage collection of other threads while it does (blocking.jl).
"""
module LibMeron

include("blocking.jl")

# The version of the headers that this was made from.
const VERSION_TEXT = "0.2.0"

const MERON_VERSION_MAJOR = 0

const MERON_VERSION_MINOR = 2

const MERON_VERSION_PATCH = 0

"""
The version of these headers as one number, comparable: (major << 16) | (minor << 8) | patch.
"""
const MERON_VERSION = 512

"""
No rank, no peer: the value of a rank field that names no rank.
"""
const MERON_RANK_NONE = -1

"""
The only negative timeout: leaves the bound to the context's deadline (meron_context_options).
"""
const MERON_TIMEOUT_DEFAULT = -1

"""
Status of a call. 0 is success. A positive value is not an error ("not yet"). Negative values
are errors, grouped by their cause: -1xx the call: its arguments, its handles, or its place in
the order of calls; -2xx a resource of this process or host: memory, a file, a drive, a device;
-3xx another rank, or its lateness; -4xx the whole context is unusable.  The class does not tell
if the group is broken: call meron_group_status. A broken group gives every further call, on
every rank, the code that broke it, and says since when. After an error of -1xx or -2xx nothing
was changed, and the group works. It breaks if the ranks have begun something together that this
rank cannot end: it lacks memory for a unit or an optimizer, or a drive, a device or memory
fails it in a step, an update, a reduction or a gather (but see meron_gather_begin). After an
error of -3xx the group is broken, unless other ranks have no part in it: it is one of
meron_context_open, of a function without a context, of a drive or folder that does not answer
(MERON_E_TIMEOUT), or of a checkpoint's files (MERON_E_AUTH, MERON_E_VERSION).
"""
const meron_status = Int32
const MERON_OK = meron_status(0)
const MERON_IN_PROGRESS = meron_status(1)
const MERON_E_ARGUMENT = meron_status(-100) # a null pointer, a wrong size, an unknown enum value
const MERON_E_HANDLE = meron_status(-101) # a null handle, of another kind, or of another context
const MERON_E_STALE = meron_status(-102) # a handle whose object was released or closed
const MERON_E_STATE = meron_status(-103) # the call is valid, but not in the object's present state
const MERON_E_DUPLICATE = meron_status(-104) # a name or an object given twice
const MERON_E_UNSUPPORTED = meron_status(-105) # valid, but this build or this plan does not offer it
const MERON_E_PARSE = meron_status(-106) # text that does not parse; the message has line and key
const MERON_E_NONFINITE = meron_status(-107) # gradients hold NaN or infinity, or a step makes a value infinite
const MERON_E_CANCELLED = meron_status(-108) # should_stop ended a wait, or a rank cancelled the save
const MERON_E_NO_MEMORY = meron_status(-200) # no memory, or the context's limit is reached; the message has the figures
const MERON_E_IO = meron_status(-201) # a file, a socket or a mapping failed
const MERON_E_NOT_FOUND = meron_status(-202) # a file or a key does not exist
const MERON_E_CORRUPT = meron_status(-203) # a drive returned other bytes than were written: the message says where
const MERON_E_NO_SPACE = meron_status(-204) # a drive is full; the message has need and free bytes
const MERON_E_DEVICE = meron_status(-205) # a device has failed: this process cannot use it any more
const MERON_E_TIMEOUT = meron_status(-300) # a deadline passed: the message says who has not arrived
const MERON_E_PEER_DEAD = meron_status(-301) # a rank's process is gone: the error's peer
const MERON_E_PEER_CLOSED = meron_status(-302) # a rank, the error's peer, closed its context too early
const MERON_E_MISMATCH = meron_status(-303) # ranks made different calls: the message has both
const MERON_E_ABORTED = meron_status(-304) # a rank called meron_group_abort, or cancelled an update
const MERON_E_AUTH = meron_status(-305) # a wrong token, a peer of another user, or a link in a checkpoint
const MERON_E_VERSION = meron_status(-306) # a rank, the caller's headers or a file are of another version
const MERON_E_FORKED = meron_status(-400) # this process is a fork of the one that opened the context
const MERON_E_CLOSED = meron_status(-401) # closed by another thread during the call; then MERON_E_STALE
const MERON_E_INTERNAL = meron_status(-402) # a defect of Meron: please report it

"""
Element types. Sizes in bytes: 4, 2, 2, 8, 8.
"""
const meron_dtype = Int32
const MERON_F32 = meron_dtype(0)
const MERON_BF16 = meron_dtype(1)
const MERON_F16 = meron_dtype(2)
const MERON_F64 = meron_dtype(3) # of meron_all_reduce_begin alone, as the next one
const MERON_I64 = meron_dtype(4)

"""
The error object: the caller who receives it owns it, and frees it by meron_error_free.
Functions that can fail take an optional `meron_error **` last. A failure sets *err to a new
object (NULL without memory for one), whatever it held: free an earlier one first. A success
leaves it alone. A failure leaves what the call would return (*out) alone.
"""
mutable struct meron_error end

"""
A pending operation. A value; 0 is null.
"""
struct meron_future
    id::UInt64
end

"""
A plan. A value; 0 is null.
"""
struct meron_plan
    id::UInt64
end

"""
Workload of a step, for a prediction.
"""
struct meron_workload
    struct_size::UInt32 # sizeof(meron_workload)
    ranks::UInt32 # world size, at least 1
    micro_batches::UInt32 # per optimizer step; default 1
    gathers_per_micro_batch::UInt32 # of every unit; default 2: forward and backward
    ranks_per_node::UInt32 # consecutive ranks that share memory; 0: all of them
    optimizer_states::UInt32 # of the rule per element; default 2: AdamW
    reserved_0::UInt32 # must be 0
end

"""
A pointer to a function (user::Ptr{Cvoid}, request::Ptr{UInt64}, peer::Int32, tag::UInt64,
data::Ptr{Cvoid}, bytes::UInt64) -> meron_status. Starts to send `bytes` bytes at `data` to rank
`peer`. They stay in place and unchanged until the request is done or cancelled. Stores a number
of the transport's choice in *request, which identifies the request from then on, and returns
MERON_OK. Returns MERON_IN_PROGRESS if it cannot accept the message now: Meron will call it
again. `bytes` may be 0.
"""
const meron_send_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}, request::Ptr{UInt64}, peer::Int32, tag::UInt64,
data::Ptr{Cvoid}, bytes::UInt64) -> meron_status. Starts to receive a message of at most `bytes`
bytes from rank `peer` into `data`. Otherwise as meron_send_fn.
"""
const meron_receive_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}, request::UInt64, bytes::Ptr{UInt64}) -> meron_status.
Tests if a request is done: MERON_OK, with the size of the message in *bytes, or
MERON_IN_PROGRESS. A request that is done, or failed, is not tested again. The transport may
also make progress here.
"""
const meron_test_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}, request::UInt64) -> Cvoid. Cancels a request. After
the return its memory is not touched.
"""
const meron_cancel_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}, timeout_ns::Int64) -> Cvoid. Returns when a message
may have progressed, or after `timeout_ns` nanoseconds. Only this function may block, and at
most for that time.
"""
const meron_idle_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}, peer::Int32) -> Int32. Returns 0 only if rank `peer`
is known to be dead.
"""
const meron_alive_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}) -> Cvoid. The last call of the table: no other
function is called after it. Called once, by the call that closes the context.
"""
const meron_closed_fn = Ptr{Cvoid}

"""
The caller's transport. Read when the context is opened; `user` must outlive the context.
"""
struct meron_transport
    struct_size::UInt32 # sizeof(meron_transport)
    reserved_0::UInt32 # must be 0
    name::Ptr{UInt8} # for messages; NULL: "custom"
    user::Ptr{Cvoid} # passed to every function
    max_message::UInt64 # maximal bytes of a message, at least 4096; 0: no limit
    send::meron_send_fn
    receive::meron_receive_fn
    test::meron_test_fn
    cancel::meron_cancel_fn
    idle::meron_idle_fn # NULL: Meron sleeps for up to a millisecond between tests
    alive::meron_alive_fn # NULL: a peer is dead if send, receive or test fails
    closed::meron_closed_fn # NULL: no notification
end

"""
A context. A value; 0 is null.
"""
struct meron_context
    id::UInt64
end

"""
Levels of a log message.
"""
const meron_log_level = Int32
const MERON_LOG_ERROR = meron_log_level(0)
const MERON_LOG_WARNING = meron_log_level(1)
const MERON_LOG_INFO = meron_log_level(2)

"""
A pointer to a function (user::Ptr{Cvoid}, level::meron_log_level, message::Ptr{UInt8},
length::Csize_t) -> Cvoid. Receives log messages: formatted, `length` bytes, NUL-terminated,
valid until the callback returns. May be called from any thread that is inside a call of this
library. It may only look and release: see the rule of callbacks in meron/meron.h. `user` is
used until meron_context_close has returned.
"""
const meron_log_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}) -> Int32. Called about ten times a second while a
call waits. A non-zero result ends the wait with MERON_E_CANCELLED: nothing was begun, or the
operation continues. It may only look and release: see the rule of callbacks in meron/meron.h.
`user` is used until meron_context_close has returned.
"""
const meron_should_stop_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}, bytes::UInt64, stream::Ptr{Cvoid}) -> Ptr{Cvoid}.
Allocates memory of a device: `bytes` bytes aligned to 256, for later work on `stream`. NULL:
there is none. Like meron_device_release_fn, it may be called by any thread that is inside a
call of this library. It may only look and release: see the rule of callbacks in meron/meron.h.
It must not wait for work of the device.
"""
const meron_device_allocate_fn = Ptr{Cvoid}

"""
A pointer to a function (user::Ptr{Cvoid}, data::Ptr{Cvoid}, bytes::UInt64, stream::Ptr{Cvoid})
-> Cvoid. Frees such memory: queued work of `stream` may still use it. Memory that a finalizer
releases is freed at the next call on the context.
"""
const meron_device_release_fn = Ptr{Cvoid}

"""
The trainer's own allocator of device memory, a framework's cache for example.
"""
struct meron_allocator
    struct_size::UInt32 # sizeof(meron_allocator)
    reserved_0::UInt32 # must be 0
    allocate::meron_device_allocate_fn
    release::meron_device_release_fn
    user::Ptr{Cvoid}
end

"""
Options of a context. Fill by meron_context_options_init or MERON_CONTEXT_OPTIONS_INIT.
"""
struct meron_context_options
    struct_size::UInt32 # sizeof(meron_context_options)
    header_version::UInt32 # MERON_VERSION of the caller's headers
    rank::Int32 # -1: from the environment (meron run, torchrun, Slurm, Open MPI, PMI)
    world_size::Int32 # -1: from the environment; without one: 1
    transport::Ptr{UInt8} # "self", "local", "shm", "mpi", "custom", "cluster"; NULL or "auto": custom if that is given, self for one rank, mpi under mpirun if neither a token nor MERON_STORE is given, else shm. "cluster": ranks of a node share memory, and `custom` connects the nodes; "mpi": MPI connects them
    job::Ptr{UInt8} # local: ranks of one process with an equal job meet; NULL: "default". In a directory MERON_STORE: the job's name among others'; NULL: MERON_JOB, or the launcher's name
    token::Ptr{UInt8} # shm: 64 hexadecimal digits, the same on all ranks; NULL: from the descriptor MERON_TOKEN_FD or from the variable MERON_TOKEN; if there is none, ranks meet in the directory that the variable MERON_STORE names
    timeout_ns::Int64 # deadline of every operation (see future.h); 0 or -1: 600 s
    host_memory_limit::UInt64 # bytes that this rank may allocate; 0: only the host's limit
    arena_reserve::UInt64 # bytes of address space, twice per window; 0: the host's memory
    threads::UInt32 # for compute on this rank; 0: cores / ranks on this host
    reserved_0::UInt32 # must be 0
    plan::meron_plan # null: "zero3"
    log::meron_log_fn # NULL: warnings and errors go to stderr
    log_user::Ptr{Cvoid}
    should_stop::meron_should_stop_fn # NULL: waits end by completion or deadline only
    should_stop_user::Ptr{Cvoid}
    custom::Ptr{meron_transport} # transport "custom" and "cluster"; read while the context opens; else NULL
    device::Ptr{UInt8} # that this rank computes on: "cuda" (the calling thread's current one), "cuda:1"; "emulated": memory of the host and threads, for tests without a device. NULL or "": the host. Views of gathers, and of schedules that ask for it, are then in the device's memory, and meron_source.data may be. All other views stay in the host's: of gradients, updates and states
    allocator::Ptr{meron_allocator} # of the device's memory; read while the context opens, its `user` is used until the context and all its objects are gone; NULL: a pool of Meron's own
end

"""
Counters since the context was opened, and the memory in use now, in bytes.
"""
struct meron_stats
    struct_size::UInt32 # sizeof(meron_stats), as the INIT macro sets it
    reserved_0::UInt32 # 0
    gather_mapped_bytes::UInt64 # shards of peers read in place, or fetched by devices
    gather_copied_bytes::UInt64 # parts of peers copied
    reduce_bytes::UInt64 # gradients read from peers
    collective_bytes::UInt64 # read from peers by broadcast and all-reduce
    operations::UInt64 # collectives begun
    wait_ns::UInt64 # nanoseconds spent waiting for peers
    param_bytes::UInt64 # of values, held now
    gradient_bytes::UInt64 # counted from meron_unit_create on, allocated by the first gradient
    optimizer_bytes::UInt64 # of optimizer states, held now
    staging_bytes::UInt64 # of staging buffers, held now
    control_bytes::UInt64 # of the control data that keeps the ranks in step, held now
    peak_bytes::UInt64 # maximum of param + gradient + optimizer + staging
    arena_pages_bytes::UInt64 # bytes of pages in this rank's arena
    inter_node_gather_bytes::UInt64 # gathered from ranks that share no memory, as on the wire
    inter_node_reduce_bytes::UInt64 # reduced from such ranks, likewise
    nvme_read_bytes::UInt64 # read from this rank's file on tier nvme
    nvme_written_bytes::UInt64 # written to it
    nvme_bytes::UInt64 # of that file, in use now
    device_up_bytes::UInt64 # copied from the host to this rank's device
    device_down_bytes::UInt64 # copied from it to the host
    device_bytes::UInt64 # on the device at all times: entries of tier device
end

"""
The plan's predictions for this rank and its current units, in bytes.
"""
struct meron_prediction
    struct_size::UInt32 # sizeof(meron_prediction), as the INIT macro sets it
    reserved_0::UInt32 # 0
    param_bytes::UInt64 # of values, held
    gradient_bytes::UInt64 # of gradients, held
    optimizer_bytes::UInt64 # of optimizer states, held
    peak_bytes::UInt64 # without messages in flight between nodes, and without up to 32 MiB if these, or values of tier nvme, are copied to a device
    gather_mapped_bytes::UInt64 # as in meron_stats, per optimizer step; so are those below
    gather_copied_bytes::UInt64 # parts of peers copied
    reduce_bytes::UInt64 # gradients read from peers
    secondary_partition_bytes::UInt64 # of params, from the first gather to the update (of frozen ones permanently), on top of param_bytes and within peak_bytes
    inter_node_gather_bytes::UInt64 # gathered from ranks that share no memory, as on the wire
    inter_node_reduce_bytes::UInt64 # reduced from such ranks, likewise
    nvme_read_bytes::UInt64 # read from this rank's file on tier nvme
    nvme_written_bytes::UInt64 # written to it
    nvme_bytes::UInt64 # in use there, at all times
    device_bytes::UInt64 # as in meron_stats. If ranks cannot exchange on their devices, these lack the sums of gradients, which this figure contains
end

"""
A group. A value; 0 is null, which only meron_param_desc takes, for the world.
"""
struct meron_group
    id::UInt64
end

"""
The operation that combines values.
"""
const meron_reduce_op = Int32
const MERON_REDUCE_OP_SUM = meron_reduce_op(0)
const MERON_REDUCE_OP_MEAN = meron_reduce_op(1)
const MERON_REDUCE_OP_MAX = meron_reduce_op(2) # of meron_all_reduce_begin alone, as the next one
const MERON_REDUCE_OP_MIN = meron_reduce_op(3)

"""
A named tensor. A value; 0 is null.
"""
struct meron_param
    id::UInt64
end

"""
Params that are gathered and reduced together. A value; 0 is null.
"""
struct meron_unit
    id::UInt64
end

"""
The most dimensions of a param.
"""
const MERON_MAX_DIMS = 16

"""
Description of a param.
"""
struct meron_param_desc
    struct_size::UInt32 # sizeof(meron_param_desc)
    dtype::meron_dtype # of the values that are gathered
    name::Ptr{UInt8} # unique in the context, 1 to 512 bytes of UTF-8
    shape::Ptr{Int64} # `dims` sizes, each >= 0, row-major
    dims::UInt32 # 0: a scalar; at most MERON_MAX_DIMS
    frozen::UInt32 # 1: has no gradient and no optimizer state
    group::meron_group # the ranks that share it; null: the world
end

"""
meron_view.device: memory of the host.
"""
const MERON_DEVICE_HOST = -1

"""
A contiguous range of a tensor in memory. The library fills all fields.
"""
struct meron_view
    data::Ptr{Cvoid} # first element; never NULL, also when count is 0
    count::UInt64 # elements, contiguous
    offset::UInt64 # index of the first element in the full tensor, row-major
    dtype::meron_dtype # of the elements
    writable::UInt32 # 1: may be written; 0: a write faults or is undefined
    device::Int32 # owner of the memory: MERON_DEVICE_HOST, or the number of the context's device ("cuda:1" has the number 1)
    reserved_0::UInt32 # 0, as the next two: for later versions
    reserved_1::UInt64
    reserved_2::UInt64
end

"""
DLPack 1.x's exchange struct (https://dmlc.github.io/dlpack); its header is the caller's to
include.
"""
mutable struct DLManagedTensorVersioned end

"""
Information about a param.
"""
struct meron_param_info
    struct_size::UInt32 # sizeof(meron_param_info), as the INIT macro sets it
    dtype::meron_dtype
    dims::UInt32
    frozen::UInt32
    shape::NTuple{16, Int64} # the first `dims` count
    count::UInt64 # elements of the full tensor
    shard_offset::UInt64 # first element that this rank updates
    shard_count::UInt64 # number of these elements; 0 before the param is in a unit
    flat::UInt64 # index of its flat: see meron_unit_flat; 0 before the param is in a unit
    flat_offset::UInt64 # elements of the flat before the param; 0 before it is in a unit
end

"""
Encoding of numbers that are sent between replicas; docs/plan.md has the details.
"""
const meron_codec = Int32
const MERON_CODEC_NONE = meron_codec(0)
const MERON_CODEC_BF16 = meron_codec(1)
const MERON_CODEC_INT8 = meron_codec(2)
const MERON_CODEC_INT4 = meron_codec(3)

"""
State of a unit on this rank.
"""
const meron_unit_state = Int32
const MERON_UNIT_STATE_PARTITIONED = meron_unit_state(0) # this rank holds its shard only
const MERON_UNIT_STATE_GATHERING = meron_unit_state(1) # a gather is pending
const MERON_UNIT_STATE_AVAILABLE = meron_unit_state(2) # leased at least once
const MERON_UNIT_STATE_UPDATING = meron_unit_state(3) # being written

"""
Information about a unit.
"""
struct meron_unit_info
    struct_size::UInt32 # sizeof(meron_unit_info), as the INIT macro sets it
    state::meron_unit_state
    version::UInt64 # of the values; 0 until the first update
    leases::UInt32
    reduced::UInt32 # 1: a reduced gradient waits for an optimizer step
    param_codec::meron_codec # Codecs of values and gradients between replicas: the plan's, or bf16 if its error was above the plan's limit.
    gradient_codec::meron_codec
    param_error::Float64 # Relative error of this rank's last encoding: |x - decoded x| / |x| in the 2-norm, of all values and of the worst block. 0 before the first one, and without a codec; NaN or infinite if values were.
    param_worst_block::Float64
    gradient_error::Float64
    gradient_worst_block::Float64
    params::UInt64 # number of its params: see meron_unit_param
    flats::UInt64 # number of its flats: see meron_unit_flat
end

"""
Information about a flat: the params of a unit that have one dtype and are all trained or all
frozen, one after another in memory. Each begins at its meron_param_info.flat_offset; the
elements between a param and the next one are padding. The layout depends only on the unit's
params, so it is the same on all ranks and under all plans.
"""
struct meron_flat_info
    struct_size::UInt32 # sizeof(meron_flat_info), as the INIT macro sets it
    dtype::meron_dtype
    frozen::UInt32 # 1: its params are frozen; 0: they are trained
    reserved_0::UInt32 # 0
    elements::UInt64 # with the padding behind each param
    bytes::UInt64 # of these elements
end

"""
States and update rule for some units. A value; 0 is null.
"""
struct meron_optimizer
    id::UInt64
end

"""
The update rule.
"""
const meron_optimizer_kind = Int32
const MERON_OPTIMIZER_ADAMW = meron_optimizer_kind(0) # Loshchilov and Hutter, arXiv 1711.05101
const MERON_OPTIMIZER_ADAM = meron_optimizer_kind(1) # Kingma and Ba, arXiv 1412.6980; weight decay by the gradient
const MERON_OPTIMIZER_ADAGRAD = meron_optimizer_kind(2) # Duchi, Hazan and Singer, JMLR 12 (2011); weight decay as Adam
const MERON_OPTIMIZER_LION = meron_optimizer_kind(3) # Chen et al., arXiv 2302.06675; its authors take beta2 = 0.99
const MERON_OPTIMIZER_SGD = meron_optimizer_kind(4) # as torch.optim.SGD; beta1 is the momentum, weight decay as Adam

"""
Options of an optimizer. Start from the INIT macro of the rule, such as
MERON_OPTIMIZER_SGD_INIT: each rule has its own defaults, and a struct with the defaults of
another rule is refused.
"""
struct meron_optimizer_options
    struct_size::UInt32 # sizeof(meron_optimizer_options)
    kind::meron_optimizer_kind
    learning_rate::Float64 # >= 0
    beta1::Float64 # 0 <= beta1 < 1. SGD: the momentum; 0 keeps no state
    beta2::Float64 # 0 <= beta2 < 1
    epsilon::Float64 # > 0
    weight_decay::Float64 # >= 0
    max_norm::Float64 # gradients are scaled to at most this 2-norm, of all gradients of the optimizer together, as meron_gradient_clip does; 0: no clipping
    dampening::Float64 # SGD: 0 <= dampening < 1; else 0
    nesterov::UInt32 # SGD with a momentum and no dampening: 1 for Nesterov's; else 0
    defaults_of::UInt32 # 1 + the kind whose defaults these are; set by the INIT macros and meron_optimizer_rule_init, not by the caller
    lr_decay::Float64 # Adagrad: >= 0; step t has the rate learning_rate / (1 + (t - 1) lr_decay)
end

"""
Hyperparameters of the params of one group. The rule ignores those that it does not use. Start
from a group of the optimizer (meron_optimizer_get_group).
"""
struct meron_optimizer_group
    struct_size::UInt32 # sizeof(meron_optimizer_group)
    defaults_of::UInt32 # as in meron_optimizer_options; meron_optimizer_get_group sets it, too
    learning_rate::Float64 # >= 0
    beta1::Float64 # 0 <= beta1 < 1. SGD: the momentum, 0 in all groups or in none
    beta2::Float64 # 0 <= beta2 < 1
    epsilon::Float64 # > 0
    weight_decay::Float64 # >= 0
    lr_decay::Float64 # Adagrad: >= 0; else 0
end

"""
Information about an optimizer.
"""
struct meron_optimizer_info
    struct_size::UInt32 # sizeof(meron_optimizer_info), as the INIT macro sets it
    reserved_0::UInt32 # 0
    steps::UInt64 # taken so far, with those of meron_optimizer_set_steps and of a loaded checkpoint; without steps that ended in MERON_E_NONFINITE
    norm::Float64 # 2-norm of all gradients of the last step, before clipping
    learning_rate::Float64 # of group 0
    groups::UInt32 # of params, at least 1
    states::UInt32 # of the rule per element, besides the master
    nvme_bytes::UInt64 # of this rank's states on tier nvme
    offloaded_bytes::UInt64 # of the states that meron_optimizer_offload has moved to a drive
end

"""
A state of an optimizer.
"""
const meron_optimizer_state = Int32
const MERON_OPTIMIZER_STATE_MASTER = meron_optimizer_state(0) # f32 values; the param itself if that is f32
const MERON_OPTIMIZER_STATE_EXP_AVG = meron_optimizer_state(1) # average of the gradients; Lion's, and SGD's momentum
const MERON_OPTIMIZER_STATE_EXP_AVG_SQ = meron_optimizer_state(2) # average of their squares; Adagrad's sum of them

"""
A checkpoint that was opened or loaded. A value; 0 is null.
"""
struct meron_checkpoint
    id::UInt64
end

"""
The caller's own tensor, or a range of one.
"""
struct meron_checkpoint_tensor
    struct_size::UInt32 # sizeof(meron_checkpoint_tensor)
    dims::UInt32 # 0: a scalar; at most MERON_MAX_DIMS
    name::Ptr{UInt8} # 1 to 512 bytes of UTF-8
    kind::Ptr{UInt8} # NULL: "extra". As docs/checkpoint-format.md lists them: "values" for a buffer, "exp_avg", "state.KEY" for a state of an optimizer. A load ignores "extra" and "state.KEY". A value that is no param must be claimed there, or is unexpected
    dtype::Ptr{UInt8} # as safetensors names it: "F32", "BF16", "I64", ...
    shape::Ptr{UInt64} # of the full tensor, row-major
    begin_::UInt64 # first element in `data`
    count::UInt64 # elements in `data`
    data::Ptr{Cvoid} # little endian, contiguous; may be NULL if count is 0
end

"""
Options of a save: its content, and the fate of other checkpoints.
"""
struct meron_checkpoint_save_options
    struct_size::UInt32 # sizeof(meron_checkpoint_save_options)
    values_only::UInt32 # 1: neither masters nor states of optimizers
    skip_frozen::UInt32 # 1: no frozen params
    overwrite::UInt32 # 1: replaces a checkpoint of that name
    step::UInt64 # the caller's count: of a line, the newest checkpoint has the highest
    keep::UInt64 # complete checkpoints of the line that stay in the folder, with this one; the newest with all states stays, too. 0: all
    extra::Ptr{UInt8} # NULL, or the caller's own state: the text of a JSON object. That of rank 0 is saved
    optimizers::Ptr{meron_optimizer} # whose states and masters are saved; NULL: none
    optimizer_count::UInt64
    tensors::Ptr{meron_checkpoint_tensor} # the caller's own; all ranks together pass each element of a tensor once. NULL: none of this rank
    tensor_count::UInt64
    mapping::Ptr{UInt8} # NULL, or a JSON object: "PARAM": "NAME" in the files, for states too; "" leaves the param out
    per_node::UInt32 # 1: each node has its own folder, such as one on a local disk. Ranks of a node pass the same
    reserved_0::UInt32 # must be 0
    units::Ptr{meron_unit} # whose states are saved, the same on all ranks, in any order; NULL: of all units. They have all units of `optimizers` and all params of `mapping`. Other units may be updated meanwhile
    unit_count::UInt64
end

"""
Progress of a save.
"""
struct meron_checkpoint_progress
    struct_size::UInt32 # sizeof(meron_checkpoint_progress), as the INIT macro sets it
    saving::UInt32 # 1: a save is pending
    total::UInt64 # bytes that this rank writes; 0: not known yet, or no save
    copied::UInt64 # of these, copied from the units
    written::UInt64 # of these, written to files
end

"""
Options of a write without a context, by one process.
"""
struct meron_checkpoint_write_options
    struct_size::UInt32 # sizeof(meron_checkpoint_write_options)
    overwrite::UInt32 # 1: replaces a checkpoint of that name
    step::UInt64 # the caller's count
    extra::Ptr{UInt8} # NULL, or the text of a JSON object
    optimizers::Ptr{UInt8} # NULL, or the manifest's list of them, a JSON array
    tensors::Ptr{meron_checkpoint_tensor}
    tensor_count::UInt64
end

"""
Options of a load.
"""
struct meron_checkpoint_load_options
    struct_size::UInt32 # sizeof(meron_checkpoint_load_options)
    lenient::UInt32 # 1: ignore params and tensors that the other side lacks
    values_only::UInt32 # 1: values, and masters computed from them; optimizers keep their states
    rank0_only::UInt32 # 1: only rank 0 sees the files, and sends each rank its shards
    optimizers::Ptr{meron_optimizer} # as passed to the save; NULL: none, which is an error if the checkpoint has some, unless `values_only` is 1
    optimizer_count::UInt64
    mapping::Ptr{UInt8} # NULL, or a JSON object: "PARAM": "TENSOR", or "PARAM": ["TENSOR", ...], one after the other along the first dimension; others by their name
    claimed::Ptr{UInt8} # NULL, or names of tensors of kind "values" that are no params, with line breaks between them: they must exist, and the caller reads them
    per_node::UInt32 # 1: each node has its own folder: one rank per node reads the node's files, and sends each rank its shards
    reserved_0::UInt32 # must be 0
    units::Ptr{meron_unit} # that are loaded, the same on all ranks, in any order; NULL: all. They have all units of `optimizers`. Other units stay as they are, and their tensors in the checkpoint are not unexpected
    unit_count::UInt64
end

"""
Information about a checkpoint.
"""
struct meron_checkpoint_info
    struct_size::UInt32 # sizeof(meron_checkpoint_info), as the INIT macro sets it
    world::UInt32 # ranks that saved it
    step::UInt64 # the caller's count
    bytes::UInt64 # of its files
    tensors::UInt64 # in the checkpoint
    bytes_read::UInt64 # of its files, by this rank, so far
    missing::UInt64 # states that it lacks; the load did not change them
    unexpected::UInt64 # tensors that no unit has
end

"""
A text of a checkpoint.
"""
const meron_checkpoint_text_kind = Int32
const MERON_CHECKPOINT_TEXT_PATH = meron_checkpoint_text_kind(0) # of its directory
const MERON_CHECKPOINT_TEXT_EXTRA = meron_checkpoint_text_kind(1) # the caller's own state: a JSON object
const MERON_CHECKPOINT_TEXT_MISSING = meron_checkpoint_text_kind(2) # names of states, each with a line break
const MERON_CHECKPOINT_TEXT_UNEXPECTED = meron_checkpoint_text_kind(3) # names of tensors, each with a line break
const MERON_CHECKPOINT_TEXT_MANIFEST = meron_checkpoint_text_kind(4) # all of its manifest: a JSON object, by docs/checkpoint-format.md. Its array "tensors" has "name", "kind", "dtype" and "shape" of each tensor, "optimizers" the rules and counts. Of a model of Hugging Face: one that describes it, without checksums
const MERON_CHECKPOINT_TEXT_PASSED_OVER = meron_checkpoint_text_kind(5) # of one that was opened as the newest: the incomplete ones that were passed over, and why, and the newest one of another line if its step is higher; "" if there are none

"""
Options of an export.
"""
struct meron_checkpoint_export_options
    struct_size::UInt32 # sizeof(meron_checkpoint_export_options)
    dtype::meron_dtype # of the floating-point values in the files, if keep_dtype is 0
    keep_dtype::UInt32 # 1, the initial value: each param's own dtype; `dtype` is ignored
    overwrite::UInt32 # 1: replaces an existing model
    max_file_bytes::UInt64 # of a file's tensors: the next file begins before they would exceed it, and a larger tensor has its own file; 0: 5 GB
    mapping::Ptr{UInt8} # NULL, or a JSON object: "PARAM": "NAME" in the files; "" leaves the param out
    tensors::Ptr{meron_checkpoint_tensor} # the caller's own of kind "values", unsharded (buffers); those of rank 0 count. NULL: none
    tensor_count::UInt64
end

"""
Destination of the full tensors.
"""
const meron_gather_mode = Int32
const MERON_GATHER_VIEW = meron_gather_mode(0) # read-only, in place where the plan allows it
const MERON_GATHER_COPY = meron_gather_mode(1) # a private, writable copy that belongs to the gather
const MERON_GATHER_INTO = meron_gather_mode(2) # into the caller's memory

"""
Memory of a view, by its tier.
"""
const meron_tier = Int32
const MERON_TIER_DEVICE = meron_tier(0) # in the device's memory, if the context has a device; else the host's
const MERON_TIER_HOST = meron_tier(1) # in the host's memory

"""
A destination for MERON_GATHER_INTO: of one param.
"""
struct meron_destination
    param::meron_param
    data::Ptr{Cvoid} # for the full tensor, row-major, in the param's dtype; memory of the host, or of the context's device
    bytes::UInt64 # exactly its size
end

"""
A destination for MERON_GATHER_INTO: of a flat, so of all its params, by one copy.
"""
struct meron_flat_destination
    unit::meron_unit # one of the gathered units
    flat::UInt64 # its index, see meron_unit_flat
    data::Ptr{Cvoid} # for the flat, in its dtype: the gather writes each param at its meron_param_info.flat_offset, and unspecified values to the padding; memory of the host, or of the context's device
    bytes::UInt64 # exactly meron_flat_info.bytes
end

"""
Options of a gather.
"""
struct meron_gather_options
    struct_size::UInt32 # sizeof(meron_gather_options)
    mode::meron_gather_mode
    destinations::Ptr{meron_destination} # MERON_GATHER_INTO: one per requested param, but for those of `flats`
    destination_count::UInt64
    tier::meron_tier # of a view; a copy is in the host's memory
    reserved_0::UInt32 # must be 0
    stream::Ptr{Cvoid} # destinations in the device's memory are written after the work that is queued on this stream so far; NULL: its default stream
    flats::Ptr{meron_flat_destination} # MERON_GATHER_INTO: one per requested flat
    flat_count::UInt64
end

"""
A queue to the kernel for reads and writes of files, and the threads that serve it. A value; 0
is null.
"""
struct meron_io
    id::UInt64
end

"""
Pinned memory: page-aligned, and registered with the kernel if the kernel permits it. A value; 0
is null.
"""
struct meron_io_buffer
    id::UInt64
end

"""
The interface that moves the bytes.
"""
const meron_io_backend = Int32
const MERON_IO_BACKEND_AUTO = meron_io_backend(0) # io_uring if the host allows it, else threads
const MERON_IO_BACKEND_URING = meron_io_backend(1) # io_uring
const MERON_IO_BACKEND_THREADS = meron_io_backend(2) # threads of this process that call pread and pwrite

"""
Options of an io.
"""
struct meron_io_options
    struct_size::UInt32 # sizeof(meron_io_options)
    backend::meron_io_backend
    block_bytes::UInt32 # of one call of the kernel: a multiple of 4096; default 1 MiB
    depth::UInt32 # pending calls of io_uring, 1 to 4096; default 32
    threads::UInt32 # of the backend of threads, 1 to 256: as many calls at a time
    single_submit::UInt32 # 1: submit each call to the kernel alone; default 0: together
    overlap_events::UInt32 # default 1; 0: the next calls begin after the last ones have ended
    reserved_0::UInt32 # must be 0
    timeout_ns::Int64 # a wait fails after this time without any transfer; 0 or -1: 600 s
end

"""
Information about an io.
"""
struct meron_io_info
    struct_size::UInt32 # sizeof(meron_io_info), as the INIT macro sets it
    backend::meron_io_backend # in use: MERON_IO_BACKEND_URING or MERON_IO_BACKEND_THREADS
    block_bytes::UInt32 # these as in meron_io_options
    depth::UInt32
    threads::UInt32
    single_submit::UInt32
    overlap_events::UInt32
    reserved_0::UInt32 # 0
    bytes_read::UInt64 # by requests that have succeeded
    bytes_written::UInt64 # likewise
    calls::UInt64 # of the kernel, completed
    direct_calls::UInt64 # of these, past the page cache
    requests::UInt64 # reads and writes that were begun, also blocking ones
    pending::UInt64 # of these, pending or not waited for
    buffer_bytes::UInt64 # of all existing buffers
end

"""
Information about a buffer.
"""
struct meron_io_buffer_info
    struct_size::UInt32 # sizeof(meron_io_buffer_info), as the INIT macro sets it
    registered::UInt32 # 1: the kernel has it pinned; 0: it pins it at each call
    bytes::UInt64
    data::Ptr{Cvoid} # page-aligned, to read and write
end

"""
A gradient in the caller's memory.
"""
struct meron_source
    param::meron_param
    data::Ptr{Cvoid} # the full tensor, row-major; in memory of the host, or of the context's device
    count::UInt64 # its elements
    dtype::meron_dtype # of the data; converted to the plan's gradient dtype
    reserved_0::UInt32 # must be 0
end

"""
Flags of meron_gradient_view. the caller writes all of the view: skip the zeroing
"""
const MERON_GRADIENT_OVERWRITE = 1

"""
Options of a reduction.
"""
struct meron_reduce_options
    struct_size::UInt32 # sizeof(meron_reduce_options)
    op::meron_reduce_op # MERON_REDUCE_OP_MEAN divides by the group's size, once, as `divisor`
    boundary::UInt32 # 1: last micro-batch before the step; 0: more follow
    reserved_0::UInt32 # must be 0
    divisor::Float64 # additional divisor of the sum, e.g. the number of micro-batches, times the loss scale. The complete sum is divided once, as the call with `boundary` 1 says; in each call all ranks pass the same. With a codec that has feedback, give the same one for each micro-batch of an accumulation: what was lost of the accumulation before is scaled by the change, so that it counts as much as it did
    stream::Ptr{Cvoid} # sources on the device are read after the work that is queued on this stream so far; NULL: its default stream
end

"""
Units, the recorded orders of their uses, and the leases that follow from these. A value; 0 is
null.
"""
struct meron_schedule
    id::UInt64
end

"""
The number of kinds of passes. Each has its own recorded order.
"""
const MERON_SCHEDULE_KINDS = 16

"""
Options of a schedule: limits in elements, and the memory of views. Start from
MERON_SCHEDULE_OPTIONS_INIT: limits that are all 0 would prefetch nothing.
"""
struct meron_schedule_options
    struct_size::UInt32 # sizeof(meron_schedule_options)
    initialized::UInt32 # 1; set by the INIT macro and function, not by the caller
    prefetch_elements::UInt64 # gathers are prefetched for the next uses within this many elements; default 5e7; 0: no prefetch
    max_live_elements::UInt64 # limit of prefetched and kept units, never of the unit in use; default 1e9
    max_reuse_elements::UInt64 # a unit stays full if its next recorded use is within this many elements of other units' uses; default 1e9
    persist_elements::UInt64 # a unit of at most this many elements stays full from its first use until meron_schedule_drop; default 1e5
    persist_total_elements::UInt64 # limit for all such units together, in the order of meron_schedule_create; default UINT64_MAX
    tier::meron_tier # memory of views: default MERON_TIER_HOST, unlike that of a gather; MERON_TIER_DEVICE: the context's device, if it has one
    reserved_1::UInt32 # must be 0
    stream::Ptr{Cvoid} # on a device: the trainer's stream. It waits for an entered unit, and the unit's memory is released after the stream's queued work; NULL: the device's default stream
end

"""
Information about a schedule.
"""
struct meron_schedule_info
    struct_size::UInt32 # sizeof(meron_schedule_info), as the INIT macro sets it
    entered::UInt32 # units that are entered now
    units::UInt64 # of the schedule
    passes::UInt64 # started so far
    uses::UInt64 # units entered so far
    ready::UInt64 # uses whose unit was full already
    ahead::UInt64 # uses with a prefetched gather
    deviations::UInt64 # uses that differ from the recorded order
    live_elements::UInt64 # of the units that are full or gathering now
    peak_live_elements::UInt64 # maximum of live_elements
    wait_ns::UInt64 # nanoseconds that uses have waited
end

# The entry points of the library; null until `bind` was called.
mutable struct Functions
    meron_error_code::Ptr{Cvoid}
    meron_error_message::Ptr{Cvoid}
    meron_error_operation::Ptr{Cvoid}
    meron_error_subject::Ptr{Cvoid}
    meron_error_advice::Ptr{Cvoid}
    meron_error_rank::Ptr{Cvoid}
    meron_error_peer::Ptr{Cvoid}
    meron_error_free::Ptr{Cvoid}
    meron_status_name::Ptr{Cvoid}
    meron_version::Ptr{Cvoid}
    meron_version_string::Ptr{Cvoid}
    meron_system_info::Ptr{Cvoid}
    meron_string_free::Ptr{Cvoid}
    meron_dtype_size::Ptr{Cvoid}
    meron_future_wait::Ptr{Cvoid}
    meron_future_poll::Ptr{Cvoid}
    meron_future_release::Ptr{Cvoid}
    meron_future_finish::Ptr{Cvoid}
    meron_future_wait_any::Ptr{Cvoid}
    meron_plan_preset::Ptr{Cvoid}
    meron_plan_parse::Ptr{Cvoid}
    meron_plan_json::Ptr{Cvoid}
    meron_plan_table::Ptr{Cvoid}
    meron_workload_init::Ptr{Cvoid}
    meron_plan_predict::Ptr{Cvoid}
    meron_plan_release::Ptr{Cvoid}
    meron_transport_init::Ptr{Cvoid}
    meron_allocator_init::Ptr{Cvoid}
    meron_context_options_init::Ptr{Cvoid}
    meron_context_open::Ptr{Cvoid}
    meron_context_close::Ptr{Cvoid}
    meron_context_rank::Ptr{Cvoid}
    meron_context_world_size::Ptr{Cvoid}
    meron_context_transport::Ptr{Cvoid}
    meron_context_plan_json::Ptr{Cvoid}
    meron_context_progress::Ptr{Cvoid}
    meron_context_event_fd::Ptr{Cvoid}
    meron_context_stats::Ptr{Cvoid}
    meron_context_predict::Ptr{Cvoid}
    meron_context_flight_record::Ptr{Cvoid}
    meron_context_world::Ptr{Cvoid}
    meron_group_create::Ptr{Cvoid}
    meron_group_rank::Ptr{Cvoid}
    meron_group_size::Ptr{Cvoid}
    meron_group_status::Ptr{Cvoid}
    meron_group_abort::Ptr{Cvoid}
    meron_barrier_begin::Ptr{Cvoid}
    meron_broadcast_begin::Ptr{Cvoid}
    meron_all_reduce_begin::Ptr{Cvoid}
    meron_group_release::Ptr{Cvoid}
    meron_param_desc_init::Ptr{Cvoid}
    meron_param_register::Ptr{Cvoid}
    meron_param_get_info::Ptr{Cvoid}
    meron_param_name::Ptr{Cvoid}
    meron_param_release::Ptr{Cvoid}
    meron_unit_create::Ptr{Cvoid}
    meron_unit_destroy::Ptr{Cvoid}
    meron_unit_get_info::Ptr{Cvoid}
    meron_unit_name::Ptr{Cvoid}
    meron_unit_param::Ptr{Cvoid}
    meron_unit_flat::Ptr{Cvoid}
    meron_unit_release::Ptr{Cvoid}
    meron_update_begin::Ptr{Cvoid}
    meron_update_view::Ptr{Cvoid}
    meron_update_write::Ptr{Cvoid}
    meron_update_publish::Ptr{Cvoid}
    meron_optimizer_rule_init::Ptr{Cvoid}
    meron_optimizer_create::Ptr{Cvoid}
    meron_optimizer_set_learning_rate::Ptr{Cvoid}
    meron_optimizer_set_max_norm::Ptr{Cvoid}
    meron_optimizer_group_init::Ptr{Cvoid}
    meron_optimizer_add_group::Ptr{Cvoid}
    meron_optimizer_set_group::Ptr{Cvoid}
    meron_optimizer_get_group::Ptr{Cvoid}
    meron_optimizer_step_begin::Ptr{Cvoid}
    meron_optimizer_set_steps::Ptr{Cvoid}
    meron_optimizer_set_skipped::Ptr{Cvoid}
    meron_optimizer_param_steps::Ptr{Cvoid}
    meron_optimizer_set_param_steps::Ptr{Cvoid}
    meron_optimizer_get_info::Ptr{Cvoid}
    meron_optimizer_state_view::Ptr{Cvoid}
    meron_optimizer_read_state::Ptr{Cvoid}
    meron_optimizer_write_state::Ptr{Cvoid}
    meron_optimizer_offload::Ptr{Cvoid}
    meron_optimizer_reload::Ptr{Cvoid}
    meron_optimizer_release::Ptr{Cvoid}
    meron_checkpoint_tensor_init::Ptr{Cvoid}
    meron_checkpoint_save_options_init::Ptr{Cvoid}
    meron_checkpoint_save_begin::Ptr{Cvoid}
    meron_checkpoint_wait_copied::Ptr{Cvoid}
    meron_checkpoint_cancel_save::Ptr{Cvoid}
    meron_checkpoint_get_progress::Ptr{Cvoid}
    meron_checkpoint_write_options_init::Ptr{Cvoid}
    meron_checkpoint_write::Ptr{Cvoid}
    meron_checkpoint_load_options_init::Ptr{Cvoid}
    meron_checkpoint_load::Ptr{Cvoid}
    meron_checkpoint_open::Ptr{Cvoid}
    meron_checkpoint_list::Ptr{Cvoid}
    meron_checkpoint_remove::Ptr{Cvoid}
    meron_checkpoint_get_info::Ptr{Cvoid}
    meron_checkpoint_text::Ptr{Cvoid}
    meron_checkpoint_read::Ptr{Cvoid}
    meron_checkpoint_release::Ptr{Cvoid}
    meron_checkpoint_export_options_init::Ptr{Cvoid}
    meron_checkpoint_export::Ptr{Cvoid}
    meron_gather_options_init::Ptr{Cvoid}
    meron_gather_begin::Ptr{Cvoid}
    meron_gather_wait_stream::Ptr{Cvoid}
    meron_gather_view::Ptr{Cvoid}
    meron_gather_dlpack::Ptr{Cvoid}
    meron_gather_release_on_stream::Ptr{Cvoid}
    meron_io_options_init::Ptr{Cvoid}
    meron_io_open::Ptr{Cvoid}
    meron_io_read::Ptr{Cvoid}
    meron_io_write::Ptr{Cvoid}
    meron_io_read_begin::Ptr{Cvoid}
    meron_io_write_begin::Ptr{Cvoid}
    meron_io_wait::Ptr{Cvoid}
    meron_io_get_info::Ptr{Cvoid}
    meron_io_describe::Ptr{Cvoid}
    meron_io_close::Ptr{Cvoid}
    meron_io_buffer_create::Ptr{Cvoid}
    meron_io_buffer_get_info::Ptr{Cvoid}
    meron_io_buffer_release::Ptr{Cvoid}
    meron_gradient_view::Ptr{Cvoid}
    meron_reduce_options_init::Ptr{Cvoid}
    meron_reduce_begin::Ptr{Cvoid}
    meron_reduce_wait::Ptr{Cvoid}
    meron_reduced_view::Ptr{Cvoid}
    meron_reduced_dlpack::Ptr{Cvoid}
    meron_gradient_clip::Ptr{Cvoid}
    meron_reduce_finish_begin::Ptr{Cvoid}
    meron_reduce_consume::Ptr{Cvoid}
    meron_reduce_discard::Ptr{Cvoid}
    meron_reduce_scale_feedback::Ptr{Cvoid}
    meron_schedule_options_init::Ptr{Cvoid}
    meron_schedule_create::Ptr{Cvoid}
    meron_schedule_start_pass::Ptr{Cvoid}
    meron_schedule_enter::Ptr{Cvoid}
    meron_schedule_leave::Ptr{Cvoid}
    meron_schedule_view::Ptr{Cvoid}
    meron_schedule_drop::Ptr{Cvoid}
    meron_schedule_reset::Ptr{Cvoid}
    meron_schedule_get_info::Ptr{Cvoid}
    meron_schedule_release::Ptr{Cvoid}
    Functions() = new(C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL, C_NULL,
        C_NULL, C_NULL)
end
const functions = Functions()

# Fills `functions` by `find(name::Symbol)`, which returns the address or throws.
function bind(find)
    for name in fieldnames(Functions)
        setfield!(functions, name, convert(Ptr{Cvoid}, find(name)))
    end
end

# For tests: every struct, and every handle.
const structs = (meron_future, meron_plan, meron_workload, meron_transport, meron_context, meron_allocator,
    meron_context_options, meron_stats, meron_prediction, meron_group, meron_param, meron_unit,
    meron_param_desc, meron_view, meron_param_info, meron_unit_info, meron_flat_info,
    meron_optimizer, meron_optimizer_options, meron_optimizer_group, meron_optimizer_info,
    meron_checkpoint, meron_checkpoint_tensor, meron_checkpoint_save_options,
    meron_checkpoint_progress, meron_checkpoint_write_options, meron_checkpoint_load_options,
    meron_checkpoint_info, meron_checkpoint_export_options, meron_destination,
    meron_flat_destination, meron_gather_options, meron_io, meron_io_buffer, meron_io_options,
    meron_io_info, meron_io_buffer_info, meron_source, meron_reduce_options, meron_schedule,
    meron_schedule_options, meron_schedule_info)

"""
    meron_error_code(error)

The error's status code; MERON_OK for NULL.

Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_error_code(error) = ccall(
        functions.meron_error_code, meron_status, (Ptr{meron_error},), error)

"""
    meron_error_message(error)

The full message for people: the failure, the rank, the operation, the tensor or file, and the
remedy. UTF-8, one paragraph.

Ownership: borrowed from the error.
Blocks: never.
Threads: any.
Errors: none ("" for NULL).
"""
@inline meron_error_message(error) = ccall(
        functions.meron_error_message, Ptr{UInt8}, (Ptr{meron_error},), error)

"""
    meron_error_operation(error)

The operation that failed, for example "gather" or "context_open"; "" if none applies.

Ownership: borrowed from the error.
Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_error_operation(error) = ccall(
        functions.meron_error_operation, Ptr{UInt8}, (Ptr{meron_error},), error)

"""
    meron_error_subject(error)

The tensor, unit, file or key concerned; "" if none applies.

Ownership: borrowed from the error.
Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_error_subject(error) = ccall(
        functions.meron_error_subject, Ptr{UInt8}, (Ptr{meron_error},), error)

"""
    meron_error_advice(error)

The remedy, as one sentence; "" if none is known.

Ownership: borrowed from the error.
Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_error_advice(error) = ccall(
        functions.meron_error_advice, Ptr{UInt8}, (Ptr{meron_error},), error)

"""
    meron_error_rank(error)

The rank that reports the error, or MERON_RANK_NONE.

Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_error_rank(error) = ccall(
        functions.meron_error_rank, Int32, (Ptr{meron_error},), error)

"""
    meron_error_peer(error)

The rank that caused the error when it is another one (dead, late, diverging), or
MERON_RANK_NONE.

Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_error_peer(error) = ccall(
        functions.meron_error_peer, Int32, (Ptr{meron_error},), error)

"""
    meron_error_free(error)

Frees an error. NULL is allowed.

Ownership: takes the error.
Blocks: never.
Threads: any, also a finalizer's.
Errors: none.
"""
@inline meron_error_free(error) = ccall(
        functions.meron_error_free, Cvoid, (Ptr{meron_error},), error)

"""
    meron_status_name(status)

The constant's name, for example "MERON_E_TIMEOUT"; "MERON_E_UNKNOWN" for a code that this
version does not know.

Ownership: static.
Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_status_name(status) = ccall(
        functions.meron_status_name, Ptr{UInt8}, (meron_status,), status)

"""
    meron_version()

The library's version in the form of MERON_VERSION. Compatible with a caller's headers when the
major numbers are equal (and, before 1.0, the minor numbers) and it is not older than they are.

Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_version() = ccall(
        functions.meron_version, UInt32, ())

"""
    meron_version_string()

The library's version as text, for example "0.2.0".

Ownership: static.
Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_version_string() = ccall(
        functions.meron_version_string, Ptr{UInt8}, ())

"""
    meron_system_info(out, err)

Describes this host and this build, as JSON: version, compiler, CPU features and the kernel
target in use, transports with the reason if one is unavailable, memory, huge pages, /dev/shm,
memlock limit, io_uring.

- `out`: receives the text.

Ownership: the caller frees *out with meron_string_free.
Blocks: never (reads /proc).
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_NO_MEMORY.
"""
@inline meron_system_info(out, err) = ccall(
        functions.meron_system_info, meron_status, (Ptr{Ptr{UInt8}}, Ptr{Ptr{meron_error}}),
        out, err)

"""
    meron_string_free(string)

Frees a string that a function of this library returned. NULL is allowed.

Blocks: never.
Threads: any, also a finalizer's.
Errors: none.
"""
@inline meron_string_free(string) = ccall(
        functions.meron_string_free, Cvoid, (Ptr{UInt8},), string)

"""
    meron_dtype_size(dtype)

Bytes per element of a dtype; 0 for an unknown one.

Blocks: never.
Threads: any.
Errors: none.
"""
@inline meron_dtype_size(dtype) = ccall(
        functions.meron_dtype_size, Csize_t, (meron_dtype,), dtype)

"""
    meron_future_wait(future, timeout_ns, err)

Waits for a future. Returns MERON_IN_PROGRESS if timeout_ns passed first; the operation
continues.

- `timeout_ns`: nanoseconds; MERON_TIMEOUT_DEFAULT: until the operation's own deadline (see the
top of future.h); 0: as meron_future_poll.

Blocks: on peers, a device's copies or a drive, at most the deadline; advances other operations
of the context meanwhile.
Threads: any; several may wait for one future.
Errors: those of the operation, MERON_E_TIMEOUT, MERON_E_PEER_DEAD, MERON_E_PEER_CLOSED,
MERON_E_MISMATCH, MERON_E_ABORTED, MERON_E_CANCELLED, MERON_E_ARGUMENT (another negative
timeout), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_future_wait(future, timeout_ns, err) = @blocking_ccall(
        functions.meron_future_wait, meron_status, (meron_future, Int64, Ptr{Ptr{meron_error}}),
        future, timeout_ns, err)

"""
    meron_future_poll(future, err)

Returns MERON_OK if the operation has succeeded, MERON_IN_PROGRESS if it has not ended, else its
error. Without `err`, a failure counts as unseen, and is logged as meron_future_release says.
Called from a callback, it does not advance the operation.

Blocks: never on peers, a device or a drive; may compute and copy.
Threads: any.
Errors: as meron_future_wait.
"""
@inline meron_future_poll(future, err) = ccall(
        functions.meron_future_poll, meron_status, (meron_future, Ptr{Ptr{meron_error}}),
        future, err)

"""
    meron_future_release(future, err)

Releases a future. A pending operation continues, so that the ranks stay in step; a pending
gather or update is cancelled (see meron_gather_begin, meron_update_begin). If it fails, or has
failed, and no wait or poll returned the error, that is logged once at level MERON_LOG_ERROR, by
the next call that waits or by meron_context_close; the failure of a save is reported by the
next save instead, or logged by the close. If the group is broken, one line is logged at the
close, and none if another call returned the error.

Blocks: never.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_future_release(future, err) = ccall(
        functions.meron_future_release, meron_status, (meron_future, Ptr{Ptr{meron_error}}),
        future, err)

"""
    meron_future_finish(future, timeout_ns, err)

Waits for a future, then releases it: meron_future_wait and meron_future_release in one.
Whatever the wait returns, also an error, the future is released, with one exception: if
timeout_ns passed first, it returns MERON_IN_PROGRESS and the future stays. An operation whose
wait should_stop ended (MERON_E_CANCELLED) continues without its future, and may use its memory
until the close.

- `timeout_ns`: as in meron_future_wait.

Ownership: takes the future, unless it returns MERON_IN_PROGRESS.
Blocks: as meron_future_wait.
Threads: any.
Errors: as meron_future_wait, MERON_E_HANDLE also for an update, which meron_update_publish
ends; after MERON_E_ARGUMENT and MERON_E_HANDLE the future stays.
"""
@inline meron_future_finish(future, timeout_ns, err) = @blocking_ccall(
        functions.meron_future_finish, meron_status, (meron_future, Int64,
        Ptr{Ptr{meron_error}}), future, timeout_ns, err)

"""
    meron_future_wait_any(out, futures, count, timeout_ns, err)

Waits until one of several futures has ended, well or with an error, and says which: the first
such one of the array. It returns no error of an operation: meron_future_finish, wait or poll of
that future returns it, and then does not wait. Local: other ranks may wait for other futures.
finished. Returns MERON_IN_PROGRESS if timeout_ns passed first.

- `out`: receives the index of a future that has ended; `count` if none has.

- `futures`: of one context. Null ones are skipped: set a future to null once it is

- `count`: futures in the array.

- `timeout_ns`: nanoseconds; MERON_TIMEOUT_DEFAULT: as long as the operations' own deadlines; 0:
looks once.

Ownership: all futures stay the caller's.
Blocks: as meron_future_wait.
Threads: any.
Errors: MERON_E_ARGUMENT (NULL, another negative timeout), MERON_E_HANDLE (all futures are null,
one belongs to another context, or one is a transfer of io.h, which belongs to none),
MERON_E_STALE, MERON_E_CANCELLED (should_stop), MERON_E_CLOSED, MERON_E_FORKED.
"""
@inline meron_future_wait_any(out, futures, count, timeout_ns, err) = @blocking_ccall(
        functions.meron_future_wait_any, meron_status, (Ptr{Csize_t}, Ptr{meron_future},
        Csize_t, Int64, Ptr{Ptr{meron_error}}), out, futures, count, timeout_ns, err)

"""
    meron_plan_preset(out, name, err)

Creates one of the named plans: "zero0" (everything replicated, as in DDP), "zero1" (optimizer
states sharded), "zero2" (gradients too), "zero3" (parameters too); for several nodes "mics(4)"
(zero3 within groups of 4 ranks, gradients synchronized between the groups at the accumulation
boundary), "hpz(4)" (zero3 with a secondary partition of the parameters in each group from
forward to backward) and "zeropp(4)" (the same, with parameters in int8 and gradients in int4
between groups). Without an argument, or with "node", a group is the ranks of a node. Follows
ZeRO (arXiv 1910.02054), MiCS (arXiv 2205.00119) and ZeRO++ (arXiv 2306.10209).

- `out`: receives the plan.

- `name`: NUL-terminated.

Ownership: the caller releases *out with meron_plan_release; a context keeps its own reference.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT for an unknown name (the message lists the known ones).
"""
@inline meron_plan_preset(out, name, err) = ccall(
        functions.meron_plan_preset, meron_status, (Ptr{meron_plan}, Ptr{UInt8},
        Ptr{Ptr{meron_error}}), out, name, err)

"""
    meron_plan_parse(out, json, bytes, err)

Reads a plan from JSON. `{"preset": "zero2", "gradient": {"dtype": "f32"}}` starts from a
preset; docs/plan.md has every key.

- `out`: receives the plan.

- `json`: text of `bytes` bytes, UTF-8, need not end in NUL.

Ownership: as meron_plan_preset.
Blocks: never.
Threads: any.
Errors: MERON_E_PARSE (line and key), MERON_E_ARGUMENT, MERON_E_UNSUPPORTED.
"""
@inline meron_plan_parse(out, json, bytes, err) = ccall(
        functions.meron_plan_parse, meron_status, (Ptr{meron_plan}, Ptr{UInt8}, Csize_t,
        Ptr{Ptr{meron_error}}), out, json, bytes, err)

"""
    meron_plan_json(out, plan, err)

The plan as JSON that meron_plan_parse reads back to an equal plan.

Ownership: the caller frees *out with meron_string_free.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_plan_json(out, plan, err) = ccall(
        functions.meron_plan_json, meron_status, (Ptr{Ptr{UInt8}}, meron_plan,
        Ptr{Ptr{meron_error}}), out, plan, err)

"""
    meron_plan_table(out, plan, err)

The plan as a table for people, several lines.

Ownership: the caller frees *out with meron_string_free.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_plan_table(out, plan, err) = ccall(
        functions.meron_plan_table, meron_status, (Ptr{Ptr{UInt8}}, meron_plan,
        Ptr{Ptr{meron_error}}), out, plan, err)

"""
    meron_workload_init(workload, struct_size, err)

Fills the first `struct_size` bytes of *workload with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_workload_init(workload, struct_size, err) = ccall(
        functions.meron_workload_init, meron_status, (Ptr{meron_workload}, Csize_t,
        Ptr{Ptr{meron_error}}), workload, struct_size, err)

"""
    meron_plan_predict(out, plan, model, bytes, workload, table, err)

Predicts bytes per link and step and peak bytes per tier, per rank, as JSON. If the ranks use
codecs with which models train worse, the JSON has a list `warnings` of the texts that a run
logs, and the table ends with them.

- `out`: receives the text.

- `model`: JSON of `bytes` bytes: {"parameters": N, "layers": L, "dtype": "bf16"}, or {"units":
[{"name": ..., "tensors": [{"name", "shape", "dtype"}]}]}.

- `table`: 0: JSON; 1: a table for people.

Ownership: the caller frees *out with meron_string_free.
Blocks: never.
Threads: any.
Errors: MERON_E_PARSE, MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_plan_predict(out, plan, model, bytes, workload, table, err) = ccall(
        functions.meron_plan_predict, meron_status, (Ptr{Ptr{UInt8}}, meron_plan, Ptr{UInt8},
        Csize_t, Ptr{meron_workload}, UInt32, Ptr{Ptr{meron_error}}), out, plan, model, bytes,
        workload, table, err)

"""
    meron_plan_release(plan, err)

Releases a plan. A context that was opened with it keeps it.

Blocks: never.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_plan_release(plan, err) = ccall(
        functions.meron_plan_release, meron_status, (meron_plan, Ptr{Ptr{meron_error}}), plan,
        err)

"""
    meron_transport_init(transport, struct_size, err)

Fills the first `struct_size` bytes of *transport with zeros and its size (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_transport_init(transport, struct_size, err) = ccall(
        functions.meron_transport_init, meron_status, (Ptr{meron_transport}, Csize_t,
        Ptr{Ptr{meron_error}}), transport, struct_size, err)

"""
    meron_allocator_init(allocator, struct_size, err)

Fills the first `struct_size` bytes of *allocator with zeros and its size (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_allocator_init(allocator, struct_size, err) = ccall(
        functions.meron_allocator_init, meron_status, (Ptr{meron_allocator}, Csize_t,
        Ptr{Ptr{meron_error}}), allocator, struct_size, err)

"""
    meron_context_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with defaults (for languages without macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_context_options_init(options, struct_size, err) = ccall(
        functions.meron_context_options_init, meron_status, (Ptr{meron_context_options},
        Csize_t, Ptr{Ptr{meron_error}}), options, struct_size, err)

"""
    meron_context_open(out, options, err)

Opens this rank's context and connects it to the other ranks.

- `out`: receives the context.

- `options`: NULL for the defaults.

Ownership: the caller closes *out.
Blocks: until all ranks have arrived, at most the deadline.
Threads: any.
Errors: MERON_E_ARGUMENT (rank beyond the world, unknown transport), MERON_E_AUTH (token missing
or wrong), MERON_E_TIMEOUT (names the missing ranks), MERON_E_VERSION, MERON_E_NO_MEMORY,
MERON_E_IO, MERON_E_NOT_FOUND (no directory MERON_STORE), MERON_E_UNSUPPORTED (no transport
connects the ranks' hosts; the device's module cannot be loaded or cannot work here, with the
reason), MERON_E_DEVICE (it has failed), MERON_E_DUPLICATE (a rank arrived twice), or the error
with which calls of a faster rank have broken the world.
"""
@inline meron_context_open(out, options, err) = @blocking_ccall(
        functions.meron_context_open, meron_status, (Ptr{meron_context},
        Ptr{meron_context_options}, Ptr{Ptr{meron_error}}), out, options, err)

"""
    meron_context_close(context, err)

Closes the context: pending operations are cancelled, all its handles become stale, views become
invalid, and after the return nothing touches memory that the caller passed to operations.
DLPack tensors stay readable. Nothing uses log_user and should_stop_user afterwards: it waits
for callbacks that run on other threads. If a callback closes a context, it waits for no
callback, and the pointers are used until that callback has returned. Local: it does not wait
for peers, but first for a pending save of a checkpoint. If should_stop ends that wait, the save
is abandoned and leaves no checkpoint. If the last save has failed and no wait returned its
error, the log has it. Peers that still need this rank get MERON_E_PEER_CLOSED: for operations
that it has not begun, or that it has begun and not waited for. Once it has waited for all that
it began, it may close without a barrier. Another context may be opened afterwards in the same
process.

Blocks: on such a save and on such callbacks, without a deadline; else until calls of other
threads on this context have ended, whose waits it ends.
Threads: any.
Errors: MERON_E_HANDLE, MERON_E_STALE (closed already), MERON_E_STATE (from an allocator or a
transport), MERON_E_FORKED.
"""
@inline meron_context_close(context, err) = @blocking_ccall(
        functions.meron_context_close, meron_status, (meron_context, Ptr{Ptr{meron_error}}),
        context, err)

"""
    meron_context_rank(out, context, err)

This rank, 0 to world size - 1.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_context_rank(out, context, err) = ccall(
        functions.meron_context_rank, meron_status, (Ptr{Int32}, meron_context,
        Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_context_world_size(out, context, err)

The number of ranks.

Blocks: never.
Threads: any.
Errors: as meron_context_rank.
"""
@inline meron_context_world_size(out, context, err) = ccall(
        functions.meron_context_world_size, meron_status, (Ptr{Int32}, meron_context,
        Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_context_transport(out, context, err)

The name of the transport in use: "self", "local", "shm", or that of a custom one.

Ownership: the context, until it is closed.
Blocks: never.
Threads: any.
Errors: as meron_context_rank.
"""
@inline meron_context_transport(out, context, err) = ccall(
        functions.meron_context_transport, meron_status, (Ptr{Ptr{UInt8}}, meron_context,
        Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_context_plan_json(out, context, err)

The plan that the context was opened with, as JSON that meron_plan_parse reads back to an equal
plan; "zero3" if it was opened without one.

Ownership: the caller frees *out with meron_string_free.
Blocks: never.
Threads: any.
Errors: as meron_context_rank.
"""
@inline meron_context_plan_json(out, context, err) = ccall(
        functions.meron_context_plan_json, meron_status, (Ptr{Ptr{UInt8}}, meron_context,
        Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_context_progress(context, err)

Advances every operation of this context that can advance, without waiting. Waits do the same; a
trainer that computes for long between begin and wait may call it in between. Clears the
descriptor of meron_context_event_fd first.

Blocks: never on peers; computes.
Threads: any.
Errors: as meron_future_wait.
"""
@inline meron_context_progress(context, err) = ccall(
        functions.meron_context_progress, meron_status, (meron_context, Ptr{Ptr{meron_error}}),
        context, err)

"""
    meron_context_event_fd(out, context, err)

A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a future of
the context may have advanced. A thread of the engine writes to it when a peer has done
something, and at least 50 times a second while an operation is pending; it advances no
operation. In the loop, call meron_context_progress, which clears the descriptor, or read its 8
bytes; then poll the futures. Clear it before the polls: what comes later makes it readable
again. Poll a future once after its begin, too: if it has ended by then, no sign follows.
Futures of io.h are of no context and have none.

- `out`: receives the descriptor, an eventfd (Linux): nonblocking, closed on exec, the same at
each call. Watch it for reading, level-triggered or edge-triggered; write nothing.

Ownership: the context's: do not close it. The close of the context makes it readable and closes
it: take it out of the loop before. A child after fork shares it with its parent: it must
neither read nor watch it.
Blocks: never.
Threads: any; all watchers share one count, so one loop should watch it.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_CLOSED, MERON_E_FORKED,
MERON_E_NO_MEMORY (no thread), MERON_E_IO (no descriptor is left).
"""
@inline meron_context_event_fd(out, context, err) = ccall(
        functions.meron_context_event_fd, meron_status, (Ptr{Int32}, meron_context,
        Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_context_stats(out, context, err)

Reads the counters.

- `out`: struct_size set by the caller; fields beyond the library's own are set to 0.

Blocks: never.
Threads: any.
Errors: as meron_context_rank.
"""
@inline meron_context_stats(out, context, err) = ccall(
        functions.meron_context_stats, meron_status, (Ptr{meron_stats}, meron_context,
        Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_context_predict(out, context, workload, err)

Predicts memory and traffic of this rank from the plan and the current units. The counters of
meron_stats grow by exactly these bytes per step of that workload.

- `workload`: its `ranks` and `optimizer_states` are ignored in favour of the world's size and
the optimizer's rule.

Blocks: never.
Threads: any.
Errors: as meron_context_rank, MERON_E_ARGUMENT.
"""
@inline meron_context_predict(out, context, workload, err) = ccall(
        functions.meron_context_predict, meron_status, (Ptr{meron_prediction}, meron_context,
        Ptr{meron_workload}, Ptr{Ptr{meron_error}}), out, context, workload, err)

"""
    meron_context_flight_record(out, context, err)

The flight recorder: the last operations (up to 1,024) of every rank of the world, as JSON.
Works on a broken group too.

Ownership: the caller frees *out with meron_string_free.
Blocks: never.
Threads: any.
Errors: as meron_context_rank.
"""
@inline meron_context_flight_record(out, context, err) = ccall(
        functions.meron_context_flight_record, meron_status, (Ptr{Ptr{UInt8}}, meron_context,
        Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_context_world(out, context, err)

The group of all ranks.

Ownership: the caller releases *out; the group itself lives as long as the context.
Blocks: never.
Threads: any.
Errors: as meron_context_rank.
"""
@inline meron_context_world(out, context, err) = ccall(
        functions.meron_context_world, meron_status, (Ptr{meron_group}, meron_context,
        Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_group_create(out, context, ranks, count, err)

Creates a group of some ranks. Collective over the world: every rank calls it with the same
list; ranks outside of the list get a null group.

- `ranks`: `count` world ranks, each once, in the group's order.

Ownership: the caller releases *out.
Blocks: as meron_barrier_begin; if the plan has parameters on tier device, also until the ranks
of the group have called it, because it connects their devices.
Threads: any.
Errors: MERON_E_ARGUMENT (a rank beyond the world or twice), MERON_E_UNSUPPORTED (more than 64
groups), MERON_E_VERSION (libraries of collectives that differ), MERON_E_NO_MEMORY, -3xx. A lack
of memory on one rank breaks the world, with MERON_E_NO_MEMORY on all ranks: the error names the
rank.
"""
@inline meron_group_create(out, context, ranks, count, err) = @blocking_ccall(
        functions.meron_group_create, meron_status, (Ptr{meron_group}, meron_context,
        Ptr{Int32}, Csize_t, Ptr{Ptr{meron_error}}), out, context, ranks, count, err)

"""
    meron_group_rank(out, group, err)

This rank's number in the group.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_group_rank(out, group, err) = ccall(
        functions.meron_group_rank, meron_status, (Ptr{Int32}, meron_group,
        Ptr{Ptr{meron_error}}), out, group, err)

"""
    meron_group_size(out, group, err)

The number of ranks in the group.

Blocks: never.
Threads: any.
Errors: as meron_group_rank.
"""
@inline meron_group_size(out, group, err) = ccall(
        functions.meron_group_size, meron_status, (Ptr{Int32}, meron_group,
        Ptr{Ptr{meron_error}}), out, group, err)

"""
    meron_group_status(group, err)

MERON_OK while the group works, else the error that broke it, of any class. So it decides, after
an error of another call, if the program can continue.

Blocks: never; checks if peers are alive.
Threads: any.
Errors: the one that broke the group, -3xx, as meron_group_rank.
"""
@inline meron_group_status(group, err) = ccall(
        functions.meron_group_status, meron_status, (meron_group, Ptr{Ptr{meron_error}}), group,
        err)

"""
    meron_group_abort(group, reason, err)

Breaks the group on every rank: pending waits end with MERON_E_ABORTED, which contains `reason`.

- `reason`: NULL or text for people, at most 200 bytes are kept.

Blocks: never.
Threads: any.
Errors: as meron_group_rank.
"""
@inline meron_group_abort(group, reason, err) = ccall(
        functions.meron_group_abort, meron_status, (meron_group, Ptr{UInt8},
        Ptr{Ptr{meron_error}}), group, reason, err)

"""
    meron_barrier_begin(out, group, err)

Begins a barrier: the future ends when every rank of the group has begun it.

- `out`: receives the future.

Ownership: the caller releases *out.
Blocks: if this rank is 1,024 calls ahead of a peer, until that peer has followed, at most the
deadline; and while another thread of this rank begins an operation.
Threads: any.
Errors: as meron_group_rank, MERON_E_CANCELLED (nothing was begun), -3xx.
"""
@inline meron_barrier_begin(out, group, err) = @blocking_ccall(
        functions.meron_barrier_begin, meron_status, (Ptr{meron_future}, meron_group,
        Ptr{Ptr{meron_error}}), out, group, err)

"""
    meron_broadcast_begin(out, group, data, bytes, root, err)

Begins a broadcast of `bytes` bytes from rank `root` of the group.

- `data`: memory of the host, read on the root and written elsewhere.

Ownership: `data` must stay valid until the future has ended.
Blocks: as meron_barrier_begin.
Threads: any.
Errors: MERON_E_ARGUMENT, as meron_barrier_begin.
"""
@inline meron_broadcast_begin(out, group, data, bytes, root, err) = @blocking_ccall(
        functions.meron_broadcast_begin, meron_status, (Ptr{meron_future}, meron_group,
        Ptr{Cvoid}, Csize_t, Int32, Ptr{Ptr{meron_error}}), out, group, data, bytes, root, err)

"""
    meron_all_reduce_begin(out, group, data, count, dtype, op, err)

Begins an all-reduce of `count` elements in place. Values are combined in rank order, so that
every rank gets the same bits in every run. For small arrays (losses, metrics, counts): every
rank reads all peers' values. For gradients, use meron_reduce_begin.

- `data`: memory of the host.

- `dtype`: any; equal on all ranks, like `count` and `op`: ranks that differ get
MERON_E_MISMATCH, which names both calls.

- `op`: sum and mean are computed in f32, those of f64 in f64. A sum of i64 wraps around, as in
NCCL; its mean is an error. max and min are NaN if a rank's value is NaN, as in PyTorch.

Ownership: `data` must stay valid until the future has ended.
Blocks: as meron_barrier_begin.
Threads: any.
Errors: MERON_E_ARGUMENT, as meron_barrier_begin.
"""
@inline meron_all_reduce_begin(out, group, data, count, dtype, op, err) = @blocking_ccall(
        functions.meron_all_reduce_begin, meron_status, (Ptr{meron_future}, meron_group,
        Ptr{Cvoid}, Csize_t, meron_dtype, meron_reduce_op, Ptr{Ptr{meron_error}}), out, group,
        data, count, dtype, op, err)

"""
    meron_group_release(group, err)

Releases a group. Params and operations keep it while they need it.

Blocks: never.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_group_release(group, err) = ccall(
        functions.meron_group_release, meron_status, (meron_group, Ptr{Ptr{meron_error}}),
        group, err)

"""
    meron_param_desc_init(desc, struct_size, err)

Fills the first `struct_size` bytes of *desc with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_param_desc_init(desc, struct_size, err) = ccall(
        functions.meron_param_desc_init, meron_status, (Ptr{meron_param_desc}, Csize_t,
        Ptr{Ptr{meron_error}}), desc, struct_size, err)

"""
    meron_param_register(out, context, desc, err)

Registers a param. Collective over its group: all ranks register the same params in the same
order; a difference is reported with both descriptions.

- `out`: receives the param.

- `desc`: copied.

Ownership: the caller releases *out.
Blocks: as meron_barrier_begin.
Threads: any.
Errors: MERON_E_ARGUMENT (negative or overflowing shape, unknown dtype), MERON_E_DUPLICATE
(name), MERON_E_HANDLE, MERON_E_STALE, MERON_E_MISMATCH, -3xx.
"""
@inline meron_param_register(out, context, desc, err) = @blocking_ccall(
        functions.meron_param_register, meron_status, (Ptr{meron_param}, meron_context,
        Ptr{meron_param_desc}, Ptr{Ptr{meron_error}}), out, context, desc, err)

"""
    meron_param_get_info(out, param, err)

Reads the information about a param.

- `out`: struct_size set by the caller.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_param_get_info(out, param, err) = ccall(
        functions.meron_param_get_info, meron_status, (Ptr{meron_param_info}, meron_param,
        Ptr{Ptr{meron_error}}), out, param, err)

"""
    meron_param_name(out, param, err)

The param's name.

Ownership: borrowed from the param.
Blocks: never.
Threads: any.
Errors: as meron_param_get_info.
"""
@inline meron_param_name(out, param, err) = ccall(
        functions.meron_param_name, meron_status, (Ptr{Ptr{UInt8}}, meron_param,
        Ptr{Ptr{meron_error}}), out, param, err)

"""
    meron_param_release(param, err)

Releases the handle. A param that is in a unit lives as long as the unit.

Blocks: never.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_param_release(param, err) = ccall(
        functions.meron_param_release, meron_status, (meron_param, Ptr{Ptr{meron_error}}),
        param, err)

"""
    meron_unit_create(out, context, name, params, count, err)

Creates a unit and reserves its memory on this rank according to the plan; values are zero at
version 0. The memory of gradients is counted, and checked against the host's free memory, but
the first gradient allocates it: see meron_gradient_view. Collective over the params' group.

- `name`: unique in the context, 1 to 512 bytes of UTF-8.

- `params`: `count` params of one group, none of them in a unit.

Ownership: the caller releases *out; the memory stays until meron_unit_destroy or until the
context is closed, because peers may read it.
Blocks: as meron_barrier_begin.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_DUPLICATE (a param twice, or in a unit already, or the name),
MERON_E_NO_MEMORY (figures), -3xx. In a group of several ranks, a lack of memory on one of them
breaks the group, with MERON_E_NO_MEMORY on all of them: the error names the rank.
"""
@inline meron_unit_create(out, context, name, params, count, err) = @blocking_ccall(
        functions.meron_unit_create, meron_status, (Ptr{meron_unit}, meron_context, Ptr{UInt8},
        Ptr{meron_param}, Csize_t, Ptr{Ptr{meron_error}}), out, context, name, params, count,
        err)

"""
    meron_unit_destroy(unit, err)

Destroys a unit and its params: releases their memory on the host, on the device and on the
drive, and their names. Collective over the unit's group: all ranks call it, and no rank creates
units or groups meanwhile. All handles of the unit and of its params become stale; views of its
values and gradients must not be read any more.

Ownership: none.
Blocks: while a save copies states, without a deadline; then until every rank has called it and
no rank uses the unit any more, at most the deadline.
Threads: any, one unit at a time.
Errors: MERON_E_STATE, before this rank notifies its peers and before anything has changed (the
unit is gathered, updated, reduced or stepped, or it belongs to a schedule or an optimizer:
release these first; another thread destroys a unit), MERON_E_CANCELLED (should_stop: call again
to continue), MERON_E_HANDLE, MERON_E_STALE (also the second time), -3xx (names a rank that does
not call).
"""
@inline meron_unit_destroy(unit, err) = @blocking_ccall(
        functions.meron_unit_destroy, meron_status, (meron_unit, Ptr{Ptr{meron_error}}), unit,
        err)

"""
    meron_unit_get_info(out, unit, err)

Reads the information about a unit.

- `out`: struct_size set by the caller.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_unit_get_info(out, unit, err) = ccall(
        functions.meron_unit_get_info, meron_status, (Ptr{meron_unit_info}, meron_unit,
        Ptr{Ptr{meron_error}}), out, unit, err)

"""
    meron_unit_name(out, unit, err)

The unit's name.

Ownership: borrowed from the unit, until it is destroyed or the context is closed.
Blocks: never.
Threads: any.
Errors: as meron_unit_get_info.
"""
@inline meron_unit_name(out, unit, err) = ccall(
        functions.meron_unit_name, meron_status, (Ptr{Ptr{UInt8}}, meron_unit,
        Ptr{Ptr{meron_error}}), out, unit, err)

"""
    meron_unit_param(out, unit, index, err)

A param of the unit, for meron_param_get_info and meron_param_name.

- `out`: receives a new handle of the param.

- `index`: 0 to meron_unit_info.params - 1, in the order of meron_unit_create.

Ownership: the caller releases *out.
Blocks: never.
Threads: any.
Errors: as meron_unit_get_info; MERON_E_ARGUMENT also for another index.
"""
@inline meron_unit_param(out, unit, index, err) = ccall(
        functions.meron_unit_param, meron_status, (Ptr{meron_param}, meron_unit, UInt64,
        Ptr{Ptr{meron_error}}), out, unit, index, err)

"""
    meron_unit_flat(out, unit, index, err)

Reads the information about a flat of the unit. meron_gather_begin can copy a flat into the
caller's memory as a whole.

- `out`: struct_size set by the caller.

- `index`: 0 to meron_unit_info.flats - 1, in the order of their first params.

Blocks: never.
Threads: any.
Errors: as meron_unit_get_info; MERON_E_ARGUMENT also for another index.
"""
@inline meron_unit_flat(out, unit, index, err) = ccall(
        functions.meron_unit_flat, meron_status, (Ptr{meron_flat_info}, meron_unit, UInt64,
        Ptr{Ptr{meron_error}}), out, unit, index, err)

"""
    meron_unit_release(unit, err)

Releases the handle.

Blocks: never.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_unit_release(unit, err) = ccall(
        functions.meron_unit_release, meron_status, (meron_unit, Ptr{Ptr{meron_error}}), unit,
        err)

"""
    meron_update_begin(out, units, count, err)

Begins an update of some units: requests that every rank release the current version. Collective
over the units' group. When it has ended, this rank's shards may be written.

- `out`: receives the update.

- `units`: `count` units of one group, none leased on this rank.

Ownership: the caller ends *out by meron_update_publish. A release before that cancels the
update: if this rank has waited for it and called neither meron_update_write nor
meron_update_view, its values are published unchanged; otherwise the group breaks with
MERON_E_ABORTED on every rank, because partly written values must not be published and peers
continue the update.
Blocks: as meron_barrier_begin.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_STATE (a unit is leased here or being updated, a step is
pending, or a master is offloaded), MERON_E_DUPLICATE, MERON_E_HANDLE, MERON_E_STALE, -3xx.
"""
@inline meron_update_begin(out, units, count, err) = @blocking_ccall(
        functions.meron_update_begin, meron_status, (Ptr{meron_future}, Ptr{meron_unit},
        Csize_t, Ptr{Ptr{meron_error}}), out, units, count, err)

"""
    meron_update_view(out, update, param, err)

The shard of `param` that this rank updates (the full tensor if the plan replicates the
optimizer states), in the param's dtype, writable, in memory of the host. If the param has a
master, the publication copies all of the view into it.

Ownership: borrowed until meron_update_publish.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT (the param is in none of the units), MERON_E_STATE (no call has waited
for the update), MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_update_view(out, update, param, err) = ccall(
        functions.meron_update_view, meron_status, (Ptr{meron_view}, meron_future, meron_param,
        Ptr{Ptr{meron_error}}), out, update, param, err)

"""
    meron_update_write(update, param, data, count, dtype, err)

Writes this rank's shard of `param` from the full tensor. Every rank passes equal values.
Converts between dtypes, and keeps f32 values in the master copy if there is one.

- `data`: `count` elements, row-major.

- `count`: the param's full element count.

Ownership: `data` is only read, during the call.
Blocks: only while another thread of this rank begins an operation.
Threads: any.
Errors: as meron_update_view.
"""
@inline meron_update_write(update, param, data, count, dtype, err) = @blocking_ccall(
        functions.meron_update_write, meron_status, (meron_future, meron_param, Ptr{Cvoid},
        UInt64, meron_dtype, Ptr{Ptr{meron_error}}), update, param, data, count, dtype, err)

"""
    meron_update_publish(update, err)

Publishes the written shards as the next version and ends the update; the handle becomes stale.
Elements that were not written keep their values.

Blocks: only while another thread of this rank begins an operation.
Threads: any.
Errors: MERON_E_STATE (not waited for), MERON_E_HANDLE, MERON_E_STALE, -3xx.
"""
@inline meron_update_publish(update, err) = @blocking_ccall(
        functions.meron_update_publish, meron_status, (meron_future, Ptr{Ptr{meron_error}}),
        update, err)

"""
    meron_optimizer_rule_init(options, struct_size, kind, err)

Fills the first `struct_size` bytes of *options with the defaults of a rule, as its INIT macro
does (for languages without macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_optimizer_rule_init(options, struct_size, kind, err) = ccall(
        functions.meron_optimizer_rule_init, meron_status, (Ptr{meron_optimizer_options},
        Csize_t, meron_optimizer_kind, Ptr{Ptr{meron_error}}), options, struct_size, kind, err)

"""
    meron_optimizer_create(out, units, count, options, err)

Creates an optimizer and its states (zero) for the trainable params of some units: the states of
the rule, in the plan's dtype and on its tier, and an f32 master copy if the params have 16
bits. A master begins with the param's value at this call, and later updates write it too, so
initial values may be written before or after. States on tier nvme are written once here, so
that steps only overwrite existing data; if that takes long, the log reports the progress.
Collective over the units' group.

- `units`: `count` units of one group. Units whose params are all frozen are passed over, here
and in the steps; a step needs the gradients of all others.

- `options`: NULL for AdamW with its defaults; else a struct from the INIT macro of its kind.

Ownership: the caller releases *out.
Blocks: as meron_barrier_begin; while a save copies states, without a deadline; also on this
rank's drive if states are on nvme.
Threads: any.
Errors: MERON_E_ARGUMENT (a value out of range, no unit with a trainable param),
MERON_E_DUPLICATE (a unit twice, or in an optimizer already), MERON_E_STATE (a unit is updated),
MERON_E_HANDLE, MERON_E_STALE, -3xx. If this rank cannot hold the states, that breaks a group of
several ranks: MERON_E_NO_MEMORY, and of tier nvme MERON_E_ARGUMENT (an unusable folder),
MERON_E_NOT_FOUND, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT.
"""
@inline meron_optimizer_create(out, units, count, options, err) = @blocking_ccall(
        functions.meron_optimizer_create, meron_status, (Ptr{meron_optimizer}, Ptr{meron_unit},
        Csize_t, Ptr{meron_optimizer_options}, Ptr{Ptr{meron_error}}), out, units, count,
        options, err)

"""
    meron_optimizer_set_learning_rate(optimizer, learning_rate, err)

Sets the learning rate of the next steps for params of group 0; the same on all ranks (it is
part of the step's fingerprint).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_set_learning_rate(optimizer, learning_rate, err) = ccall(
        functions.meron_optimizer_set_learning_rate, meron_status, (meron_optimizer, Float64,
        Ptr{Ptr{meron_error}}), optimizer, learning_rate, err)

"""
    meron_optimizer_set_max_norm(optimizer, max_norm, err)

Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones stay; 0
does not clip. The same on all ranks (it is part of the step's fingerprint).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_set_max_norm(optimizer, max_norm, err) = ccall(
        functions.meron_optimizer_set_max_norm, meron_status, (meron_optimizer, Float64,
        Ptr{Ptr{meron_error}}), optimizer, max_norm, err)

"""
    meron_optimizer_group_init(group, struct_size, err)

Fills the first `struct_size` bytes of *group with the initial value, which is AdamW's (for
languages without macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_optimizer_group_init(group, struct_size, err) = ccall(
        functions.meron_optimizer_group_init, meron_status, (Ptr{meron_optimizer_group},
        Csize_t, Ptr{Ptr{meron_error}}), group, struct_size, err)

"""
    meron_optimizer_add_group(out, optimizer, params, count, group, err)

Gives some params their own hyperparameters, for example no weight decay. All ranks must do the
same before the next step, because it is part of the step's fingerprint.

- `out`: receives the group's number, 1, 2, ...; group 0 has the params of no other group.

- `params`: `count` params that this optimizer trains, all of group 0.

- `group`: copied.

Blocks: only while another thread of this rank begins an operation.
Threads: any, not during a step.
Errors: MERON_E_ARGUMENT (a value out of range, or a group that does not start from one of this
optimizer's rule), MERON_E_DUPLICATE (a param is in a group already), MERON_E_STATE (a step is
pending), MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_add_group(out, optimizer, params, count, group, err) = @blocking_ccall(
        functions.meron_optimizer_add_group, meron_status, (Ptr{UInt32}, meron_optimizer,
        Ptr{meron_param}, Csize_t, Ptr{meron_optimizer_group}, Ptr{Ptr{meron_error}}), out,
        optimizer, params, count, group, err)

"""
    meron_optimizer_set_group(optimizer, number, group, err)

Sets the hyperparameters of a group for the next steps; the same on all ranks.

- `number`: 0, or a number from meron_optimizer_add_group.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT (no such group, or as meron_optimizer_add_group), MERON_E_HANDLE,
MERON_E_STALE.
"""
@inline meron_optimizer_set_group(optimizer, number, group, err) = ccall(
        functions.meron_optimizer_set_group, meron_status, (meron_optimizer, UInt32,
        Ptr{meron_optimizer_group}, Ptr{Ptr{meron_error}}), optimizer, number, group, err)

"""
    meron_optimizer_get_group(out, optimizer, number, err)

Reads the hyperparameters of a group.

- `out`: struct_size set by the caller.

Ownership: *out is the caller's, a plain copy.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_optimizer_get_group(out, optimizer, number, err) = ccall(
        functions.meron_optimizer_get_group, meron_status, (Ptr{meron_optimizer_group},
        meron_optimizer, UInt32, Ptr{Ptr{meron_error}}), out, optimizer, number, err)

"""
    meron_optimizer_step_begin(out, optimizer, err)

Begins a step: norm of all gradients of this optimizer (exact, so equal for every number of
ranks), clipping, update of this rank's shards, publication of the next version. Needs the
reduced gradient of every unit, and no lease on any of them on this rank: release gathers
before, also pending ones, and drop schedules. A gather may begin again when the step has ended
here. Collective over the units' group. States on tier nvme are read, updated and written at the
same time, piece by piece; nothing is written before the norm is known to be finite.

- `out`: receives the future.

Ownership: the caller releases *out.
Blocks: as meron_barrier_begin; the future waits for a save that copies the states.
Threads: any.
Errors: MERON_E_STATE (names the unit that is leased or not reduced; a step is pending; states
are offloaded), MERON_E_HANDLE, MERON_E_STALE, -3xx. From the wait: MERON_E_NONFINITE on all
ranks if the norm is not finite, or if the step would make a state infinite or a value too large
for its dtype. Nothing was changed, the step does not count, and the gradients are discarded, so
that training can continue. Two tiers differ. On nvme, an overflow that several steps have added
up to is found only while it is written: then this error breaks the group. On device, only
gradients are looked at before the step: a later step whose norm is not finite names a value of
f16 that became infinite. MERON_E_IO and MERON_E_CORRUPT if a drive failed or returned other
bytes than were written: these break the group, so continue from a checkpoint.
"""
@inline meron_optimizer_step_begin(out, optimizer, err) = @blocking_ccall(
        functions.meron_optimizer_step_begin, meron_status, (Ptr{meron_future}, meron_optimizer,
        Ptr{Ptr{meron_error}}), out, optimizer, err)

"""
    meron_optimizer_set_steps(optimizer, steps, err)

Sets the number of steps that the optimizer and all of its params have taken, for an optimizer
that continues from a checkpoint, beside its states (meron_optimizer_write_state). Adam's bias
corrections, the first step of SGD with a momentum (which takes no average) and the random
rounding of states in 16 or 8 bits depend on it. All ranks set the same number, because the
fingerprint of the next step includes it. Changes nothing else.

- `steps`: at most 2^53.

Blocks: never.
Threads: any, not during a step.
Errors: MERON_E_ARGUMENT, MERON_E_STATE (a step is pending), MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_set_steps(optimizer, steps, err) = ccall(
        functions.meron_optimizer_set_steps, meron_status, (meron_optimizer, UInt64,
        Ptr{Ptr{meron_error}}), optimizer, steps, err)

"""
    meron_optimizer_set_skipped(optimizer, params, count, err)

Makes the next steps skip some params: their values, states and counts of steps stay as they
are, like those of a torch.optim param whose gradient is None. Replaces the params of the call
before. All ranks give the same params before the next step, whose fingerprint includes them.
Gradients of skipped params still count in the norm. States in 8 bits are rounded anew if they
share a block with a param that is not skipped.

- `params`: `count` params that this optimizer trains; NULL with a count of 0: no param is
skipped.

Ownership: the array is copied.
Blocks: never.
Threads: any, not during a step.
Errors: MERON_E_ARGUMENT, MERON_E_STATE (a step is pending), MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_set_skipped(optimizer, params, count, err) = ccall(
        functions.meron_optimizer_set_skipped, meron_status, (meron_optimizer, Ptr{meron_param},
        Csize_t, Ptr{Ptr{meron_error}}), optimizer, params, count, err)

"""
    meron_optimizer_param_steps(out, optimizer, param, err)

Reads the number of steps that a param has taken: those of the optimizer, without the steps that
skipped the param (meron_optimizer_set_skipped).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT (not a param of this optimizer), MERON_E_HANDLE, MERON_E_STALE,
MERON_E_FORKED.
"""
@inline meron_optimizer_param_steps(out, optimizer, param, err) = ccall(
        functions.meron_optimizer_param_steps, meron_status, (Ptr{UInt64}, meron_optimizer,
        meron_param, Ptr{Ptr{meron_error}}), out, optimizer, param, err)

"""
    meron_optimizer_set_param_steps(optimizer, param, steps, err)

Sets the number of steps that one param has taken, for states that begin anew (0, beside
meron_optimizer_write_state of zeros) or come from elsewhere. All ranks set the same number,
because the fingerprint of the next step includes it. meron_optimizer_set_steps resets it.

- `steps`: at most 2^53.

Blocks: never.
Threads: any, not during a step.
Errors: MERON_E_ARGUMENT (also for a param that this optimizer does not train), MERON_E_STATE (a
step is pending), MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_set_param_steps(optimizer, param, steps, err) = ccall(
        functions.meron_optimizer_set_param_steps, meron_status, (meron_optimizer, meron_param,
        UInt64, Ptr{Ptr{meron_error}}), optimizer, param, steps, err)

"""
    meron_optimizer_get_info(out, optimizer, err)

Reads the information about an optimizer.

- `out`: struct_size set by the caller.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_optimizer_get_info(out, optimizer, err) = ccall(
        functions.meron_optimizer_get_info, meron_status, (Ptr{meron_optimizer_info},
        meron_optimizer, Ptr{Ptr{meron_error}}), out, optimizer, err)

"""
    meron_optimizer_state_view(out, optimizer, param, state, err)

This rank's shard of a state of `param`, if the state is in memory of the host in f32. Writable,
except for a master that is the param itself: that is mapped read-only (write it through an
update).

Ownership: borrowed until the next step, meron_optimizer_offload or meron_optimizer_release.
Blocks: never.
Threads: any, not during a step.
Errors: MERON_E_ARGUMENT (not a param of this optimizer, a state that the rule does not keep),
MERON_E_STATE (the states are offloaded), MERON_E_UNSUPPORTED (it is on nvme or a device, or in
16 or 8 bits: use meron_optimizer_read_state), MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_state_view(out, optimizer, param, state, err) = ccall(
        functions.meron_optimizer_state_view, meron_status, (Ptr{meron_view}, meron_optimizer,
        meron_param, meron_optimizer_state, Ptr{Ptr{meron_error}}), out, optimizer, param,
        state, err)

"""
    meron_optimizer_read_state(out, count, optimizer, param, state, err)

Copies this rank's shard of a state of `param` in f32, from any tier and dtype.

- `out`: `count` floats.

- `count`: the param's shard_count (meron_param_get_info).

Blocks: while another thread of this rank begins an operation; if states are on nvme, on this
rank's drive, and while a save copies states, without a deadline.
Threads: any, not during a step.
Errors: MERON_E_ARGUMENT (as meron_optimizer_state_view, or another count), MERON_E_STATE (a
step is pending, the states are offloaded), MERON_E_IO, MERON_E_CORRUPT, MERON_E_HANDLE,
MERON_E_STALE.
"""
@inline meron_optimizer_read_state(out, count, optimizer, param, state, err) = @blocking_ccall(
        functions.meron_optimizer_read_state, meron_status, (Ptr{Float32}, UInt64,
        meron_optimizer, meron_param, meron_optimizer_state, Ptr{Ptr{meron_error}}), out, count,
        optimizer, param, state, err)

"""
    meron_optimizer_write_state(optimizer, param, state, data, count, err)

Replaces this rank's shard of a state of `param`, from f32; states of 16 or 8 bits are rounded
to nearest.

- `data`: `count` floats, only read.

- `count`: the param's shard_count.

Blocks: as meron_optimizer_read_state, and while a save copies states of any tier.
Threads: any, not during a step.
Errors: as meron_optimizer_read_state, MERON_E_ARGUMENT also for a master that is the param
itself (write that through an update).
"""
@inline meron_optimizer_write_state(optimizer, param, state, data, count, err) = @blocking_ccall(
        functions.meron_optimizer_write_state, meron_status, (meron_optimizer, meron_param,
        meron_optimizer_state, Ptr{Float32}, UInt64, Ptr{Ptr{meron_error}}), optimizer, param,
        state, data, count, err)

"""
    meron_optimizer_offload(optimizer, folder, err)

Moves this rank's states in memory, including the f32 master, to this rank's file on a drive,
and frees their memory, for a phase that needs it for something else, like DeepSpeed's
offload_states. Values stay usable. Until meron_optimizer_reload, steps, updates, saves, loads
and reads and writes of states return MERON_E_STATE.

- `folder`: on a drive; NULL for the plan's nvme.path, or for the folder that already has this
rank's file.

Blocks: on this rank's drive, and meanwhile other calls of this rank that begin an operation;
while a save copies states, without a deadline; never on peers.
Threads: any. An error changes nothing.
Errors: MERON_E_ARGUMENT (no folder, an unusable one), MERON_E_STATE (a step is pending, they
are offloaded already), MERON_E_UNSUPPORTED (they are on tier device), MERON_E_NO_SPACE,
MERON_E_IO, MERON_E_NOT_FOUND, MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_offload(optimizer, folder, err) = @blocking_ccall(
        functions.meron_optimizer_offload, meron_status, (meron_optimizer, Ptr{UInt8},
        Ptr{Ptr{meron_error}}), optimizer, folder, err)

"""
    meron_optimizer_reload(optimizer, err)

Restores the states that meron_optimizer_offload moved, bit for bit.

Blocks: as meron_optimizer_offload.
Threads: any. After an error they are still offloaded.
Errors: MERON_E_STATE (they are not offloaded), MERON_E_NO_MEMORY, MERON_E_IO, MERON_E_CORRUPT
(the drive returned other bytes), MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_optimizer_reload(optimizer, err) = @blocking_ccall(
        functions.meron_optimizer_reload, meron_status, (meron_optimizer,
        Ptr{Ptr{meron_error}}), optimizer, err)

"""
    meron_optimizer_release(optimizer, err)

Releases the optimizer and its states. A pending step keeps them until it has ended.

Blocks: if states are on nvme, until the writes of the last step have completed, at most 5 s;
never on peers.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_optimizer_release(optimizer, err) = @blocking_ccall(
        functions.meron_optimizer_release, meron_status, (meron_optimizer,
        Ptr{Ptr{meron_error}}), optimizer, err)

"""
    meron_checkpoint_tensor_init(tensor, struct_size, err)

Fills the first `struct_size` bytes of *tensor with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_checkpoint_tensor_init(tensor, struct_size, err) = ccall(
        functions.meron_checkpoint_tensor_init, meron_status, (Ptr{meron_checkpoint_tensor},
        Csize_t, Ptr{Ptr{meron_error}}), tensor, struct_size, err)

"""
    meron_checkpoint_save_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_checkpoint_save_options_init(options, struct_size, err) = ccall(
        functions.meron_checkpoint_save_options_init, meron_status,
        (Ptr{meron_checkpoint_save_options}, Csize_t, Ptr{Ptr{meron_error}}), options,
        struct_size, err)

"""
    meron_checkpoint_save_begin(out, context, folder, name, options, err)

Begins to save the states of all units, or of those in the options, as they are now, as `name`
in `folder`. Collective over the world. A thread of the engine copies them into bounded memory
and writes: gathers, forward and backward continue meanwhile. The save completes without a wait,
also if its future is released and the program only computes. (Over a custom transport between
ranks it progresses within calls on the context.) The futures of a step or an update of a unit
wait until the unit is copied, and so does a reduction with a codec that keeps feedback. Until
all units are copied, these calls wait: meron_optimizer_create, meron_optimizer_write_state,
meron_optimizer_read_state of tier nvme, meron_optimizer_offload, meron_optimizer_reload and
meron_unit_destroy. Views of states must not be written before that. The counts of steps and the
hyperparameters are those of the call. After a failure on any rank (a full disk) the future
returns the error on all ranks, and the error names that rank. If some rank has not waited for
the future, the begin of the next save returns the error once more, on all ranks, and begins
nothing; the save after that is a new one. A failure of the last save that no wait returned is
logged by meron_context_close. Existing checkpoints stay, and training can continue. One save at
a time: the next save, and a load, wait for the previous one. Closing the context waits for it
too. A save within an accumulation, or between a reduction and its step, has what the last
update left: gradients are not saved, and stay as they are. A codec's feedback that replicas'
exchange of such a gradient has changed is not saved either: it starts from zero after a load. A
cancelled wait for the future does not affect the save. A rank that makes no progress for twice
the context's timeout breaks the group (MERON_E_TIMEOUT); a slow rank does not, nor do steps
that wait for it. With `per_node` a node's folder has the files of its ranks, and the manifest
of all (docs/checkpoint-format.md): the checkpoint exists after every node has renamed its
folder; a name that only some nodes have, because a host died meanwhile, is free. A killed save
never takes its name: what it leaves is hidden, and the next save removes it.
meron_checkpoint_cancel_save cancels a save.

- `out`: receives the future.

- `folder`: a directory that all ranks see; created, with its parents, if it does not exist.
With `per_node`, a directory that all ranks of the node see.

- `name`: one component of a path, not hidden, at most 200 bytes of UTF-8.

- `options`: NULL for the values alone: without `optimizers`, a load restores no training.

Ownership: texts and arrays are copied; the memory at a tensor's `data` must not change until
meron_checkpoint_wait_copied; the caller releases *out.
Blocks: as meron_barrier_begin; also until the previous save has ended, without a deadline, and
until reductions under way that change feedback have ended.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_DUPLICATE (an optimizer or a unit twice), MERON_E_PARSE
(`mapping`), MERON_E_STATE (a unit is gathered, also by a schedule that keeps it, or updated; a
step is pending; states are offloaded), MERON_E_UNSUPPORTED (a unit of some ranks only),
MERON_E_HANDLE, MERON_E_STALE, -3xx, and any of the previous save. From the future:
MERON_E_ARGUMENT (an invalid name, `mapping`, tensors that do not fit each other), MERON_E_PARSE
(`extra` is no JSON object), MERON_E_DUPLICATE (the name is taken), MERON_E_STATE (another
process saves that name), MERON_E_NO_SPACE, MERON_E_IO, MERON_E_NO_MEMORY, MERON_E_NOT_FOUND,
MERON_E_TIMEOUT, MERON_E_CANCELLED (meron_checkpoint_cancel_save), MERON_E_CLOSED, -3xx.
"""
@inline meron_checkpoint_save_begin(out, context, folder, name, options, err) = @blocking_ccall(
        functions.meron_checkpoint_save_begin, meron_status, (Ptr{meron_future}, meron_context,
        Ptr{UInt8}, Ptr{UInt8}, Ptr{meron_checkpoint_save_options}, Ptr{Ptr{meron_error}}), out,
        context, folder, name, options, err)

"""
    meron_checkpoint_wait_copied(context, timeout_ns, err)

Waits until the pending save has copied all its data: then the caller's tensors may change.
Returns MERON_OK also if no save is pending, or if it has failed; MERON_IN_PROGRESS if
timeout_ns passed first.

- `timeout_ns`: nanoseconds; MERON_TIMEOUT_DEFAULT: without bound.

Blocks: on the drive; by default without a deadline.
Threads: any.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_checkpoint_wait_copied(context, timeout_ns, err) = @blocking_ccall(
        functions.meron_checkpoint_wait_copied, meron_status, (meron_context, Int64,
        Ptr{Ptr{meron_error}}), context, timeout_ns, err)

"""
    meron_checkpoint_cancel_save(context, err)

Cancels the pending save. Any rank may do so, without the others: all of them stop writing, and
the save's future ends on each with MERON_E_CANCELLED, whose peer is a rank that cancelled. If
all ranks have written their files by then, the save succeeds instead, on all of them. A
cancelled save leaves no files, also with `overwrite` and `keep`: earlier checkpoints stay as
they were. If a process is killed meanwhile, a hidden directory may remain (.saving-...), which
the next save removes. The next save does not report the cancelled one. It begins nothing and
waits for nothing: wait for the future. Returns MERON_OK also if no save is pending.

Blocks: never.
Threads: any.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_CLOSED, MERON_E_FORKED.
"""
@inline meron_checkpoint_cancel_save(context, err) = ccall(
        functions.meron_checkpoint_cancel_save, meron_status, (meron_context,
        Ptr{Ptr{meron_error}}), context, err)

"""
    meron_checkpoint_get_progress(out, context, err)

Reads the progress of the pending save, or of the last one.

- `out`: struct_size set by the caller.

Ownership: the caller's.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_checkpoint_get_progress(out, context, err) = ccall(
        functions.meron_checkpoint_get_progress, meron_status, (Ptr{meron_checkpoint_progress},
        meron_context, Ptr{Ptr{meron_error}}), out, context, err)

"""
    meron_checkpoint_write_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_checkpoint_write_options_init(options, struct_size, err) = ccall(
        functions.meron_checkpoint_write_options_init, meron_status,
        (Ptr{meron_checkpoint_write_options}, Csize_t, Ptr{Ptr{meron_error}}), options,
        struct_size, err)

"""
    meron_checkpoint_write(folder, name, options, err)

Writes tensors as a checkpoint of one rank, for importers of other formats. `data` is read once
and in order, so it may be mapped files.

- `folder`: , name  as meron_checkpoint_save_begin.

Ownership: everything is only read, during the call.
Blocks: on the drive.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_PARSE (`extra`, `optimizers`), MERON_E_DUPLICATE,
MERON_E_STATE, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT.
"""
@inline meron_checkpoint_write(folder, name, options, err) = @blocking_ccall(
        functions.meron_checkpoint_write, meron_status, (Ptr{UInt8}, Ptr{UInt8},
        Ptr{meron_checkpoint_write_options}, Ptr{Ptr{meron_error}}), folder, name, options, err)

"""
    meron_checkpoint_load_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_checkpoint_load_options_init(options, struct_size, err) = ccall(
        functions.meron_checkpoint_load_options_init, meron_status,
        (Ptr{meron_checkpoint_load_options}, Csize_t, Ptr{Ptr{meron_error}}), options,
        struct_size, err)

"""
    meron_checkpoint_load(out, context, folder, name, options, err)

Loads a checkpoint into all units, or those in the options, and into their optimizers: see the
top of checkpoint.h. Collective over the world. Before anything changes, all ranks have compared
names, shapes and optimizers, and opened the files: such an error is one on all ranks and
changes nothing, so that a program can begin anew after MERON_E_NOT_FOUND. A later error, also a
wait that should_stop ended (MERON_E_ABORTED), is an error on all ranks and breaks the group,
because states are of two checkpoints. When it ends on one rank, no rank reads the files any
more. With `per_node` the newest checkpoint is the newest that has all its files in the nodes'
folders together; the numbers of nodes and ranks may differ from those at the save, and a node
may have the files of several.

- `out`: receives the loaded checkpoint.

- `folder`: of checkpoints, or one of them; or a model as Hugging Face publishes it, a directory
or one file, with `values_only`.

- `name`: NULL for the newest complete one of the line that was saved to last. Incomplete ones
are passed over, which the log says; a damaged one that may be newer is an error.

- `options`: NULL for a checkpoint that was saved without optimizers.

Ownership: the caller releases *out.
Blocks: until a pending save has ended, without a deadline; on the drive and on all ranks; other
threads of this rank that begin an operation wait. A rank that makes no progress for twice the
context's timeout ends the load (MERON_E_TIMEOUT, which names it); raise the timeout for such
slow drives.
Threads: any.
Errors: MERON_E_NOT_FOUND (the folder or the name does not exist, or no checkpoint in it is
complete), MERON_E_CORRUPT (names tensor, file and offset), MERON_E_PARSE (`mapping`, a
manifest), MERON_E_VERSION (of a newer version), MERON_E_ARGUMENT (it does not fit: the message
lists missing, unexpected and different shapes), MERON_E_DUPLICATE, MERON_E_STATE and
MERON_E_UNSUPPORTED as meron_checkpoint_save_begin, MERON_E_STATE also for a gradient in another
state than empty, MERON_E_IO, MERON_E_NO_MEMORY, MERON_E_AUTH (its manifest is a symbolic link;
links of a Hugging Face model are followed), MERON_E_HANDLE, MERON_E_STALE, -3xx.
"""
@inline meron_checkpoint_load(out, context, folder, name, options, err) = @blocking_ccall(
        functions.meron_checkpoint_load, meron_status, (Ptr{meron_checkpoint}, meron_context,
        Ptr{UInt8}, Ptr{UInt8}, Ptr{meron_checkpoint_load_options}, Ptr{Ptr{meron_error}}), out,
        context, folder, name, options, err)

"""
    meron_checkpoint_open(out, folder, name, err)

Opens a checkpoint, or a model as Hugging Face publishes it, to inspect it and to read tensors.

- `out`: receives the checkpoint.

- `folder`: , name   as meron_checkpoint_load.

Ownership: the caller releases *out.
Blocks: on the drive.
Threads: any.
Errors: MERON_E_NOT_FOUND, MERON_E_CORRUPT, MERON_E_PARSE, MERON_E_VERSION, MERON_E_ARGUMENT,
MERON_E_AUTH (its manifest is a symbolic link), MERON_E_IO, MERON_E_NO_MEMORY.
"""
@inline meron_checkpoint_open(out, folder, name, err) = @blocking_ccall(
        functions.meron_checkpoint_open, meron_status, (Ptr{meron_checkpoint}, Ptr{UInt8},
        Ptr{UInt8}, Ptr{Ptr{meron_error}}), out, folder, name, err)

"""
    meron_checkpoint_list(out, folder, err)

Lists the complete checkpoints in a folder. Incomplete and damaged ones, links, and everything
that is no checkpoint are left out.

- `out`: receives JSON: an array of objects, the newest first, in the order in which a load
chooses. Each has "name", "step" (the caller's count), "world" (ranks that saved it), "bytes"
(of its files), "created" (UTC, such as "2026-11-28T19:00:00Z"), and "whole": false if params,
states or units were left out.

- `folder`: a directory of checkpoints.

Ownership: the caller frees *out with meron_string_free.
Blocks: on the drive.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_NOT_FOUND (no such folder), MERON_E_IO, MERON_E_NO_MEMORY.
"""
@inline meron_checkpoint_list(out, folder, err) = @blocking_ccall(
        functions.meron_checkpoint_list, meron_status, (Ptr{Ptr{UInt8}}, Ptr{UInt8},
        Ptr{Ptr{meron_error}}), out, folder, err)

"""
    meron_checkpoint_remove(folder, name, err)

Removes a checkpoint, complete or not, with all that is in its directory. It loses its name
first: if the process is killed or the host loses power, the checkpoint is there as before or
gone, and the next save removes what remains. Any one process may call it, beside a job that
saves to the folder; ranks need not agree. If each node has its own folder, remove it in each.

- `folder`: a directory of checkpoints.

- `name`: of the checkpoint. It may be the newest: a load then takes the one before.

Blocks: on the drive; at most half a minute while a save begins or ends in the folder.
Threads: any.
Errors: MERON_E_ARGUMENT (an invalid name; it is no checkpoint, and stays), MERON_E_NOT_FOUND,
MERON_E_AUTH (the name is a symbolic link), MERON_E_STATE (a save of that name is pending, or a
process reads the checkpoint or has not released a meron_checkpoint of it; file systems without
locks, such as some over a network, cannot tell), MERON_E_PARSE, MERON_E_CORRUPT and
MERON_E_VERSION (its manifest cannot be read: remove it by hand), MERON_E_IO, MERON_E_TIMEOUT.
"""
@inline meron_checkpoint_remove(folder, name, err) = @blocking_ccall(
        functions.meron_checkpoint_remove, meron_status, (Ptr{UInt8}, Ptr{UInt8},
        Ptr{Ptr{meron_error}}), folder, name, err)

"""
    meron_checkpoint_get_info(out, checkpoint, err)

Reads the information about a checkpoint.

- `out`: struct_size set by the caller.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_checkpoint_get_info(out, checkpoint, err) = ccall(
        functions.meron_checkpoint_get_info, meron_status, (Ptr{meron_checkpoint_info},
        meron_checkpoint, Ptr{Ptr{meron_error}}), out, checkpoint, err)

"""
    meron_checkpoint_text(out, checkpoint, kind, err)

A text of a checkpoint.

- `out`: receives it.

Ownership: borrowed from the checkpoint.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_checkpoint_text(out, checkpoint, kind, err) = ccall(
        functions.meron_checkpoint_text, meron_status, (Ptr{Ptr{UInt8}}, meron_checkpoint,
        meron_checkpoint_text_kind, Ptr{Ptr{meron_error}}), out, checkpoint, kind, err)

"""
    meron_checkpoint_read(data, bytes, checkpoint, kind, name, begin_, count, err)

Reads elements of a tensor in the files' dtype, after a comparison of their checksums. Local: no
other rank takes part.

- `data`: receives `count` elements.

- `bytes`: of `data`: must be `count` times the size of an element of the tensor's dtype.

- `kind`: NULL: "values".

- `begin_`: first element, row-major.

Ownership: the caller owns `data`.
Blocks: on the drive.
Threads: any; one at a time reads.
Errors: MERON_E_NOT_FOUND (no such tensor, a file is gone), MERON_E_ARGUMENT (outside of the
tensor), MERON_E_CORRUPT, MERON_E_IO, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_checkpoint_read(data, bytes, checkpoint, kind, name, begin_, count, err) = @blocking_ccall(
        functions.meron_checkpoint_read, meron_status, (Ptr{Cvoid}, UInt64, meron_checkpoint,
        Ptr{UInt8}, Ptr{UInt8}, UInt64, UInt64, Ptr{Ptr{meron_error}}), data, bytes, checkpoint,
        kind, name, begin_, count, err)

"""
    meron_checkpoint_release(checkpoint, err)

Releases a checkpoint; loaded states stay.

Blocks: never.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_checkpoint_release(checkpoint, err) = ccall(
        functions.meron_checkpoint_release, meron_status, (meron_checkpoint,
        Ptr{Ptr{meron_error}}), checkpoint, err)

"""
    meron_checkpoint_export_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_checkpoint_export_options_init(options, struct_size, err) = ccall(
        functions.meron_checkpoint_export_options_init, meron_status,
        (Ptr{meron_checkpoint_export_options}, Csize_t, Ptr{Ptr{meron_error}}), options,
        struct_size, err)

"""
    meron_checkpoint_export(context, folder, options, err)

Writes the values of all units as Hugging Face publishes models: model.safetensors, or several
files and model.safetensors.index.json. Collective over the world; each rank writes its own
shard of each tensor in place, so nothing is gathered. If a param has an f32 master and its own
dtype is not the written one, the master is the source: MERON_F32 writes the masters. A tensor
that layers share is one param and written once. A unit whose params the mapping leaves out may
be in use. At every moment, also if a rank is killed, the folder has the former model or the new
one. Its other files are unchanged, and the next export removes the files of a killed one. NaNs
are written as they are.

- `folder`: a directory that all ranks see; created if it does not exist.

- `options`: NULL for the initial value.

Ownership: everything is only read, during the call.
Blocks: until a pending save has ended, on the drive and on all ranks, without a deadline; other
threads of this rank that begin an operation wait.
Threads: any.
Errors: MERON_E_ARGUMENT and MERON_E_PARSE (the mapping or a tensor, two tensors of one name,
nothing to export), MERON_E_DUPLICATE (a model exists), MERON_E_STATE (another export to the
folder is pending; and as meron_checkpoint_save_begin), MERON_E_UNSUPPORTED as that,
MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE, -3xx.
"""
@inline meron_checkpoint_export(context, folder, options, err) = @blocking_ccall(
        functions.meron_checkpoint_export, meron_status, (meron_context, Ptr{UInt8},
        Ptr{meron_checkpoint_export_options}, Ptr{Ptr{meron_error}}), context, folder, options,
        err)

"""
    meron_gather_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_gather_options_init(options, struct_size, err) = ccall(
        functions.meron_gather_options_init, meron_status, (Ptr{meron_gather_options}, Csize_t,
        Ptr{Ptr{meron_error}}), options, struct_size, err)

"""
    meron_gather_begin(out, units, count, options, err)

Begins a gather. Collective over the units' group; the mode may differ between ranks. When it
has ended, the tensors are full, those on a device too. A wait makes the requested copy, and may
end with MERON_E_NO_MEMORY (the device is full: only this rank is concerned, and everything else
stays usable) or MERON_E_DEVICE.

- `out`: receives the gather, which holds a lease on every unit.

- `units`: `count` units of one group.

- `options`: NULL for a view.

Ownership: the caller releases *out, which releases the leases; destinations must stay valid
until it has ended or is released. A release cancels a pending gather, and makes views invalid:
on a device the caller must first wait for all work that uses them (or see
meron_gather_release_on_stream).
Blocks: as meron_barrier_begin.
Threads: any.
Errors: MERON_E_ARGUMENT (also a destination on another device), MERON_E_DUPLICATE (a unit or a
flat twice; a param with a destination of its own and one of its flat), MERON_E_STATE (a unit is
being updated here, or a step is pending), MERON_E_NO_MEMORY (a copy), MERON_E_DEVICE,
MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, -3xx.
"""
@inline meron_gather_begin(out, units, count, options, err) = @blocking_ccall(
        functions.meron_gather_begin, meron_status, (Ptr{meron_future}, Ptr{meron_unit},
        Csize_t, Ptr{meron_gather_options}, Ptr{Ptr{meron_error}}), out, units, count, options,
        err)

"""
    meron_gather_wait_stream(gather, stream, timeout_ns, err)

Makes `stream` wait until the tensors are full on the device: later work on the stream sees
them. Does not wait for the device; for tensors on the host it is meron_future_wait.

- `stream`: of the context's device (a cudaStream_t); NULL: its default stream.

- `timeout_ns`: as meron_future_wait, of the wait for peers.

Blocks: on peers, at most the deadline.
Threads: any.
Errors: as of a wait for the gather; MERON_E_ARGUMENT (the context has no device, a stream of
another one), MERON_E_STATE (the stream is being captured into a graph).
"""
@inline meron_gather_wait_stream(gather, stream, timeout_ns, err) = @blocking_ccall(
        functions.meron_gather_wait_stream, meron_status, (meron_future, Ptr{Cvoid}, Int64,
        Ptr{Ptr{meron_error}}), gather, stream, timeout_ns, err)

"""
    meron_gather_view(out, gather, param, err)

The full tensor of a param of a gather that has ended. On a device, a call of meron_future_wait
or meron_gather_wait_stream must have waited for the gather, and the pointer is one of the
device.

Ownership: borrowed until meron_future_release. Read-only for MERON_GATHER_VIEW, because it is
the memory of the values, which other ranks may read. On the host it is mapped read-only under
every plan: a write ends the process by a segmentation fault. A device does not protect its
memory: a write there damages the values. Gather with MERON_GATHER_COPY or MERON_GATHER_INTO to
change values; the tensor is then in the copy, or in the destination of the param or of its
flat.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT (not in this gather), MERON_E_STATE (not full yet, or on a device and
no call has waited for it), MERON_E_DEVICE, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_gather_view(out, gather, param, err) = ccall(
        functions.meron_gather_view, meron_status, (Ptr{meron_view}, meron_future, meron_param,
        Ptr{Ptr{meron_error}}), out, gather, param, err)

"""
    meron_gather_dlpack(out, gather, param, err)

The same as a DLPack tensor (version 1.x; of the CPU or of a CUDA device), with a separate lease
that its deleter releases. Its flags are read-only for MERON_GATHER_VIEW; a consumer that
ignores them, as PyTorch does, must not write: see meron_gather_view. MERON_GATHER_INTO is an
error: that memory is the caller's. On a device it may be taken before a call has waited; work
that waits for the gather may read it.

Ownership: the caller calls (*out)->deleter(*out) once. Until then the memory stays readable,
also after the context was closed; peers may change the values from then on. On a device, work
that was requested before the deleter's call may still use the memory, on streams that have
waited for the gather (meron_gather_wait_stream): these must exist then, and must not be
captured into a graph.
Blocks: never.
Threads: any.
Errors: as meron_gather_view, MERON_E_UNSUPPORTED.
"""
@inline meron_gather_dlpack(out, gather, param, err) = ccall(
        functions.meron_gather_dlpack, meron_status, (Ptr{Ptr{DLManagedTensorVersioned}},
        meron_future, meron_param, Ptr{Ptr{meron_error}}), out, gather, param, err)

"""
    meron_gather_release_on_stream(gather, stream, err)

As meron_future_release, if queued work of `stream` still uses the views: their memory on the
device is released when that work is done. DLPack tensors keep theirs.

- `stream`: of the context's device; NULL: its default stream.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT and MERON_E_STATE as meron_gather_wait_stream (then nothing is
released), MERON_E_DEVICE, MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_gather_release_on_stream(gather, stream, err) = ccall(
        functions.meron_gather_release_on_stream, meron_status, (meron_future, Ptr{Cvoid},
        Ptr{Ptr{meron_error}}), gather, stream, err)

"""
    meron_io_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_io_options_init(options, struct_size, err) = ccall(
        functions.meron_io_options_init, meron_status, (Ptr{meron_io_options}, Csize_t,
        Ptr{Ptr{meron_error}}), options, struct_size, err)

"""
    meron_io_open(out, options, err)

Opens a queue to the kernel, with the threads that serve it.

- `options`: NULL for the defaults.

Ownership: the caller closes *out.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT (a value out of range), MERON_E_UNSUPPORTED (MERON_IO_BACKEND_URING if
the host forbids io_uring: the message names the cause), MERON_E_NO_MEMORY, MERON_E_FORKED.
"""
@inline meron_io_open(out, options, err) = ccall(
        functions.meron_io_open, meron_status, (Ptr{meron_io}, Ptr{meron_io_options},
        Ptr{Ptr{meron_error}}), out, options, err)

"""
    meron_io_read(io, path, data, bytes, offset, err)

Reads `bytes` bytes of a file from `offset` on, and waits for them. Offset, length and memory
need no alignment. Full pages bypass the page cache if the file system allows it and memory and
file have the same alignment, for example both at multiples of the page. The rest uses the page
cache.

- `path`: of a regular file or a block device, in the host's notation.

- `data`: `bytes` bytes of the caller's memory; may be NULL if `bytes` is 0.

- `offset`: in bytes from the beginning of the file.

Ownership: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still write to it,
until meron_io_wait or meron_io_close has returned.
Blocks: on the drive, until the options' timeout_ns has passed without any transfer, and on the
file system while the file is opened.
Threads: any; no pending request may write the same bytes.
Errors: MERON_E_NOT_FOUND, MERON_E_IO (the file is too short: the message has the file, the
offset, the requested bytes and the available ones; or the error of the drive), MERON_E_ARGUMENT
(no regular file), MERON_E_TIMEOUT, MERON_E_NO_MEMORY, MERON_E_CLOSED (meanwhile),
MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_io_read(io, path, data, bytes, offset, err) = @blocking_ccall(
        functions.meron_io_read, meron_status, (meron_io, Ptr{UInt8}, Ptr{Cvoid}, UInt64,
        UInt64, Ptr{Ptr{meron_error}}), io, path, data, bytes, offset, err)

"""
    meron_io_write(io, path, data, bytes, offset, err)

Writes `bytes` bytes to a file from `offset` on, and waits until the kernel has accepted them.
Creates the file if it does not exist, with mode 0666 less the umask. Other content of the file
stays, and the file is not truncated. Data that must survive a loss of power needs a sync by the
caller. A file that has to grow gets its disk space before anything is written.

- `path`: as meron_io_read.

- `data`: `bytes` bytes, only read; may be NULL if `bytes` is 0.

- `offset`: as meron_io_read; earlier bytes that were never written read as 0.

Ownership: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still read it, as
meron_io_read.
Blocks: as meron_io_read.
Threads: any; no pending request may read or write the same bytes.
Errors: as meron_io_read, MERON_E_NO_SPACE (a file that had to grow keeps its size),
MERON_E_NOT_FOUND if the directory does not exist.
"""
@inline meron_io_write(io, path, data, bytes, offset, err) = @blocking_ccall(
        functions.meron_io_write, meron_status, (meron_io, Ptr{UInt8}, Ptr{Cvoid}, UInt64,
        UInt64, Ptr{Ptr{meron_error}}), io, path, data, bytes, offset, err)

"""
    meron_io_read_begin(out, io, path, data, bytes, offset, err)

Begins a read. Requests begin in the order of the calls, run at the same time and end in any
order: wait for a request before you begin another that depends on it. A request is a future. A
wait for it ends also after the options' timeout_ns without any transfer (MERON_E_TIMEOUT: it is
still pending), with MERON_E_IO or MERON_E_NO_SPACE (both name file, offset and bytes;
meron_io_wait does not report them again), or with MERON_E_CLOSED (the io was closed before it
ended). A pending request continues after its release: its memory must stay valid, and
meron_io_wait or meron_io_close returns its result.

- `out`: receives the request.

- `path`: as meron_io_read.

- `data`: as meron_io_read.

- `offset`: as meron_io_read.

Ownership: the caller releases *out; the memory must stay until the request has ended (the
memory of a meron_io_buffer does so by itself).
Blocks: on the file system while the file is opened, never on the transfer.
Threads: any.
Errors: as meron_io_read; a wait returns the errors of the drive.
"""
@inline meron_io_read_begin(out, io, path, data, bytes, offset, err) = @blocking_ccall(
        functions.meron_io_read_begin, meron_status, (Ptr{meron_future}, meron_io, Ptr{UInt8},
        Ptr{Cvoid}, UInt64, UInt64, Ptr{Ptr{meron_error}}), out, io, path, data, bytes, offset,
        err)

"""
    meron_io_write_begin(out, io, path, data, bytes, offset, err)

Begins a write. This call creates the file and lets it grow.

- `out`: receives the request.

- `path`: as meron_io_write.

- `data`: as meron_io_write.

- `offset`: as meron_io_write.

Ownership: as meron_io_read_begin; the memory must not change until the request has ended.
Blocks: as meron_io_read_begin.
Threads: any.
Errors: as meron_io_write; a wait returns the errors of the drive.
"""
@inline meron_io_write_begin(out, io, path, data, bytes, offset, err) = @blocking_ccall(
        functions.meron_io_write_begin, meron_status, (Ptr{meron_future}, meron_io, Ptr{UInt8},
        Ptr{Cvoid}, UInt64, UInt64, Ptr{Ptr{meron_error}}), out, io, path, data, bytes, offset,
        err)

"""
    meron_io_wait(io, timeout_ns, err)

Waits for all requests that no call has waited for, also for those with a released handle.
Returns MERON_IN_PROGRESS if timeout_ns passed first; the requests continue.

- `timeout_ns`: nanoseconds; MERON_TIMEOUT_DEFAULT: as long as transfers progress; 0: only
polls.

Blocks: on the drive, until the options' timeout_ns has passed without any transfer.
Threads: any.
Errors: after all have ended, their first error, which names its file and the number of other
failures; MERON_E_TIMEOUT: no transfer progresses, and they are still pending; MERON_E_HANDLE,
MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_io_wait(io, timeout_ns, err) = @blocking_ccall(
        functions.meron_io_wait, meron_status, (meron_io, Int64, Ptr{Ptr{meron_error}}), io,
        timeout_ns, err)

"""
    meron_io_get_info(out, io, err)

Reads the information about an io.

- `out`: struct_size set by the caller.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_io_get_info(out, io, err) = ccall(
        functions.meron_io_get_info, meron_status, (Ptr{meron_io_info}, meron_io,
        Ptr{Ptr{meron_error}}), out, io, err)

"""
    meron_io_describe(out, io, err)

Describes the speed for people, one line per fact: the backend and the kernel's grants, the
reason if it is not a faster one, and the files that use the page cache with the reason.

Ownership: the caller frees *out with meron_string_free.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_NO_MEMORY, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_io_describe(out, io, err) = ccall(
        functions.meron_io_describe, meron_status, (Ptr{Ptr{UInt8}}, meron_io,
        Ptr{Ptr{meron_error}}), out, io, err)

"""
    meron_io_close(io, err)

Closes the io after pending requests have ended; its handle is stale at once. Requests and
buffers stay until they are released.

Ownership: memory of requests is the caller's again, unless this returns MERON_E_CLOSED or
MERON_E_TIMEOUT: a drive has not returned some of it and may still use it.
Blocks: on the drive, at most 5 s, or 10 s if it does not answer at all.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, and, although the io is closed, the first
error of requests that no call has waited for.
"""
@inline meron_io_close(io, err) = @blocking_ccall(
        functions.meron_io_close, meron_status, (meron_io, Ptr{Ptr{meron_error}}), io, err)

"""
    meron_io_buffer_create(out, io, bytes, err)

Allocates pinned memory of `bytes` bytes, which read as 0. Reads and writes are fastest with it,
although they accept any memory.

Ownership: the caller releases *out.
Blocks: until the host has allocated the memory.
Threads: any.
Errors: MERON_E_ARGUMENT (no bytes), MERON_E_NO_MEMORY (the host, its cgroup or a limit),
MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED. If the kernel does not register it, it works
unregistered (meron_io_describe has the reason).
"""
@inline meron_io_buffer_create(out, io, bytes, err) = @blocking_ccall(
        functions.meron_io_buffer_create, meron_status, (Ptr{meron_io_buffer}, meron_io, UInt64,
        Ptr{Ptr{meron_error}}), out, io, bytes, err)

"""
    meron_io_buffer_get_info(out, buffer, err)

Address and size of a buffer.

- `out`: struct_size set by the caller.

Ownership: the memory is borrowed until meron_io_buffer_release.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_io_buffer_get_info(out, buffer, err) = ccall(
        functions.meron_io_buffer_get_info, meron_status, (Ptr{meron_io_buffer_info},
        meron_io_buffer, Ptr{Ptr{meron_error}}), out, buffer, err)

"""
    meron_io_buffer_release(buffer, err)

Releases a buffer. Its memory is freed after the last request that uses it has ended and a call
has waited for that request. The buffer outlives its io if that is closed first.

Blocks: never on the drive.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_io_buffer_release(buffer, err) = ccall(
        functions.meron_io_buffer_release, meron_status, (meron_io_buffer,
        Ptr{Ptr{meron_error}}), buffer, err)

"""
    meron_gradient_view(out, param, flags, err)

The memory in this rank's bucket for the gradient of `param`, writable, in memory of the host:
the trainer adds to it. Under a plan that shards gradients it is zero at the start of each
micro-batch. Under one that keeps them full it is zero at the start of an accumulation, and
later has the sum of the micro-batches so far: always add then. Its dtype is the plan's gradient
dtype. With "auto", the default, that is the param's own; full gradients of a 16-bit param are
f32 from the second micro-batch on.

- `flags`: 0, or MERON_GRADIENT_OVERWRITE if the view would be zero: it is not cleared, and may
have old values. The first call for the param in a micro-batch counts.

Ownership: borrowed until meron_reduce_begin of the unit.
Blocks: on peers that still read the bucket's last contents, at most the deadline. The unit's
first gradient allocates the memory of gradients, which meron_unit_create has only counted.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_STATE (frozen, not in a unit, the gradient is reduced and not
used, or all buckets are being filled), MERON_E_UNSUPPORTED (the gradient is summed on the
device: pass sources to meron_reduce_begin), MERON_E_NO_MEMORY (nothing has changed: the call
may be made again), MERON_E_HANDLE, MERON_E_STALE, MERON_E_CANCELLED (no bucket is taken), -3xx,
also of another group if its reduction keeps the buckets.
"""
@inline meron_gradient_view(out, param, flags, err) = @blocking_ccall(
        functions.meron_gradient_view, meron_status, (Ptr{meron_view}, meron_param, UInt64,
        Ptr{Ptr{meron_error}}), out, param, flags, err)

"""
    meron_reduce_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_reduce_options_init(options, struct_size, err) = ccall(
        functions.meron_reduce_options_init, meron_status, (Ptr{meron_reduce_options}, Csize_t,
        Ptr{Ptr{meron_error}}), options, struct_size, err)

"""
    meron_reduce_begin(out, unit, sources, count, options, err)

Begins the reduction of a unit's gradients of one micro-batch. Collective over the unit's group.
Under a plan that keeps full gradients, a call with boundary 0 only accumulates: no
communication.

- `out`: receives the future. NULL: no wait for this reduction alone. It progresses in every
wait of this rank, the unit's next gradient waits for it, and its failure breaks the group.
Before a step, call meron_reduce_wait.

- `sources`: NULL: the bucket was filled through meron_gradient_view. Else `count` gradients;
params without one count as zero.

- `options`: NULL for a mean at the boundary.

Ownership: the caller releases *out; sources on the host are read during the call, those on the
device until the reduction has ended: do not change these before a wait for the future, or
meron_reduce_wait, has returned.
Blocks: as meron_barrier_begin; from another state than filling, also as meron_gradient_view; if
a device has the codec's feedback, also while a save copies states.
Threads: any.
Errors: MERON_E_ARGUMENT (a wrong count, a param of another unit, a source on another device),
MERON_E_DEVICE, MERON_E_DUPLICATE, MERON_E_STATE (reduced already and not used, or all params
frozen), MERON_E_HANDLE, MERON_E_STALE, -3xx; and as meron_gradient_view.
"""
@inline meron_reduce_begin(out, unit, sources, count, options, err) = @blocking_ccall(
        functions.meron_reduce_begin, meron_status, (Ptr{meron_future}, meron_unit,
        Ptr{meron_source}, Csize_t, Ptr{meron_reduce_options}, Ptr{Ptr{meron_error}}), out,
        unit, sources, count, options, err)

"""
    meron_reduce_wait(units, count, timeout_ns, err)

Waits until the last reduction and the last end of an accumulation of each unit have ended, also
those without a future. One call for many units. Returns MERON_IN_PROGRESS if timeout_ns passed
first; all operations continue.

- `units`: `count` units, also of several groups; a unit with no reduction counts as done.

- `timeout_ns`: of the whole call; as in meron_future_wait.

Blocks: as meron_future_wait.
Threads: any.
Errors: as meron_future_wait; MERON_E_ARGUMENT (no unit), MERON_E_HANDLE (units of several
contexts).
"""
@inline meron_reduce_wait(units, count, timeout_ns, err) = @blocking_ccall(
        functions.meron_reduce_wait, meron_status, (Ptr{meron_unit}, Csize_t, Int64,
        Ptr{Ptr{meron_error}}), units, count, timeout_ns, err)

"""
    meron_reduced_view(out, param, err)

The reduced gradient of the shard of `param` that this rank updates, f32, writable, in memory of
the host: a sum on the device is copied there, and back by a step. It is for trainers with their
own optimizer, or for changes: a step of Meron's optimizer computes norm, clipping and its test
for NaN and infinity from the current content.

Ownership: borrowed until the next gradient of the unit is begun, a step, or
meron_reduce_discard.
Blocks: only while another thread of this rank begins an operation, and while a device copies
the sum.
Threads: any.
Errors: MERON_E_STATE (no boundary reduction has ended), MERON_E_DEVICE, MERON_E_ARGUMENT,
MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_reduced_view(out, param, err) = @blocking_ccall(
        functions.meron_reduced_view, meron_status, (Ptr{meron_view}, meron_param,
        Ptr{Ptr{meron_error}}), out, param, err)

"""
    meron_reduced_dlpack(out, param, err)

The same as a DLPack tensor (version 1.x, of the CPU): one dimension, the param's shard_count
elements of f32, writable. The gradient is lent until its deleter is called: until then a step,
meron_reduce_consume, meron_reduce_discard and meron_unit_destroy of the unit return
MERON_E_STATE.

Ownership: the caller calls (*out)->deleter(*out) once, on any thread; until then the memory
stays valid, also after the context was closed.
Blocks: as meron_reduced_view; the deleter never.
Threads: any.
Errors: as meron_reduced_view; MERON_E_STATE also while a step uses the gradient.
"""
@inline meron_reduced_dlpack(out, param, err) = @blocking_ccall(
        functions.meron_reduced_dlpack, meron_status, (Ptr{Ptr{DLManagedTensorVersioned}},
        meron_param, Ptr{Ptr{meron_error}}), out, param, err)

"""
    meron_gradient_clip(out, units, count, max_norm, err)

Computes the global 2-norm of the reduced gradients of some units, and scales them to at most
`max_norm`, for an optimizer of the trainer's own: as torch.nn.utils.clip_grad_norm_. The norm
is exact, so that it has the same bits for every number of ranks and every plan. Norm and scaled
gradients have the bits with which a step of Meron's optimizer with `max_norm` works. Collective
over the units' group, with equal units and max_norm.

- `out`: receives the norm before scaling, equal on all ranks.

- `units`: `count` units of one group, each with a reduced gradient. Units whose params are all
frozen are passed over.

- `max_norm`: gradients are multiplied, in f32, by max_norm / (norm + 1e-6) if that is below 1;
0: they are only measured.

Ownership: none. Views of meron_reduced_view stay valid, and must not be written meanwhile;
until the call has ended, a new one is MERON_E_STATE. On a device, gradients travel to the host:
see meron_reduced_view.
Blocks: until every rank has called it, at most the deadline.
Threads: any.
Errors: MERON_E_NONFINITE on all ranks (a gradient is NaN or infinite: the message has param,
element and rank, of a gradient on a device unit and rank; no gradient is changed, so
meron_reduce_discard them), MERON_E_ARGUMENT (no unit, no unit that trains, a negative or
infinite max_norm), MERON_E_DUPLICATE (a unit twice), MERON_E_STATE (names the unit that is not
reduced, or is in use by a step), MERON_E_CANCELLED (should_stop: the gradients are scaled once
all peers have called it), MERON_E_NO_MEMORY (the call may be made again), MERON_E_DEVICE,
MERON_E_MISMATCH, MERON_E_HANDLE, MERON_E_STALE, -3xx.
"""
@inline meron_gradient_clip(out, units, count, max_norm, err) = @blocking_ccall(
        functions.meron_gradient_clip, meron_status, (Ptr{Float64}, Ptr{meron_unit}, Csize_t,
        Float64, Ptr{Ptr{meron_error}}), out, units, count, max_norm, err)

"""
    meron_reduce_finish_begin(out, unit, options, err)

Ends an accumulation without another micro-batch: all of them had boundary 0, and the result has
the same bits as if the last one had boundary 1. Under a plan that shards gradients, no bytes
move and the sum is scaled; under a plan that keeps full gradients, the accumulated gradient is
reduced. A rank without a gradient contributes zeros. Collective over the unit's group.

- `out`: receives the future; NULL as in meron_reduce_begin. When it has ended, the gradient is
reduced.

- `options`: op and divisor; boundary must be 1. NULL for a mean.

Ownership: the caller releases *out.
Blocks: as meron_barrier_begin; if the end moves gradients, also as meron_reduce_begin.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_STATE (the gradient is written but not passed to
meron_reduce_begin, or reduced and not used, or all params are frozen), MERON_E_NO_MEMORY (as
meron_gradient_view), MERON_E_HANDLE, MERON_E_STALE, -3xx.
"""
@inline meron_reduce_finish_begin(out, unit, options, err) = @blocking_ccall(
        functions.meron_reduce_finish_begin, meron_status, (Ptr{meron_future}, meron_unit,
        Ptr{meron_reduce_options}, Ptr{Ptr{meron_error}}), out, unit, options, err)

"""
    meron_reduce_consume(unit, err)

Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If the
codec has feedback, the next gradient makes up for what was lost of this one.

Blocks: only while another thread of this rank begins an operation.
Threads: any.
Errors: MERON_E_STATE (there is none, or a reduction or step is pending), MERON_E_HANDLE,
MERON_E_STALE.
"""
@inline meron_reduce_consume(unit, err) = @blocking_ccall(
        functions.meron_reduce_consume, meron_status, (meron_unit, Ptr{Ptr{meron_error}}), unit,
        err)

"""
    meron_reduce_discard(unit, err)

Throws the reduced gradient of a unit away, or before the accumulation boundary the
accumulation: then all ranks of the group must do the same. The codec's feedback, which is of
this gradient, is thrown away too. Call meron_reduce_consume instead if an optimizer has used
the gradient.

Blocks: while another thread of this rank begins an operation and, if there is feedback, while a
save copies it.
Threads: any.
Errors: MERON_E_STATE (there is neither, or a reduction or step is pending), MERON_E_HANDLE,
MERON_E_STALE.
"""
@inline meron_reduce_discard(unit, err) = @blocking_ccall(
        functions.meron_reduce_discard, meron_status, (meron_unit, Ptr{Ptr{meron_error}}), unit,
        err)

"""
    meron_reduce_scale_feedback(unit, factor, err)

Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it if a
loss scale changes that is not a part of options.divisor, with the new scale divided by the old
one. Does nothing if the plan has no feedback.

- `factor`: of the next gradients to those before, 0 or more; 0 drops the feedback.

Blocks: while another thread of this rank begins an operation and, if there is feedback, while a
save copies it.
Threads: any.
Errors: MERON_E_ARGUMENT (the factor), MERON_E_STATE (a reduction is pending), MERON_E_HANDLE,
MERON_E_STALE.
"""
@inline meron_reduce_scale_feedback(unit, factor, err) = @blocking_ccall(
        functions.meron_reduce_scale_feedback, meron_status, (meron_unit, Float64,
        Ptr{Ptr{meron_error}}), unit, factor, err)

"""
    meron_schedule_options_init(options, struct_size, err)

Fills the first `struct_size` bytes of *options with the initial value (for languages without
macros).

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT.
"""
@inline meron_schedule_options_init(options, struct_size, err) = ccall(
        functions.meron_schedule_options_init, meron_status, (Ptr{meron_schedule_options},
        Csize_t, Ptr{Ptr{meron_error}}), options, struct_size, err)

"""
    meron_schedule_create(out, units, count, options, err)

Creates a schedule of some units. Later calls use a unit by its index. Collective over the
units' group: units and options are equal on all ranks.

- `out`: receives the schedule.

- `units`: `count` units of one group, at least one.

- `options`: NULL for the defaults.

Ownership: the caller releases *out; a stream in the options must live as long as the schedule.
Blocks: as meron_barrier_begin.
Threads: any.
Errors: MERON_E_ARGUMENT (also options that were not initialized, and a stream of another
device), MERON_E_DUPLICATE (a unit twice), MERON_E_HANDLE, MERON_E_STALE, -3xx.
"""
@inline meron_schedule_create(out, units, count, options, err) = @blocking_ccall(
        functions.meron_schedule_create, meron_status, (Ptr{meron_schedule}, Ptr{meron_unit},
        Csize_t, Ptr{meron_schedule_options}, Ptr{Ptr{meron_error}}), out, units, count,
        options, err)

"""
    meron_schedule_start_pass(schedule, kind, err)

Starts a pass. The uses of the previous pass become the recorded order of its kind, unless there
were none. Releases prefetched units that were not used, and units that were kept for a use that
the new pass does not have soon. Local: it begins no gather.

- `kind`: below MERON_SCHEDULE_KINDS; for example 0 for training and 1 for evaluation.

Blocks: only while another thread of this rank begins an operation.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_STATE (names the units that are entered), MERON_E_HANDLE,
MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_schedule_start_pass(schedule, kind, err) = @blocking_ccall(
        functions.meron_schedule_start_pass, meron_status, (meron_schedule, UInt32,
        Ptr{Ptr{meron_error}}), schedule, kind, err)

"""
    meron_schedule_enter(schedule, index, timeout_ns, err)

Enters a unit. It stays full until it is left as often as it was entered. Begins its gather, or
uses the prefetched one, prefetches the next units of the recorded order, and waits: if views
are on the device, for peers only, and the schedule's stream waits for the rest. Collective over
the units' group if the unit is not full already. Before the first meron_schedule_start_pass,
and after meron_schedule_reset, uses are not recorded and no gather is prefetched.

- `index`: of the unit in meron_schedule_create.

- `timeout_ns`: as meron_future_wait. After MERON_IN_PROGRESS or an error the unit is not
entered; its gather continues, and the next enter of the unit continues the same use.

Blocks: on peers if the unit is not full, at most the deadline from the first call for this use.
Threads: any, one at a time.
Errors: MERON_E_ARGUMENT, MERON_E_STATE (this rank updates the unit, or one to prefetch; or
another thread has reset or released the schedule meanwhile), MERON_E_HANDLE, MERON_E_STALE,
MERON_E_FORKED; and as meron_future_wait, also from a prefetched gather.
"""
@inline meron_schedule_enter(schedule, index, timeout_ns, err) = @blocking_ccall(
        functions.meron_schedule_enter, meron_status, (meron_schedule, Csize_t, Int64,
        Ptr{Ptr{meron_error}}), schedule, index, timeout_ns, err)

"""
    meron_schedule_leave(schedule, index, err)

Leaves a unit once. After as many leaves as enters its views are invalid, and the unit is
released, unless the options keep it full. Local, but in the same position among the enters on
all ranks: it begins no gather; the next enter does.

Blocks: only while another thread of this rank begins an operation.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_STATE (it is not entered), MERON_E_HANDLE, MERON_E_STALE,
MERON_E_FORKED.
"""
@inline meron_schedule_leave(schedule, index, err) = @blocking_ccall(
        functions.meron_schedule_leave, meron_status, (meron_schedule, Csize_t,
        Ptr{Ptr{meron_error}}), schedule, index, err)

"""
    meron_schedule_view(out, schedule, param, err)

The full tensor of a param of an entered unit. If views are on the device, it is for work of the
schedule's stream.

Ownership: borrowed until the unit is left; read-only, as of meron_gather_view.
Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT (the schedule does not have its unit), MERON_E_STATE (the unit is not
entered), MERON_E_HANDLE, MERON_E_STALE.
"""
@inline meron_schedule_view(out, schedule, param, err) = ccall(
        functions.meron_schedule_view, meron_status, (Ptr{meron_view}, meron_schedule,
        meron_param, Ptr{Ptr{meron_error}}), out, schedule, param, err)

"""
    meron_schedule_drop(schedule, err)

Releases all units that stay full or were prefetched. Call it before an update, an optimizer
step, a save or a load, which need all leases released. The pass and the recorded orders stay.
Local.

Blocks: only while another thread of this rank begins an operation.
Threads: any.
Errors: MERON_E_STATE (names the units that are entered), MERON_E_HANDLE, MERON_E_STALE,
MERON_E_FORKED.
"""
@inline meron_schedule_drop(schedule, err) = @blocking_ccall(
        functions.meron_schedule_drop, meron_status, (meron_schedule, Ptr{Ptr{meron_error}}),
        schedule, err)

"""
    meron_schedule_reset(schedule, err)

Drops all uses and the pass, and releases all units. Call it after an exception in the trainer.
The recorded orders stay. Local.

Blocks: only while another thread of this rank begins an operation.
Threads: any.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_schedule_reset(schedule, err) = @blocking_ccall(
        functions.meron_schedule_reset, meron_status, (meron_schedule, Ptr{Ptr{meron_error}}),
        schedule, err)

"""
    meron_schedule_get_info(out, schedule, err)

Reads the information about a schedule.

- `out`: struct_size set by the caller.

Blocks: never.
Threads: any.
Errors: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_schedule_get_info(out, schedule, err) = ccall(
        functions.meron_schedule_get_info, meron_status, (Ptr{meron_schedule_info},
        meron_schedule, Ptr{Ptr{meron_error}}), out, schedule, err)

"""
    meron_schedule_release(schedule, err)

Releases the schedule and all units that it holds; its views become invalid.

Blocks: never.
Threads: any, also a finalizer's.
Errors: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
"""
@inline meron_schedule_release(schedule, err) = ccall(
        functions.meron_schedule_release, meron_status, (meron_schedule, Ptr{Ptr{meron_error}}),
        schedule, err)

end # module
