// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.

use std::marker::{PhantomData, PhantomPinned};
use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::ptr;

/// `0` of the header.
pub const MERON_VERSION_MAJOR: u32 = 0;

/// `2` of the header.
pub const MERON_VERSION_MINOR: u32 = 2;

/// `0` of the header.
pub const MERON_VERSION_PATCH: u32 = 0;

/// The version of these headers as one number, comparable: (major \<\< 16) | (minor \<\< 8) |
/// patch.
pub const MERON_VERSION: u32 = 512;

/// No rank, no peer: the value of a rank field that names no rank.
pub const MERON_RANK_NONE: i32 = -1;

/// The only negative timeout: leaves the bound to the context's deadline
/// (meron_context_options).
pub const MERON_TIMEOUT_DEFAULT: i32 = -1;

/// Status of a call. 0 is success. A positive value is not an error ("not yet"). Negative
/// values are errors, grouped by their cause:
/// \-1xx the call: its arguments, its handles, or its place in the order of calls;
/// \-2xx a resource of this process or host: memory, a file, a drive, a device;
/// \-3xx another rank, or its lateness;
/// \-4xx the whole context is unusable.
///
/// The class does not tell if the group is broken: call meron_group_status. A broken group
/// gives every further call, on every rank, the code that broke it, and says since when.
/// After an error of -1xx or -2xx nothing was changed, and the group works. It breaks if the
/// ranks have begun something together that this rank cannot end: it lacks memory for a unit
/// or an optimizer, or a drive, a device or memory fails it in a step, an update, a reduction
/// or a gather (but see meron_gather_begin). After an error of -3xx the group is broken,
/// unless other ranks have no part in it: it is one of meron_context_open, of a function
/// without a context, of a drive or folder that does not answer (MERON_E_TIMEOUT), or of a
/// checkpoint's files (MERON_E_AUTH, MERON_E_VERSION).
pub type meron_status = i32;
/// A value of meron_status.
pub const MERON_OK: meron_status = 0;
/// A value of meron_status.
pub const MERON_IN_PROGRESS: meron_status = 1;
/// A null pointer, a wrong size, an unknown enum value
pub const MERON_E_ARGUMENT: meron_status = -100;
/// A null handle, of another kind, or of another context
pub const MERON_E_HANDLE: meron_status = -101;
/// A handle whose object was released or closed
pub const MERON_E_STALE: meron_status = -102;
/// The call is valid, but not in the object's present state
pub const MERON_E_STATE: meron_status = -103;
/// A name or an object given twice
pub const MERON_E_DUPLICATE: meron_status = -104;
/// Valid, but this build or this plan does not offer it
pub const MERON_E_UNSUPPORTED: meron_status = -105;
/// Text that does not parse; the message has line and key
pub const MERON_E_PARSE: meron_status = -106;
/// Gradients hold NaN or infinity, or a step makes a value infinite
pub const MERON_E_NONFINITE: meron_status = -107;
/// should_stop ended a wait, or a rank cancelled the save
pub const MERON_E_CANCELLED: meron_status = -108;
/// No memory, or the context's limit is reached; the message has the figures
pub const MERON_E_NO_MEMORY: meron_status = -200;
/// A file, a socket or a mapping failed
pub const MERON_E_IO: meron_status = -201;
/// A file or a key does not exist
pub const MERON_E_NOT_FOUND: meron_status = -202;
/// A drive returned other bytes than were written: the message says where
pub const MERON_E_CORRUPT: meron_status = -203;
/// A drive is full; the message has need and free bytes
pub const MERON_E_NO_SPACE: meron_status = -204;
/// A device has failed: this process cannot use it any more
pub const MERON_E_DEVICE: meron_status = -205;
/// A deadline passed: the message says who has not arrived
pub const MERON_E_TIMEOUT: meron_status = -300;
/// A rank's process is gone: the error's peer
pub const MERON_E_PEER_DEAD: meron_status = -301;
/// A rank, the error's peer, closed its context too early
pub const MERON_E_PEER_CLOSED: meron_status = -302;
/// Ranks made different calls: the message has both
pub const MERON_E_MISMATCH: meron_status = -303;
/// A rank called meron_group_abort, or cancelled an update
pub const MERON_E_ABORTED: meron_status = -304;
/// A wrong token, a peer of another user, or a link in a checkpoint
pub const MERON_E_AUTH: meron_status = -305;
/// A rank, the caller's headers or a file are of another version
pub const MERON_E_VERSION: meron_status = -306;
/// This process is a fork of the one that opened the context
pub const MERON_E_FORKED: meron_status = -400;
/// Closed by another thread during the call; then MERON_E_STALE
pub const MERON_E_CLOSED: meron_status = -401;
/// A defect of Meron: please report it
pub const MERON_E_INTERNAL: meron_status = -402;

/// Element types. Sizes in bytes: 4, 2, 2, 8, 8.
pub type meron_dtype = i32;
/// A value of meron_dtype.
pub const MERON_F32: meron_dtype = 0;
/// A value of meron_dtype.
pub const MERON_BF16: meron_dtype = 1;
/// A value of meron_dtype.
pub const MERON_F16: meron_dtype = 2;
/// Of meron_all_reduce_begin alone, as the next one
pub const MERON_F64: meron_dtype = 3;
/// A value of meron_dtype.
pub const MERON_I64: meron_dtype = 4;

/// The error object: the caller who receives it owns it, and frees it by meron_error_free.
/// Functions that can fail take an optional `meron_error **` last. A failure sets \*err to a
/// new object (NULL without memory for one), whatever it held: free an earlier one first. A
/// success leaves it alone. A failure leaves what the call would return (\*out) alone.
#[repr(C)]
#[derive(Debug)]
pub struct meron_error {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A pending operation. A value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_future {
    /// 0 is null.
    pub id: u64,
}

/// A plan. A value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_plan {
    /// 0 is null.
    pub id: u64,
}

/// Workload of a step, for a prediction.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_workload {
    /// sizeof(meron_workload)
    pub struct_size: u32,
    /// World size, at least 1
    pub ranks: u32,
    /// Per optimizer step; default 1
    pub micro_batches: u32,
    /// Of every unit; default 2: forward and backward
    pub gathers_per_micro_batch: u32,
    /// Consecutive ranks that share memory; 0: all of them
    pub ranks_per_node: u32,
    /// Of the rule per element; default 2: AdamW
    pub optimizer_states: u32,
    /// Must be 0
    pub reserved_0: u32,
}

/// Initial value of a [`meron_workload`].
pub const MERON_WORKLOAD_INIT: meron_workload = meron_workload {
    struct_size: size_of::<meron_workload>() as u32,
    ranks: 1,
    micro_batches: 1,
    gathers_per_micro_batch: 2,
    ranks_per_node: 0,
    optimizer_states: 2,
    reserved_0: 0,
};

/// Starts to send `bytes` bytes at `data` to rank `peer`. They stay in place and unchanged
/// until the request is done or cancelled. Stores a number of the transport's choice in
/// \*request, which identifies the request from then on, and returns MERON_OK. Returns
/// MERON_IN_PROGRESS if it cannot accept the message now: Meron will call it again. `bytes`
/// may be 0.
pub type meron_send_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, request: *mut u64, peer: i32, tag: u64, data: *const c_void, bytes: u64) -> meron_status>;

/// Starts to receive a message of at most `bytes` bytes from rank `peer` into `data`.
/// Otherwise as meron_send_fn.
pub type meron_receive_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, request: *mut u64, peer: i32, tag: u64, data: *mut c_void, bytes: u64) -> meron_status>;

/// Tests if a request is done: MERON_OK, with the size of the message in \*bytes, or
/// MERON_IN_PROGRESS. A request that is done, or failed, is not tested again. The transport
/// may also make progress here.
pub type meron_test_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, request: u64, bytes: *mut u64) -> meron_status>;

/// Cancels a request. After the return its memory is not touched.
pub type meron_cancel_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, request: u64)>;

/// Returns when a message may have progressed, or after `timeout_ns` nanoseconds. Only this
/// function may block, and at most for that time.
pub type meron_idle_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, timeout_ns: i64)>;

/// Returns 0 only if rank `peer` is known to be dead.
pub type meron_alive_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, peer: i32) -> i32>;

/// The last call of the table: no other function is called after it. Called once, by the call
/// that closes the context.
pub type meron_closed_fn =
    Option<unsafe extern "C" fn(user: *mut c_void)>;

/// The caller's transport. Read when the context is opened; `user` must outlive the context.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_transport {
    /// sizeof(meron_transport)
    pub struct_size: u32,
    /// Must be 0
    pub reserved_0: u32,
    /// For messages; NULL: "custom"
    pub name: *const c_char,
    /// Passed to every function
    pub user: *mut c_void,
    /// Maximal bytes of a message, at least 4096; 0: no limit
    pub max_message: u64,
    /// See the struct.
    pub send: meron_send_fn,
    /// See the struct.
    pub receive: meron_receive_fn,
    /// See the struct.
    pub test: meron_test_fn,
    /// See the struct.
    pub cancel: meron_cancel_fn,
    /// NULL: Meron sleeps for up to a millisecond between tests
    pub idle: meron_idle_fn,
    /// NULL: a peer is dead if send, receive or test fails
    pub alive: meron_alive_fn,
    /// NULL: no notification
    pub closed: meron_closed_fn,
}

/// Initial value of a [`meron_transport`].
pub const MERON_TRANSPORT_INIT: meron_transport = meron_transport {
    struct_size: size_of::<meron_transport>() as u32,
    reserved_0: 0,
    name: ptr::null(),
    user: ptr::null_mut(),
    max_message: 0,
    send: None,
    receive: None,
    test: None,
    cancel: None,
    idle: None,
    alive: None,
    closed: None,
};

/// A context. A value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_context {
    /// 0 is null.
    pub id: u64,
}

/// Levels of a log message.
pub type meron_log_level = i32;
/// A value of meron_log_level.
pub const MERON_LOG_ERROR: meron_log_level = 0;
/// A value of meron_log_level.
pub const MERON_LOG_WARNING: meron_log_level = 1;
/// A value of meron_log_level.
pub const MERON_LOG_INFO: meron_log_level = 2;

/// Receives log messages: formatted, `length` bytes, NUL-terminated, valid until the callback
/// returns. May be called from any thread that is inside a call of this library. It may only
/// look and release: see the rule of callbacks in meron/meron.h. `user` is used until
/// meron_context_close has returned.
pub type meron_log_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, level: meron_log_level, message: *const c_char, length: usize)>;

/// Called about ten times a second while a call waits. A non-zero result ends the wait with
/// MERON_E_CANCELLED: nothing was begun, or the operation continues. It may only look and
/// release: see the rule of callbacks in meron/meron.h. `user` is used until
/// meron_context_close has returned.
pub type meron_should_stop_fn =
    Option<unsafe extern "C" fn(user: *mut c_void) -> i32>;

/// Allocates memory of a device: `bytes` bytes aligned to 256, for later work on `stream`.
/// NULL: there is none. Like meron_device_release_fn, it may be called by any thread that is
/// inside a call of this library. It may only look and release: see the rule of callbacks in
/// meron/meron.h. It must not wait for work of the device.
pub type meron_device_allocate_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, bytes: u64, stream: *mut c_void) -> *mut c_void>;

/// Frees such memory: queued work of `stream` may still use it. Memory that a finalizer
/// releases is freed at the next call on the context.
pub type meron_device_release_fn =
    Option<unsafe extern "C" fn(user: *mut c_void, data: *mut c_void, bytes: u64, stream: *mut c_void)>;

/// The trainer's own allocator of device memory, a framework's cache for example.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_allocator {
    /// sizeof(meron_allocator)
    pub struct_size: u32,
    /// Must be 0
    pub reserved_0: u32,
    /// See the struct.
    pub allocate: meron_device_allocate_fn,
    /// See the struct.
    pub release: meron_device_release_fn,
    /// See the struct.
    pub user: *mut c_void,
}

/// Initial value of a [`meron_allocator`].
pub const MERON_ALLOCATOR_INIT: meron_allocator = meron_allocator {
    struct_size: size_of::<meron_allocator>() as u32,
    reserved_0: 0,
    allocate: None,
    release: None,
    user: ptr::null_mut(),
};

/// Options of a context. Fill by meron_context_options_init or MERON_CONTEXT_OPTIONS_INIT.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_context_options {
    /// sizeof(meron_context_options)
    pub struct_size: u32,
    /// MERON_VERSION of the caller's headers
    pub header_version: u32,
    /// \-1: from the environment (meron run, torchrun, Slurm, Open MPI, PMI)
    pub rank: i32,
    /// \-1: from the environment; without one: 1
    pub world_size: i32,
    /// "self", "local", "shm", "mpi", "custom", "cluster"; NULL or "auto": custom if that is
    /// given, self for one rank, mpi under mpirun if neither a token nor MERON_STORE is given,
    /// else shm. "cluster": ranks of a node share memory, and `custom` connects the nodes; "mpi":
    /// MPI connects them
    pub transport: *const c_char,
    /// Local: ranks of one process with an equal job meet; NULL: "default". In a directory
    /// MERON_STORE: the job's name among others'; NULL: MERON_JOB, or the launcher's name
    pub job: *const c_char,
    /// Shm: 64 hexadecimal digits, the same on all ranks; NULL: from the descriptor
    /// MERON_TOKEN_FD or from the variable MERON_TOKEN; if there is none, ranks meet in the
    /// directory that the variable MERON_STORE names
    pub token: *const c_char,
    /// Deadline of every operation (see future.h); 0 or -1: 600 s
    pub timeout_ns: i64,
    /// Bytes that this rank may allocate; 0: only the host's limit
    pub host_memory_limit: u64,
    /// Bytes of address space, twice per window; 0: the host's memory
    pub arena_reserve: u64,
    /// For compute on this rank; 0: cores / ranks on this host
    pub threads: u32,
    /// Must be 0
    pub reserved_0: u32,
    /// Null: "zero3"
    pub plan: meron_plan,
    /// NULL: warnings and errors go to stderr
    pub log: meron_log_fn,
    /// See the struct.
    pub log_user: *mut c_void,
    /// NULL: waits end by completion or deadline only
    pub should_stop: meron_should_stop_fn,
    /// See the struct.
    pub should_stop_user: *mut c_void,
    /// Transport "custom" and "cluster"; read while the context opens; else NULL
    pub custom: *const meron_transport,
    /// That this rank computes on: "cuda" (the calling thread's current one), "cuda:1";
    /// "emulated": memory of the host and threads, for tests without a device. NULL or "": the
    /// host. Views of gathers, and of schedules that ask for it, are then in the device's memory,
    /// and meron_source.data may be. All other views stay in the host's: of gradients, updates
    /// and states
    pub device: *const c_char,
    /// Of the device's memory; read while the context opens, its `user` is used until the context
    /// and all its objects are gone; NULL: a pool of Meron's own
    pub allocator: *const meron_allocator,
}

/// Initial value of a [`meron_context_options`].
pub const MERON_CONTEXT_OPTIONS_INIT: meron_context_options = meron_context_options {
    struct_size: size_of::<meron_context_options>() as u32,
    header_version: 512,
    rank: -1,
    world_size: -1,
    transport: ptr::null(),
    job: ptr::null(),
    token: ptr::null(),
    timeout_ns: 0,
    host_memory_limit: 0,
    arena_reserve: 0,
    threads: 0,
    reserved_0: 0,
    plan: meron_plan { id: 0 },
    log: None,
    log_user: ptr::null_mut(),
    should_stop: None,
    should_stop_user: ptr::null_mut(),
    custom: ptr::null(),
    device: ptr::null(),
    allocator: ptr::null(),
};

/// Counters since the context was opened, and the memory in use now, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_stats {
    /// sizeof(meron_stats), as the INIT macro sets it
    pub struct_size: u32,
    /// 0
    pub reserved_0: u32,
    /// Shards of peers read in place, or fetched by devices
    pub gather_mapped_bytes: u64,
    /// Parts of peers copied
    pub gather_copied_bytes: u64,
    /// Gradients read from peers
    pub reduce_bytes: u64,
    /// Read from peers by broadcast and all-reduce
    pub collective_bytes: u64,
    /// Collectives begun
    pub operations: u64,
    /// Nanoseconds spent waiting for peers
    pub wait_ns: u64,
    /// Of values, held now
    pub param_bytes: u64,
    /// Counted from meron_unit_create on, allocated by the first gradient
    pub gradient_bytes: u64,
    /// Of optimizer states, held now
    pub optimizer_bytes: u64,
    /// Of staging buffers, held now
    pub staging_bytes: u64,
    /// Of the control data that keeps the ranks in step, held now
    pub control_bytes: u64,
    /// Maximum of param + gradient + optimizer + staging
    pub peak_bytes: u64,
    /// Bytes of pages in this rank's arena
    pub arena_pages_bytes: u64,
    /// Gathered from ranks that share no memory, as on the wire
    pub inter_node_gather_bytes: u64,
    /// Reduced from such ranks, likewise
    pub inter_node_reduce_bytes: u64,
    /// Read from this rank's file on tier nvme
    pub nvme_read_bytes: u64,
    /// Written to it
    pub nvme_written_bytes: u64,
    /// Of that file, in use now
    pub nvme_bytes: u64,
    /// Copied from the host to this rank's device
    pub device_up_bytes: u64,
    /// Copied from it to the host
    pub device_down_bytes: u64,
    /// On the device at all times: entries of tier device
    pub device_bytes: u64,
}

/// Initial value of a [`meron_stats`].
pub const MERON_STATS_INIT: meron_stats = meron_stats {
    struct_size: size_of::<meron_stats>() as u32,
    reserved_0: 0,
    gather_mapped_bytes: 0,
    gather_copied_bytes: 0,
    reduce_bytes: 0,
    collective_bytes: 0,
    operations: 0,
    wait_ns: 0,
    param_bytes: 0,
    gradient_bytes: 0,
    optimizer_bytes: 0,
    staging_bytes: 0,
    control_bytes: 0,
    peak_bytes: 0,
    arena_pages_bytes: 0,
    inter_node_gather_bytes: 0,
    inter_node_reduce_bytes: 0,
    nvme_read_bytes: 0,
    nvme_written_bytes: 0,
    nvme_bytes: 0,
    device_up_bytes: 0,
    device_down_bytes: 0,
    device_bytes: 0,
};

/// The plan's predictions for this rank and its current units, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_prediction {
    /// sizeof(meron_prediction), as the INIT macro sets it
    pub struct_size: u32,
    /// 0
    pub reserved_0: u32,
    /// Of values, held
    pub param_bytes: u64,
    /// Of gradients, held
    pub gradient_bytes: u64,
    /// Of optimizer states, held
    pub optimizer_bytes: u64,
    /// Without messages in flight between nodes, and without up to 32 MiB if these, or values of
    /// tier nvme, are copied to a device
    pub peak_bytes: u64,
    /// As in meron_stats, per optimizer step; so are those below
    pub gather_mapped_bytes: u64,
    /// Parts of peers copied
    pub gather_copied_bytes: u64,
    /// Gradients read from peers
    pub reduce_bytes: u64,
    /// Of params, from the first gather to the update (of frozen ones permanently), on top of
    /// param_bytes and within peak_bytes
    pub secondary_partition_bytes: u64,
    /// Gathered from ranks that share no memory, as on the wire
    pub inter_node_gather_bytes: u64,
    /// Reduced from such ranks, likewise
    pub inter_node_reduce_bytes: u64,
    /// Read from this rank's file on tier nvme
    pub nvme_read_bytes: u64,
    /// Written to it
    pub nvme_written_bytes: u64,
    /// In use there, at all times
    pub nvme_bytes: u64,
    /// As in meron_stats. If ranks cannot exchange on their devices, these lack the sums of
    /// gradients, which this figure contains
    pub device_bytes: u64,
}

/// Initial value of a [`meron_prediction`].
pub const MERON_PREDICTION_INIT: meron_prediction = meron_prediction {
    struct_size: size_of::<meron_prediction>() as u32,
    reserved_0: 0,
    param_bytes: 0,
    gradient_bytes: 0,
    optimizer_bytes: 0,
    peak_bytes: 0,
    gather_mapped_bytes: 0,
    gather_copied_bytes: 0,
    reduce_bytes: 0,
    secondary_partition_bytes: 0,
    inter_node_gather_bytes: 0,
    inter_node_reduce_bytes: 0,
    nvme_read_bytes: 0,
    nvme_written_bytes: 0,
    nvme_bytes: 0,
    device_bytes: 0,
};

/// A group. A value; 0 is null, which only meron_param_desc takes, for the world.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_group {
    /// 0 is null.
    pub id: u64,
}

/// The operation that combines values.
pub type meron_reduce_op = i32;
/// A value of meron_reduce_op.
pub const MERON_REDUCE_OP_SUM: meron_reduce_op = 0;
/// A value of meron_reduce_op.
pub const MERON_REDUCE_OP_MEAN: meron_reduce_op = 1;
/// Of meron_all_reduce_begin alone, as the next one
pub const MERON_REDUCE_OP_MAX: meron_reduce_op = 2;
/// A value of meron_reduce_op.
pub const MERON_REDUCE_OP_MIN: meron_reduce_op = 3;

/// A named tensor. A value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_param {
    /// 0 is null.
    pub id: u64,
}

/// Params that are gathered and reduced together. A value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_unit {
    /// 0 is null.
    pub id: u64,
}

/// The most dimensions of a param.
pub const MERON_MAX_DIMS: u32 = 16;

/// Description of a param.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_param_desc {
    /// sizeof(meron_param_desc)
    pub struct_size: u32,
    /// Of the values that are gathered
    pub dtype: meron_dtype,
    /// Unique in the context, 1 to 512 bytes of UTF-8
    pub name: *const c_char,
    /// `dims` sizes, each \>= 0, row-major
    pub shape: *const i64,
    /// 0: a scalar; at most MERON_MAX_DIMS
    pub dims: u32,
    /// 1: has no gradient and no optimizer state
    pub frozen: u32,
    /// The ranks that share it; null: the world
    pub group: meron_group,
}

/// Initial value of a [`meron_param_desc`].
pub const MERON_PARAM_DESC_INIT: meron_param_desc = meron_param_desc {
    struct_size: size_of::<meron_param_desc>() as u32,
    dtype: MERON_F32,
    name: ptr::null(),
    shape: ptr::null(),
    dims: 0,
    frozen: 0,
    group: meron_group { id: 0 },
};

/// meron_view.device: memory of the host.
pub const MERON_DEVICE_HOST: i32 = -1;

/// A contiguous range of a tensor in memory. The library fills all fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_view {
    /// First element; never NULL, also when count is 0
    pub data: *mut c_void,
    /// Elements, contiguous
    pub count: u64,
    /// Index of the first element in the full tensor, row-major
    pub offset: u64,
    /// Of the elements
    pub dtype: meron_dtype,
    /// 1: may be written; 0: a write faults or is undefined
    pub writable: u32,
    /// Owner of the memory: MERON_DEVICE_HOST, or the number of the context's device ("cuda:1"
    /// has the number 1)
    pub device: i32,
    /// 0, as the next two: for later versions
    pub reserved_0: u32,
    /// See the struct.
    pub reserved_1: u64,
    /// See the struct.
    pub reserved_2: u64,
}

/// DLPack 1.x's exchange struct (<https://dmlc.github.io/dlpack>); its header is the caller's
/// to include.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Information about a param.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_param_info {
    /// sizeof(meron_param_info), as the INIT macro sets it
    pub struct_size: u32,
    /// See the struct.
    pub dtype: meron_dtype,
    /// See the struct.
    pub dims: u32,
    /// See the struct.
    pub frozen: u32,
    /// The first `dims` count
    pub shape: [i64; 16],
    /// Elements of the full tensor
    pub count: u64,
    /// First element that this rank updates
    pub shard_offset: u64,
    /// Number of these elements; 0 before the param is in a unit
    pub shard_count: u64,
    /// Index of its flat: see meron_unit_flat; 0 before the param is in a unit
    pub flat: u64,
    /// Elements of the flat before the param; 0 before it is in a unit
    pub flat_offset: u64,
}

/// Initial value of a [`meron_param_info`].
pub const MERON_PARAM_INFO_INIT: meron_param_info = meron_param_info {
    struct_size: size_of::<meron_param_info>() as u32,
    dtype: 0,
    dims: 0,
    frozen: 0,
    shape: [0; 16],
    count: 0,
    shard_offset: 0,
    shard_count: 0,
    flat: 0,
    flat_offset: 0,
};

/// Encoding of numbers that are sent between replicas; docs/plan.md has the details.
pub type meron_codec = i32;
/// A value of meron_codec.
pub const MERON_CODEC_NONE: meron_codec = 0;
/// A value of meron_codec.
pub const MERON_CODEC_BF16: meron_codec = 1;
/// A value of meron_codec.
pub const MERON_CODEC_INT8: meron_codec = 2;
/// A value of meron_codec.
pub const MERON_CODEC_INT4: meron_codec = 3;

/// State of a unit on this rank.
pub type meron_unit_state = i32;
/// This rank holds its shard only
pub const MERON_UNIT_STATE_PARTITIONED: meron_unit_state = 0;
/// A gather is pending
pub const MERON_UNIT_STATE_GATHERING: meron_unit_state = 1;
/// Leased at least once
pub const MERON_UNIT_STATE_AVAILABLE: meron_unit_state = 2;
/// Being written
pub const MERON_UNIT_STATE_UPDATING: meron_unit_state = 3;

/// Information about a unit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_unit_info {
    /// sizeof(meron_unit_info), as the INIT macro sets it
    pub struct_size: u32,
    /// See the struct.
    pub state: meron_unit_state,
    /// Of the values; 0 until the first update
    pub version: u64,
    /// See the struct.
    pub leases: u32,
    /// 1: a reduced gradient waits for an optimizer step
    pub reduced: u32,
    /// Codecs of values and gradients between replicas: the plan's, or bf16 if its error was
    /// above the plan's limit.
    pub param_codec: meron_codec,
    /// See the struct.
    pub gradient_codec: meron_codec,
    /// Relative error of this rank's last encoding: |x - decoded x| / |x| in the 2-norm, of all
    /// values and of the worst block. 0 before the first one, and without a codec; NaN or
    /// infinite if values were.
    pub param_error: f64,
    /// See the struct.
    pub param_worst_block: f64,
    /// See the struct.
    pub gradient_error: f64,
    /// See the struct.
    pub gradient_worst_block: f64,
    /// Number of its params: see meron_unit_param
    pub params: u64,
    /// Number of its flats: see meron_unit_flat
    pub flats: u64,
}

/// Initial value of a [`meron_unit_info`].
pub const MERON_UNIT_INFO_INIT: meron_unit_info = meron_unit_info {
    struct_size: size_of::<meron_unit_info>() as u32,
    state: 0,
    version: 0,
    leases: 0,
    reduced: 0,
    param_codec: 0,
    gradient_codec: 0,
    param_error: 0.0,
    param_worst_block: 0.0,
    gradient_error: 0.0,
    gradient_worst_block: 0.0,
    params: 0,
    flats: 0,
};

/// Information about a flat: the params of a unit that have one dtype and are all trained or
/// all frozen, one after another in memory. Each begins at its meron_param_info.flat_offset;
/// the elements between a param and the next one are padding. The layout depends only on the
/// unit's params, so it is the same on all ranks and under all plans.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_flat_info {
    /// sizeof(meron_flat_info), as the INIT macro sets it
    pub struct_size: u32,
    /// See the struct.
    pub dtype: meron_dtype,
    /// 1: its params are frozen; 0: they are trained
    pub frozen: u32,
    /// 0
    pub reserved_0: u32,
    /// With the padding behind each param
    pub elements: u64,
    /// Of these elements
    pub bytes: u64,
}

/// Initial value of a [`meron_flat_info`].
pub const MERON_FLAT_INFO_INIT: meron_flat_info = meron_flat_info {
    struct_size: size_of::<meron_flat_info>() as u32,
    dtype: 0,
    frozen: 0,
    reserved_0: 0,
    elements: 0,
    bytes: 0,
};

/// States and update rule for some units. A value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_optimizer {
    /// 0 is null.
    pub id: u64,
}

/// The update rule.
pub type meron_optimizer_kind = i32;
/// Loshchilov and Hutter, arXiv 1711.05101
pub const MERON_OPTIMIZER_ADAMW: meron_optimizer_kind = 0;
/// Kingma and Ba, arXiv 1412.6980; weight decay by the gradient
pub const MERON_OPTIMIZER_ADAM: meron_optimizer_kind = 1;
/// Duchi, Hazan and Singer, JMLR 12 (2011); weight decay as Adam
pub const MERON_OPTIMIZER_ADAGRAD: meron_optimizer_kind = 2;
/// Chen et al., arXiv 2302.06675; its authors take beta2 = 0.99
pub const MERON_OPTIMIZER_LION: meron_optimizer_kind = 3;
/// As torch.optim.SGD; beta1 is the momentum, weight decay as Adam
pub const MERON_OPTIMIZER_SGD: meron_optimizer_kind = 4;

/// Options of an optimizer. Start from the INIT macro of the rule, such as
/// MERON_OPTIMIZER_SGD_INIT: each rule has its own defaults, and a struct with the defaults
/// of another rule is refused.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_optimizer_options {
    /// sizeof(meron_optimizer_options)
    pub struct_size: u32,
    /// See the struct.
    pub kind: meron_optimizer_kind,
    /// \>= 0
    pub learning_rate: f64,
    /// 0 \<= beta1 \< 1. SGD: the momentum; 0 keeps no state
    pub beta1: f64,
    /// 0 \<= beta2 \< 1
    pub beta2: f64,
    /// \> 0
    pub epsilon: f64,
    /// \>= 0
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping
    pub max_norm: f64,
    /// SGD: 0 \<= dampening \< 1; else 0
    pub dampening: f64,
    /// SGD with a momentum and no dampening: 1 for Nesterov's; else 0
    pub nesterov: u32,
    /// 1 + the kind whose defaults these are; set by the INIT macros and
    /// meron_optimizer_rule_init, not by the caller
    pub defaults_of: u32,
    /// Adagrad: \>= 0; step t has the rate learning_rate / (1 + (t - 1) lr_decay)
    pub lr_decay: f64,
}

/// Initial value of a [`meron_optimizer_options`].
pub const MERON_OPTIMIZER_OPTIONS_INIT: meron_optimizer_options = meron_optimizer_options {
    struct_size: size_of::<meron_optimizer_options>() as u32,
    kind: MERON_OPTIMIZER_ADAMW,
    learning_rate: 0.001,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-08,
    weight_decay: 0.01,
    max_norm: 0.0,
    dampening: 0.0,
    nesterov: 0,
    defaults_of: 1,
    lr_decay: 0.0,
};

/// Initial value of a [`meron_optimizer_options`].
pub const MERON_OPTIMIZER_ADAMW_INIT: meron_optimizer_options = meron_optimizer_options {
    struct_size: size_of::<meron_optimizer_options>() as u32,
    kind: MERON_OPTIMIZER_ADAMW,
    learning_rate: 0.001,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-08,
    weight_decay: 0.01,
    max_norm: 0.0,
    dampening: 0.0,
    nesterov: 0,
    defaults_of: 1,
    lr_decay: 0.0,
};

/// Initial value of a [`meron_optimizer_options`].
pub const MERON_OPTIMIZER_ADAM_INIT: meron_optimizer_options = meron_optimizer_options {
    struct_size: size_of::<meron_optimizer_options>() as u32,
    kind: MERON_OPTIMIZER_ADAM,
    learning_rate: 0.001,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-08,
    weight_decay: 0.0,
    max_norm: 0.0,
    dampening: 0.0,
    nesterov: 0,
    defaults_of: 2,
    lr_decay: 0.0,
};

/// Initial value of a [`meron_optimizer_options`].
pub const MERON_OPTIMIZER_ADAGRAD_INIT: meron_optimizer_options = meron_optimizer_options {
    struct_size: size_of::<meron_optimizer_options>() as u32,
    kind: MERON_OPTIMIZER_ADAGRAD,
    learning_rate: 0.01,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-10,
    weight_decay: 0.0,
    max_norm: 0.0,
    dampening: 0.0,
    nesterov: 0,
    defaults_of: 3,
    lr_decay: 0.0,
};

/// Initial value of a [`meron_optimizer_options`].
pub const MERON_OPTIMIZER_LION_INIT: meron_optimizer_options = meron_optimizer_options {
    struct_size: size_of::<meron_optimizer_options>() as u32,
    kind: MERON_OPTIMIZER_LION,
    learning_rate: 0.0001,
    beta1: 0.9,
    beta2: 0.99,
    epsilon: 1e-08,
    weight_decay: 0.0,
    max_norm: 0.0,
    dampening: 0.0,
    nesterov: 0,
    defaults_of: 4,
    lr_decay: 0.0,
};

/// Initial value of a [`meron_optimizer_options`].
pub const MERON_OPTIMIZER_SGD_INIT: meron_optimizer_options = meron_optimizer_options {
    struct_size: size_of::<meron_optimizer_options>() as u32,
    kind: MERON_OPTIMIZER_SGD,
    learning_rate: 0.001,
    beta1: 0.0,
    beta2: 0.999,
    epsilon: 1e-08,
    weight_decay: 0.0,
    max_norm: 0.0,
    dampening: 0.0,
    nesterov: 0,
    defaults_of: 5,
    lr_decay: 0.0,
};

/// Hyperparameters of the params of one group. The rule ignores those that it does not use.
/// Start from a group of the optimizer (meron_optimizer_get_group).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_optimizer_group {
    /// sizeof(meron_optimizer_group)
    pub struct_size: u32,
    /// As in meron_optimizer_options; meron_optimizer_get_group sets it, too
    pub defaults_of: u32,
    /// \>= 0
    pub learning_rate: f64,
    /// 0 \<= beta1 \< 1. SGD: the momentum, 0 in all groups or in none
    pub beta1: f64,
    /// 0 \<= beta2 \< 1
    pub beta2: f64,
    /// \> 0
    pub epsilon: f64,
    /// \>= 0
    pub weight_decay: f64,
    /// Adagrad: \>= 0; else 0
    pub lr_decay: f64,
}

/// Initial value of a [`meron_optimizer_group`].
pub const MERON_OPTIMIZER_GROUP_INIT: meron_optimizer_group = meron_optimizer_group {
    struct_size: size_of::<meron_optimizer_group>() as u32,
    defaults_of: 1,
    learning_rate: 0.001,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-08,
    weight_decay: 0.01,
    lr_decay: 0.0,
};

/// Information about an optimizer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_optimizer_info {
    /// sizeof(meron_optimizer_info), as the INIT macro sets it
    pub struct_size: u32,
    /// 0
    pub reserved_0: u32,
    /// Taken so far, with those of meron_optimizer_set_steps and of a loaded checkpoint; without
    /// steps that ended in MERON_E_NONFINITE
    pub steps: u64,
    /// 2-norm of all gradients of the last step, before clipping
    pub norm: f64,
    /// Of group 0
    pub learning_rate: f64,
    /// Of params, at least 1
    pub groups: u32,
    /// Of the rule per element, besides the master
    pub states: u32,
    /// Of this rank's states on tier nvme
    pub nvme_bytes: u64,
    /// Of the states that meron_optimizer_offload has moved to a drive
    pub offloaded_bytes: u64,
}

/// Initial value of a [`meron_optimizer_info`].
pub const MERON_OPTIMIZER_INFO_INIT: meron_optimizer_info = meron_optimizer_info {
    struct_size: size_of::<meron_optimizer_info>() as u32,
    reserved_0: 0,
    steps: 0,
    norm: 0.0,
    learning_rate: 0.0,
    groups: 0,
    states: 0,
    nvme_bytes: 0,
    offloaded_bytes: 0,
};

/// A state of an optimizer.
pub type meron_optimizer_state = i32;
/// F32 values; the param itself if that is f32
pub const MERON_OPTIMIZER_STATE_MASTER: meron_optimizer_state = 0;
/// Average of the gradients; Lion's, and SGD's momentum
pub const MERON_OPTIMIZER_STATE_EXP_AVG: meron_optimizer_state = 1;
/// Average of their squares; Adagrad's sum of them
pub const MERON_OPTIMIZER_STATE_EXP_AVG_SQ: meron_optimizer_state = 2;

/// A checkpoint that was opened or loaded. A value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_checkpoint {
    /// 0 is null.
    pub id: u64,
}

/// The caller's own tensor, or a range of one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_checkpoint_tensor {
    /// sizeof(meron_checkpoint_tensor)
    pub struct_size: u32,
    /// 0: a scalar; at most MERON_MAX_DIMS
    pub dims: u32,
    /// 1 to 512 bytes of UTF-8
    pub name: *const c_char,
    /// NULL: "extra". As docs/checkpoint-format.md lists them: "values" for a buffer, "exp_avg",
    /// "state.KEY" for a state of an optimizer. A load ignores "extra" and "state.KEY". A value
    /// that is no param must be claimed there, or is unexpected
    pub kind: *const c_char,
    /// As safetensors names it: "F32", "BF16", "I64", ...
    pub dtype: *const c_char,
    /// Of the full tensor, row-major
    pub shape: *const u64,
    /// First element in `data`
    pub begin: u64,
    /// Elements in `data`
    pub count: u64,
    /// Little endian, contiguous; may be NULL if count is 0
    pub data: *const c_void,
}

/// Initial value of a [`meron_checkpoint_tensor`].
pub const MERON_CHECKPOINT_TENSOR_INIT: meron_checkpoint_tensor = meron_checkpoint_tensor {
    struct_size: size_of::<meron_checkpoint_tensor>() as u32,
    dims: 0,
    name: ptr::null(),
    kind: ptr::null(),
    dtype: ptr::null(),
    shape: ptr::null(),
    begin: 0,
    count: 0,
    data: ptr::null(),
};

/// Options of a save: its content, and the fate of other checkpoints.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_checkpoint_save_options {
    /// sizeof(meron_checkpoint_save_options)
    pub struct_size: u32,
    /// 1: neither masters nor states of optimizers
    pub values_only: u32,
    /// 1: no frozen params
    pub skip_frozen: u32,
    /// 1: replaces a checkpoint of that name
    pub overwrite: u32,
    /// The caller's count: of a line, the newest checkpoint has the highest
    pub step: u64,
    /// Complete checkpoints of the line that stay in the folder, with this one; the newest with
    /// all states stays, too. 0: all
    pub keep: u64,
    /// NULL, or the caller's own state: the text of a JSON object. That of rank 0 is saved
    pub extra: *const c_char,
    /// Whose states and masters are saved; NULL: none
    pub optimizers: *const meron_optimizer,
    /// See the struct.
    pub optimizer_count: u64,
    /// The caller's own; all ranks together pass each element of a tensor once. NULL: none of
    /// this rank
    pub tensors: *const meron_checkpoint_tensor,
    /// See the struct.
    pub tensor_count: u64,
    /// NULL, or a JSON object: "PARAM": "NAME" in the files, for states too; "" leaves the param
    /// out
    pub mapping: *const c_char,
    /// 1: each node has its own folder, such as one on a local disk. Ranks of a node pass the
    /// same
    pub per_node: u32,
    /// Must be 0
    pub reserved_0: u32,
    /// Whose states are saved, the same on all ranks, in any order; NULL: of all units. They have
    /// all units of `optimizers` and all params of `mapping`. Other units may be updated
    /// meanwhile
    pub units: *const meron_unit,
    /// See the struct.
    pub unit_count: u64,
}

/// Initial value of a [`meron_checkpoint_save_options`].
pub const MERON_CHECKPOINT_SAVE_OPTIONS_INIT: meron_checkpoint_save_options = meron_checkpoint_save_options {
    struct_size: size_of::<meron_checkpoint_save_options>() as u32,
    values_only: 0,
    skip_frozen: 0,
    overwrite: 0,
    step: 0,
    keep: 0,
    extra: ptr::null(),
    optimizers: ptr::null(),
    optimizer_count: 0,
    tensors: ptr::null(),
    tensor_count: 0,
    mapping: ptr::null(),
    per_node: 0,
    reserved_0: 0,
    units: ptr::null(),
    unit_count: 0,
};

/// Progress of a save.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_checkpoint_progress {
    /// sizeof(meron_checkpoint_progress), as the INIT macro sets it
    pub struct_size: u32,
    /// 1: a save is pending
    pub saving: u32,
    /// Bytes that this rank writes; 0: not known yet, or no save
    pub total: u64,
    /// Of these, copied from the units
    pub copied: u64,
    /// Of these, written to files
    pub written: u64,
}

/// Initial value of a [`meron_checkpoint_progress`].
pub const MERON_CHECKPOINT_PROGRESS_INIT: meron_checkpoint_progress = meron_checkpoint_progress {
    struct_size: size_of::<meron_checkpoint_progress>() as u32,
    saving: 0,
    total: 0,
    copied: 0,
    written: 0,
};

/// Options of a write without a context, by one process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_checkpoint_write_options {
    /// sizeof(meron_checkpoint_write_options)
    pub struct_size: u32,
    /// 1: replaces a checkpoint of that name
    pub overwrite: u32,
    /// The caller's count
    pub step: u64,
    /// NULL, or the text of a JSON object
    pub extra: *const c_char,
    /// NULL, or the manifest's list of them, a JSON array
    pub optimizers: *const c_char,
    /// See the struct.
    pub tensors: *const meron_checkpoint_tensor,
    /// See the struct.
    pub tensor_count: u64,
}

/// Initial value of a [`meron_checkpoint_write_options`].
pub const MERON_CHECKPOINT_WRITE_OPTIONS_INIT: meron_checkpoint_write_options = meron_checkpoint_write_options {
    struct_size: size_of::<meron_checkpoint_write_options>() as u32,
    overwrite: 0,
    step: 0,
    extra: ptr::null(),
    optimizers: ptr::null(),
    tensors: ptr::null(),
    tensor_count: 0,
};

/// Options of a load.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_checkpoint_load_options {
    /// sizeof(meron_checkpoint_load_options)
    pub struct_size: u32,
    /// 1: ignore params and tensors that the other side lacks
    pub lenient: u32,
    /// 1: values, and masters computed from them; optimizers keep their states
    pub values_only: u32,
    /// 1: only rank 0 sees the files, and sends each rank its shards
    pub rank0_only: u32,
    /// As passed to the save; NULL: none, which is an error if the checkpoint has some, unless
    /// `values_only` is 1
    pub optimizers: *const meron_optimizer,
    /// See the struct.
    pub optimizer_count: u64,
    /// NULL, or a JSON object: "PARAM": "TENSOR", or "PARAM": \["TENSOR", ...\], one after the
    /// other along the first dimension; others by their name
    pub mapping: *const c_char,
    /// NULL, or names of tensors of kind "values" that are no params, with line breaks between
    /// them: they must exist, and the caller reads them
    pub claimed: *const c_char,
    /// 1: each node has its own folder: one rank per node reads the node's files, and sends each
    /// rank its shards
    pub per_node: u32,
    /// Must be 0
    pub reserved_0: u32,
    /// That are loaded, the same on all ranks, in any order; NULL: all. They have all units of
    /// `optimizers`. Other units stay as they are, and their tensors in the checkpoint are not
    /// unexpected
    pub units: *const meron_unit,
    /// See the struct.
    pub unit_count: u64,
}

/// Initial value of a [`meron_checkpoint_load_options`].
pub const MERON_CHECKPOINT_LOAD_OPTIONS_INIT: meron_checkpoint_load_options = meron_checkpoint_load_options {
    struct_size: size_of::<meron_checkpoint_load_options>() as u32,
    lenient: 0,
    values_only: 0,
    rank0_only: 0,
    optimizers: ptr::null(),
    optimizer_count: 0,
    mapping: ptr::null(),
    claimed: ptr::null(),
    per_node: 0,
    reserved_0: 0,
    units: ptr::null(),
    unit_count: 0,
};

/// Information about a checkpoint.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_checkpoint_info {
    /// sizeof(meron_checkpoint_info), as the INIT macro sets it
    pub struct_size: u32,
    /// Ranks that saved it
    pub world: u32,
    /// The caller's count
    pub step: u64,
    /// Of its files
    pub bytes: u64,
    /// In the checkpoint
    pub tensors: u64,
    /// Of its files, by this rank, so far
    pub bytes_read: u64,
    /// States that it lacks; the load did not change them
    pub missing: u64,
    /// Tensors that no unit has
    pub unexpected: u64,
}

/// Initial value of a [`meron_checkpoint_info`].
pub const MERON_CHECKPOINT_INFO_INIT: meron_checkpoint_info = meron_checkpoint_info {
    struct_size: size_of::<meron_checkpoint_info>() as u32,
    world: 0,
    step: 0,
    bytes: 0,
    tensors: 0,
    bytes_read: 0,
    missing: 0,
    unexpected: 0,
};

/// A text of a checkpoint.
pub type meron_checkpoint_text_kind = i32;
/// Of its directory
pub const MERON_CHECKPOINT_TEXT_PATH: meron_checkpoint_text_kind = 0;
/// The caller's own state: a JSON object
pub const MERON_CHECKPOINT_TEXT_EXTRA: meron_checkpoint_text_kind = 1;
/// Names of states, each with a line break
pub const MERON_CHECKPOINT_TEXT_MISSING: meron_checkpoint_text_kind = 2;
/// Names of tensors, each with a line break
pub const MERON_CHECKPOINT_TEXT_UNEXPECTED: meron_checkpoint_text_kind = 3;
/// All of its manifest: a JSON object, by docs/checkpoint-format.md. Its array "tensors" has
/// "name", "kind", "dtype" and "shape" of each tensor, "optimizers" the rules and counts. Of
/// a model of Hugging Face: one that describes it, without checksums
pub const MERON_CHECKPOINT_TEXT_MANIFEST: meron_checkpoint_text_kind = 4;
/// Of one that was opened as the newest: the incomplete ones that were passed over, and why,
/// and the newest one of another line if its step is higher; "" if there are none
pub const MERON_CHECKPOINT_TEXT_PASSED_OVER: meron_checkpoint_text_kind = 5;

/// Options of an export.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_checkpoint_export_options {
    /// sizeof(meron_checkpoint_export_options)
    pub struct_size: u32,
    /// Of the floating-point values in the files, if keep_dtype is 0
    pub dtype: meron_dtype,
    /// 1, the initial value: each param's own dtype; `dtype` is ignored
    pub keep_dtype: u32,
    /// 1: replaces an existing model
    pub overwrite: u32,
    /// Of a file's tensors: the next file begins before they would exceed it, and a larger tensor
    /// has its own file; 0: 5 GB
    pub max_file_bytes: u64,
    /// NULL, or a JSON object: "PARAM": "NAME" in the files; "" leaves the param out
    pub mapping: *const c_char,
    /// The caller's own of kind "values", unsharded (buffers); those of rank 0 count. NULL: none
    pub tensors: *const meron_checkpoint_tensor,
    /// See the struct.
    pub tensor_count: u64,
}

/// Initial value of a [`meron_checkpoint_export_options`].
pub const MERON_CHECKPOINT_EXPORT_OPTIONS_INIT: meron_checkpoint_export_options = meron_checkpoint_export_options {
    struct_size: size_of::<meron_checkpoint_export_options>() as u32,
    dtype: MERON_F32,
    keep_dtype: 1,
    overwrite: 0,
    max_file_bytes: 0,
    mapping: ptr::null(),
    tensors: ptr::null(),
    tensor_count: 0,
};

/// Destination of the full tensors.
pub type meron_gather_mode = i32;
/// Read-only, in place where the plan allows it
pub const MERON_GATHER_VIEW: meron_gather_mode = 0;
/// A private, writable copy that belongs to the gather
pub const MERON_GATHER_COPY: meron_gather_mode = 1;
/// Into the caller's memory
pub const MERON_GATHER_INTO: meron_gather_mode = 2;

/// Memory of a view, by its tier.
pub type meron_tier = i32;
/// In the device's memory, if the context has a device; else the host's
pub const MERON_TIER_DEVICE: meron_tier = 0;
/// In the host's memory
pub const MERON_TIER_HOST: meron_tier = 1;

/// A destination for MERON_GATHER_INTO: of one param.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_destination {
    /// See the struct.
    pub param: meron_param,
    /// For the full tensor, row-major, in the param's dtype; memory of the host, or of the
    /// context's device
    pub data: *mut c_void,
    /// Exactly its size
    pub bytes: u64,
}

/// A destination for MERON_GATHER_INTO: of a flat, so of all its params, by one copy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_flat_destination {
    /// One of the gathered units
    pub unit: meron_unit,
    /// Its index, see meron_unit_flat
    pub flat: u64,
    /// For the flat, in its dtype: the gather writes each param at its
    /// meron_param_info.flat_offset, and unspecified values to the padding; memory of the host,
    /// or of the context's device
    pub data: *mut c_void,
    /// Exactly meron_flat_info.bytes
    pub bytes: u64,
}

/// Options of a gather.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_gather_options {
    /// sizeof(meron_gather_options)
    pub struct_size: u32,
    /// See the struct.
    pub mode: meron_gather_mode,
    /// MERON_GATHER_INTO: one per requested param, but for those of `flats`
    pub destinations: *const meron_destination,
    /// See the struct.
    pub destination_count: u64,
    /// Of a view; a copy is in the host's memory
    pub tier: meron_tier,
    /// Must be 0
    pub reserved_0: u32,
    /// Destinations in the device's memory are written after the work that is queued on this
    /// stream so far; NULL: its default stream
    pub stream: *mut c_void,
    /// MERON_GATHER_INTO: one per requested flat
    pub flats: *const meron_flat_destination,
    /// See the struct.
    pub flat_count: u64,
}

/// Initial value of a [`meron_gather_options`].
pub const MERON_GATHER_OPTIONS_INIT: meron_gather_options = meron_gather_options {
    struct_size: size_of::<meron_gather_options>() as u32,
    mode: MERON_GATHER_VIEW,
    destinations: ptr::null(),
    destination_count: 0,
    tier: MERON_TIER_DEVICE,
    reserved_0: 0,
    stream: ptr::null_mut(),
    flats: ptr::null(),
    flat_count: 0,
};

/// A queue to the kernel for reads and writes of files, and the threads that serve it. A
/// value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_io {
    /// 0 is null.
    pub id: u64,
}

/// Pinned memory: page-aligned, and registered with the kernel if the kernel permits it. A
/// value; 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_io_buffer {
    /// 0 is null.
    pub id: u64,
}

/// The interface that moves the bytes.
pub type meron_io_backend = i32;
/// io_uring if the host allows it, else threads
pub const MERON_IO_BACKEND_AUTO: meron_io_backend = 0;
/// io_uring
pub const MERON_IO_BACKEND_URING: meron_io_backend = 1;
/// Threads of this process that call pread and pwrite
pub const MERON_IO_BACKEND_THREADS: meron_io_backend = 2;

/// Options of an io.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_io_options {
    /// sizeof(meron_io_options)
    pub struct_size: u32,
    /// See the struct.
    pub backend: meron_io_backend,
    /// Of one call of the kernel: a multiple of 4096; default 1 MiB
    pub block_bytes: u32,
    /// Pending calls of io_uring, 1 to 4096; default 32
    pub depth: u32,
    /// Of the backend of threads, 1 to 256: as many calls at a time
    pub threads: u32,
    /// 1: submit each call to the kernel alone; default 0: together
    pub single_submit: u32,
    /// Default 1; 0: the next calls begin after the last ones have ended
    pub overlap_events: u32,
    /// Must be 0
    pub reserved_0: u32,
    /// A wait fails after this time without any transfer; 0 or -1: 600 s
    pub timeout_ns: i64,
}

/// Initial value of a [`meron_io_options`].
pub const MERON_IO_OPTIONS_INIT: meron_io_options = meron_io_options {
    struct_size: size_of::<meron_io_options>() as u32,
    backend: MERON_IO_BACKEND_AUTO,
    block_bytes: 1048576,
    depth: 32,
    threads: 1,
    single_submit: 0,
    overlap_events: 1,
    reserved_0: 0,
    timeout_ns: 0,
};

/// Information about an io.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_io_info {
    /// sizeof(meron_io_info), as the INIT macro sets it
    pub struct_size: u32,
    /// In use: MERON_IO_BACKEND_URING or MERON_IO_BACKEND_THREADS
    pub backend: meron_io_backend,
    /// These as in meron_io_options
    pub block_bytes: u32,
    /// See the struct.
    pub depth: u32,
    /// See the struct.
    pub threads: u32,
    /// See the struct.
    pub single_submit: u32,
    /// See the struct.
    pub overlap_events: u32,
    /// 0
    pub reserved_0: u32,
    /// By requests that have succeeded
    pub bytes_read: u64,
    /// Likewise
    pub bytes_written: u64,
    /// Of the kernel, completed
    pub calls: u64,
    /// Of these, past the page cache
    pub direct_calls: u64,
    /// Reads and writes that were begun, also blocking ones
    pub requests: u64,
    /// Of these, pending or not waited for
    pub pending: u64,
    /// Of all existing buffers
    pub buffer_bytes: u64,
}

/// Initial value of a [`meron_io_info`].
pub const MERON_IO_INFO_INIT: meron_io_info = meron_io_info {
    struct_size: size_of::<meron_io_info>() as u32,
    backend: 0,
    block_bytes: 0,
    depth: 0,
    threads: 0,
    single_submit: 0,
    overlap_events: 0,
    reserved_0: 0,
    bytes_read: 0,
    bytes_written: 0,
    calls: 0,
    direct_calls: 0,
    requests: 0,
    pending: 0,
    buffer_bytes: 0,
};

/// Information about a buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_io_buffer_info {
    /// sizeof(meron_io_buffer_info), as the INIT macro sets it
    pub struct_size: u32,
    /// 1: the kernel has it pinned; 0: it pins it at each call
    pub registered: u32,
    /// See the struct.
    pub bytes: u64,
    /// Page-aligned, to read and write
    pub data: *mut c_void,
}

/// Initial value of a [`meron_io_buffer_info`].
pub const MERON_IO_BUFFER_INFO_INIT: meron_io_buffer_info = meron_io_buffer_info {
    struct_size: size_of::<meron_io_buffer_info>() as u32,
    registered: 0,
    bytes: 0,
    data: ptr::null_mut(),
};

/// A gradient in the caller's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_source {
    /// See the struct.
    pub param: meron_param,
    /// The full tensor, row-major; in memory of the host, or of the context's device
    pub data: *const c_void,
    /// Its elements
    pub count: u64,
    /// Of the data; converted to the plan's gradient dtype
    pub dtype: meron_dtype,
    /// Must be 0
    pub reserved_0: u32,
}

/// Flags of meron_gradient_view. the caller writes all of the view: skip the zeroing
pub const MERON_GRADIENT_OVERWRITE: u32 = 1;

/// Options of a reduction.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_reduce_options {
    /// sizeof(meron_reduce_options)
    pub struct_size: u32,
    /// MERON_REDUCE_OP_MEAN divides by the group's size, once, as `divisor`
    pub op: meron_reduce_op,
    /// 1: last micro-batch before the step; 0: more follow
    pub boundary: u32,
    /// Must be 0
    pub reserved_0: u32,
    /// Additional divisor of the sum, e.g. the number of micro-batches, times the loss scale. The
    /// complete sum is divided once, as the call with `boundary` 1 says; in each call all ranks
    /// pass the same. With a codec that has feedback, give the same one for each micro-batch of
    /// an accumulation: what was lost of the accumulation before is scaled by the change, so that
    /// it counts as much as it did
    pub divisor: f64,
    /// Sources on the device are read after the work that is queued on this stream so far; NULL:
    /// its default stream
    pub stream: *mut c_void,
}

/// Initial value of a [`meron_reduce_options`].
pub const MERON_REDUCE_OPTIONS_INIT: meron_reduce_options = meron_reduce_options {
    struct_size: size_of::<meron_reduce_options>() as u32,
    op: MERON_REDUCE_OP_MEAN,
    boundary: 1,
    reserved_0: 0,
    divisor: 1.0,
    stream: ptr::null_mut(),
};

/// Units, the recorded orders of their uses, and the leases that follow from these. A value;
/// 0 is null.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct meron_schedule {
    /// 0 is null.
    pub id: u64,
}

/// The number of kinds of passes. Each has its own recorded order.
pub const MERON_SCHEDULE_KINDS: u32 = 16;

/// Options of a schedule: limits in elements, and the memory of views. Start from
/// MERON_SCHEDULE_OPTIONS_INIT: limits that are all 0 would prefetch nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_schedule_options {
    /// sizeof(meron_schedule_options)
    pub struct_size: u32,
    /// 1; set by the INIT macro and function, not by the caller
    pub initialized: u32,
    /// Gathers are prefetched for the next uses within this many elements; default 5e7; 0: no
    /// prefetch
    pub prefetch_elements: u64,
    /// Limit of prefetched and kept units, never of the unit in use; default 1e9
    pub max_live_elements: u64,
    /// A unit stays full if its next recorded use is within this many elements of other units'
    /// uses; default 1e9
    pub max_reuse_elements: u64,
    /// A unit of at most this many elements stays full from its first use until
    /// meron_schedule_drop; default 1e5
    pub persist_elements: u64,
    /// Limit for all such units together, in the order of meron_schedule_create; default
    /// UINT64_MAX
    pub persist_total_elements: u64,
    /// Memory of views: default MERON_TIER_HOST, unlike that of a gather; MERON_TIER_DEVICE: the
    /// context's device, if it has one
    pub tier: meron_tier,
    /// Must be 0
    pub reserved_1: u32,
    /// On a device: the trainer's stream. It waits for an entered unit, and the unit's memory is
    /// released after the stream's queued work; NULL: the device's default stream
    pub stream: *mut c_void,
}

/// Initial value of a [`meron_schedule_options`].
pub const MERON_SCHEDULE_OPTIONS_INIT: meron_schedule_options = meron_schedule_options {
    struct_size: size_of::<meron_schedule_options>() as u32,
    initialized: 1,
    prefetch_elements: 50000000,
    max_live_elements: 1000000000,
    max_reuse_elements: 1000000000,
    persist_elements: 100000,
    persist_total_elements: 18446744073709551615,
    tier: MERON_TIER_HOST,
    reserved_1: 0,
    stream: ptr::null_mut(),
};

/// Information about a schedule.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct meron_schedule_info {
    /// sizeof(meron_schedule_info), as the INIT macro sets it
    pub struct_size: u32,
    /// Units that are entered now
    pub entered: u32,
    /// Of the schedule
    pub units: u64,
    /// Started so far
    pub passes: u64,
    /// Units entered so far
    pub uses: u64,
    /// Uses whose unit was full already
    pub ready: u64,
    /// Uses with a prefetched gather
    pub ahead: u64,
    /// Uses that differ from the recorded order
    pub deviations: u64,
    /// Of the units that are full or gathering now
    pub live_elements: u64,
    /// Maximum of live_elements
    pub peak_live_elements: u64,
    /// Nanoseconds that uses have waited
    pub wait_ns: u64,
}

/// Initial value of a [`meron_schedule_info`].
pub const MERON_SCHEDULE_INFO_INIT: meron_schedule_info = meron_schedule_info {
    struct_size: size_of::<meron_schedule_info>() as u32,
    entered: 0,
    units: 0,
    passes: 0,
    uses: 0,
    ready: 0,
    ahead: 0,
    deviations: 0,
    live_elements: 0,
    peak_live_elements: 0,
    wait_ns: 0,
};

extern "C" {
    /// The error's status code; MERON_OK for NULL.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_error_code(error: *const meron_error) -> meron_status;

    /// The full message for people: the failure, the rank, the operation, the tensor or file, and
    /// the remedy. UTF-8, one paragraph.
    ///
    /// **Ownership**: borrowed from the error.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none ("" for NULL).
    pub fn meron_error_message(error: *const meron_error) -> *const c_char;

    /// The operation that failed, for example "gather" or "context_open"; "" if none applies.
    ///
    /// **Ownership**: borrowed from the error.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_error_operation(error: *const meron_error) -> *const c_char;

    /// The tensor, unit, file or key concerned; "" if none applies.
    ///
    /// **Ownership**: borrowed from the error.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_error_subject(error: *const meron_error) -> *const c_char;

    /// The remedy, as one sentence; "" if none is known.
    ///
    /// **Ownership**: borrowed from the error.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_error_advice(error: *const meron_error) -> *const c_char;

    /// The rank that reports the error, or MERON_RANK_NONE.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_error_rank(error: *const meron_error) -> i32;

    /// The rank that caused the error when it is another one (dead, late, diverging), or
    /// MERON_RANK_NONE.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_error_peer(error: *const meron_error) -> i32;

    /// Frees an error. NULL is allowed.
    ///
    /// **Ownership**: takes the error.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: none.
    pub fn meron_error_free(error: *mut meron_error);

    /// The constant's name, for example "MERON_E_TIMEOUT"; "MERON_E_UNKNOWN" for a code that this
    /// version does not know.
    ///
    /// **Ownership**: static.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_status_name(status: meron_status) -> *const c_char;

    /// The library's version in the form of MERON_VERSION. Compatible with a caller's headers
    /// when the major numbers are equal (and, before 1.0, the minor numbers) and it is not older
    /// than they are.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_version() -> u32;

    /// The library's version as text, for example "0.2.0".
    ///
    /// **Ownership**: static.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_version_string() -> *const c_char;

    /// Describes this host and this build, as JSON: version, compiler, CPU features and the
    /// kernel target in use, transports with the reason if one is unavailable, memory, huge
    /// pages, /dev/shm, memlock limit, io_uring.
    ///
    /// - `out`: receives the text.
    ///
    /// **Ownership**: the caller frees \*out with meron_string_free.
    ///
    /// **Blocks**: never (reads /proc).
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_NO_MEMORY.
    #[must_use]
    pub fn meron_system_info(out: *mut *mut c_char, err: *mut *mut meron_error) -> meron_status;

    /// Frees a string that a function of this library returned. NULL is allowed.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: none.
    pub fn meron_string_free(string: *mut c_char);

    /// Bytes per element of a dtype; 0 for an unknown one.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: none.
    pub fn meron_dtype_size(dtype: meron_dtype) -> usize;

    /// Waits for a future. Returns MERON_IN_PROGRESS if timeout_ns passed first; the operation
    /// continues.
    ///
    /// - `timeout_ns`: nanoseconds; MERON_TIMEOUT_DEFAULT: until the operation's own deadline (see
    ///   the top of future.h); 0: as meron_future_poll.
    ///
    /// **Blocks**: on peers, a device's copies or a drive, at most the deadline; advances other
    /// operations of the context meanwhile.
    ///
    /// **Threads**: any; several may wait for one future.
    ///
    /// **Errors**: those of the operation, MERON_E_TIMEOUT, MERON_E_PEER_DEAD, MERON_E_PEER_CLOSED,
    /// MERON_E_MISMATCH, MERON_E_ABORTED, MERON_E_CANCELLED, MERON_E_ARGUMENT (another negative
    /// timeout), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_future_wait(
        future: meron_future,
        timeout_ns: i64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Returns MERON_OK if the operation has succeeded, MERON_IN_PROGRESS if it has not ended,
    /// else its error. Without `err`, a failure counts as unseen, and is logged as
    /// meron_future_release says. Called from a callback, it does not advance the operation.
    ///
    /// **Blocks**: never on peers, a device or a drive; may compute and copy.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_future_wait.
    #[must_use]
    pub fn meron_future_poll(future: meron_future, err: *mut *mut meron_error) -> meron_status;

    /// Releases a future. A pending operation continues, so that the ranks stay in step; a
    /// pending gather or update is cancelled (see meron_gather_begin, meron_update_begin). If it
    /// fails, or has failed, and no wait or poll returned the error, that is logged once at level
    /// MERON_LOG_ERROR, by the next call that waits or by meron_context_close; the failure of a
    /// save is reported by the next save instead, or logged by the close. If the group is broken,
    /// one line is logged at the close, and none if another call returned the error.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    pub fn meron_future_release(future: meron_future, err: *mut *mut meron_error) -> meron_status;

    /// Waits for a future, then releases it: meron_future_wait and meron_future_release in one.
    /// Whatever the wait returns, also an error, the future is released, with one exception: if
    /// timeout_ns passed first, it returns MERON_IN_PROGRESS and the future stays. An operation
    /// whose wait should_stop ended (MERON_E_CANCELLED) continues without its future, and may use
    /// its memory until the close.
    ///
    /// - `timeout_ns`: as in meron_future_wait.
    ///
    /// **Ownership**: takes the future, unless it returns MERON_IN_PROGRESS.
    ///
    /// **Blocks**: as meron_future_wait.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_future_wait, MERON_E_HANDLE also for an update, which
    /// meron_update_publish ends; after MERON_E_ARGUMENT and MERON_E_HANDLE the future stays.
    #[must_use]
    pub fn meron_future_finish(
        future: meron_future,
        timeout_ns: i64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Waits until one of several futures has ended, well or with an error, and says which: the
    /// first such one of the array. It returns no error of an operation: meron_future_finish,
    /// wait or poll of that future returns it, and then does not wait. Local: other ranks may
    /// wait for other futures. finished. Returns MERON_IN_PROGRESS if timeout_ns passed first.
    ///
    /// - `out`: receives the index of a future that has ended; `count` if none has.
    /// - `futures`: of one context. Null ones are skipped: set a future to null once it is
    /// - `count`: futures in the array.
    /// - `timeout_ns`: nanoseconds; MERON_TIMEOUT_DEFAULT: as long as the operations' own deadlines;
    ///   0: looks once.
    ///
    /// **Ownership**: all futures stay the caller's.
    ///
    /// **Blocks**: as meron_future_wait.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (NULL, another negative timeout), MERON_E_HANDLE (all futures are
    /// null, one belongs to another context, or one is a transfer of io.h, which belongs to
    /// none), MERON_E_STALE, MERON_E_CANCELLED (should_stop), MERON_E_CLOSED, MERON_E_FORKED.
    #[must_use]
    pub fn meron_future_wait_any(
        out: *mut usize,
        futures: *const meron_future,
        count: usize,
        timeout_ns: i64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Creates one of the named plans: "zero0" (everything replicated, as in DDP), "zero1"
    /// (optimizer states sharded), "zero2" (gradients too), "zero3" (parameters too); for several
    /// nodes "mics(4)" (zero3 within groups of 4 ranks, gradients synchronized between the groups
    /// at the accumulation boundary), "hpz(4)" (zero3 with a secondary partition of the
    /// parameters in each group from forward to backward) and "zeropp(4)" (the same, with
    /// parameters in int8 and gradients in int4 between groups). Without an argument, or with
    /// "node", a group is the ranks of a node. Follows ZeRO (arXiv 1910.02054), MiCS (arXiv
    /// \2205.00119) and ZeRO++ (arXiv 2306.10209).
    ///
    /// - `out`: receives the plan.
    /// - `name`: NUL-terminated.
    ///
    /// **Ownership**: the caller releases \*out with meron_plan_release; a context keeps its own
    /// reference.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT for an unknown name (the message lists the known ones).
    #[must_use]
    pub fn meron_plan_preset(
        out: *mut meron_plan,
        name: *const c_char,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads a plan from JSON. `{"preset": "zero2", "gradient": {"dtype": "f32"}}` starts from a
    /// preset; docs/plan.md has every key.
    ///
    /// - `out`: receives the plan.
    /// - `json`: text of `bytes` bytes, UTF-8, need not end in NUL.
    ///
    /// **Ownership**: as meron_plan_preset.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_PARSE (line and key), MERON_E_ARGUMENT, MERON_E_UNSUPPORTED.
    #[must_use]
    pub fn meron_plan_parse(
        out: *mut meron_plan,
        json: *const c_char,
        bytes: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The plan as JSON that meron_plan_parse reads back to an equal plan.
    ///
    /// **Ownership**: the caller frees \*out with meron_string_free.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_plan_json(
        out: *mut *mut c_char,
        plan: meron_plan,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The plan as a table for people, several lines.
    ///
    /// **Ownership**: the caller frees \*out with meron_string_free.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_plan_table(
        out: *mut *mut c_char,
        plan: meron_plan,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*workload with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_workload_init(
        workload: *mut meron_workload,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Predicts bytes per link and step and peak bytes per tier, per rank, as JSON. If the ranks
    /// use codecs with which models train worse, the JSON has a list `warnings` of the texts that
    /// a run logs, and the table ends with them.
    ///
    /// - `out`: receives the text.
    /// - `model`: JSON of `bytes` bytes: {"parameters": N, "layers": L, "dtype": "bf16"}, or
    ///   {"units": \[{"name": ..., "tensors": \[{"name", "shape", "dtype"}\]}\]}.
    /// - `table`: 0: JSON; 1: a table for people.
    ///
    /// **Ownership**: the caller frees \*out with meron_string_free.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_PARSE, MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_plan_predict(
        out: *mut *mut c_char,
        plan: meron_plan,
        model: *const c_char,
        bytes: usize,
        workload: *const meron_workload,
        table: u32,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases a plan. A context that was opened with it keeps it.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE.
    pub fn meron_plan_release(plan: meron_plan, err: *mut *mut meron_error) -> meron_status;

    /// Fills the first `struct_size` bytes of \*transport with zeros and its size (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_transport_init(
        transport: *mut meron_transport,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*allocator with zeros and its size (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_allocator_init(
        allocator: *mut meron_allocator,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with defaults (for languages without
    /// macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_context_options_init(
        options: *mut meron_context_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Opens this rank's context and connects it to the other ranks.
    ///
    /// - `out`: receives the context.
    /// - `options`: NULL for the defaults.
    ///
    /// **Ownership**: the caller closes \*out.
    ///
    /// **Blocks**: until all ranks have arrived, at most the deadline.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (rank beyond the world, unknown transport), MERON_E_AUTH (token
    /// missing or wrong), MERON_E_TIMEOUT (names the missing ranks), MERON_E_VERSION,
    /// MERON_E_NO_MEMORY, MERON_E_IO, MERON_E_NOT_FOUND (no directory MERON_STORE),
    /// MERON_E_UNSUPPORTED (no transport connects the ranks' hosts; the device's module cannot be
    /// loaded or cannot work here, with the reason), MERON_E_DEVICE (it has failed),
    /// MERON_E_DUPLICATE (a rank arrived twice), or the error with which calls of a faster rank
    /// have broken the world.
    #[must_use]
    pub fn meron_context_open(
        out: *mut meron_context,
        options: *const meron_context_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Closes the context: pending operations are cancelled, all its handles become stale, views
    /// become invalid, and after the return nothing touches memory that the caller passed to
    /// operations. DLPack tensors stay readable. Nothing uses log_user and should_stop_user
    /// afterwards: it waits for callbacks that run on other threads. If a callback closes a
    /// context, it waits for no callback, and the pointers are used until that callback has
    /// returned. Local: it does not wait for peers, but first for a pending save of a checkpoint.
    /// If should_stop ends that wait, the save is abandoned and leaves no checkpoint. If the last
    /// save has failed and no wait returned its error, the log has it. Peers that still need this
    /// rank get MERON_E_PEER_CLOSED: for operations that it has not begun, or that it has begun
    /// and not waited for. Once it has waited for all that it began, it may close without a
    /// barrier. Another context may be opened afterwards in the same process.
    ///
    /// **Blocks**: on such a save and on such callbacks, without a deadline; else until calls of
    /// other threads on this context have ended, whose waits it ends.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE (closed already), MERON_E_STATE (from an allocator
    /// or a transport), MERON_E_FORKED.
    pub fn meron_context_close(
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// This rank, 0 to world size - 1.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_context_rank(
        out: *mut i32,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The number of ranks.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_context_rank.
    #[must_use]
    pub fn meron_context_world_size(
        out: *mut i32,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The name of the transport in use: "self", "local", "shm", or that of a custom one.
    ///
    /// **Ownership**: the context, until it is closed.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_context_rank.
    #[must_use]
    pub fn meron_context_transport(
        out: *mut *const c_char,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The plan that the context was opened with, as JSON that meron_plan_parse reads back to an
    /// equal plan; "zero3" if it was opened without one.
    ///
    /// **Ownership**: the caller frees \*out with meron_string_free.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_context_rank.
    #[must_use]
    pub fn meron_context_plan_json(
        out: *mut *mut c_char,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Advances every operation of this context that can advance, without waiting. Waits do the
    /// same; a trainer that computes for long between begin and wait may call it in between.
    /// Clears the descriptor of meron_context_event_fd first.
    ///
    /// **Blocks**: never on peers; computes.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_future_wait.
    #[must_use]
    pub fn meron_context_progress(
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// A descriptor for event loops (epoll, poll, asyncio, tokio): it becomes readable when a
    /// future of the context may have advanced. A thread of the engine writes to it when a peer
    /// has done something, and at least 50 times a second while an operation is pending; it
    /// advances no operation. In the loop, call meron_context_progress, which clears the
    /// descriptor, or read its 8 bytes; then poll the futures. Clear it before the polls: what
    /// comes later makes it readable again. Poll a future once after its begin, too: if it has
    /// ended by then, no sign follows. Futures of io.h are of no context and have none.
    ///
    /// - `out`: receives the descriptor, an eventfd (Linux): nonblocking, closed on exec, the same at
    ///   each call. Watch it for reading, level-triggered or edge-triggered; write nothing.
    ///
    /// **Ownership**: the context's: do not close it. The close of the context makes it readable and
    /// closes it: take it out of the loop before. A child after fork shares it with its parent:
    /// it must neither read nor watch it.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any; all watchers share one count, so one loop should watch it.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_CLOSED, MERON_E_FORKED,
    /// MERON_E_NO_MEMORY (no thread), MERON_E_IO (no descriptor is left).
    #[must_use]
    pub fn meron_context_event_fd(
        out: *mut i32,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the counters.
    ///
    /// - `out`: struct_size set by the caller; fields beyond the library's own are set to 0.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_context_rank.
    #[must_use]
    pub fn meron_context_stats(
        out: *mut meron_stats,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Predicts memory and traffic of this rank from the plan and the current units. The counters
    /// of meron_stats grow by exactly these bytes per step of that workload.
    ///
    /// - `workload`: its `ranks` and `optimizer_states` are ignored in favour of the world's size and
    ///   the optimizer's rule.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_context_rank, MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_context_predict(
        out: *mut meron_prediction,
        context: meron_context,
        workload: *const meron_workload,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The flight recorder: the last operations (up to 1,024) of every rank of the world, as
    /// JSON. Works on a broken group too.
    ///
    /// **Ownership**: the caller frees \*out with meron_string_free.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_context_rank.
    #[must_use]
    pub fn meron_context_flight_record(
        out: *mut *mut c_char,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The group of all ranks.
    ///
    /// **Ownership**: the caller releases \*out; the group itself lives as long as the context.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_context_rank.
    #[must_use]
    pub fn meron_context_world(
        out: *mut meron_group,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Creates a group of some ranks. Collective over the world: every rank calls it with the
    /// same list; ranks outside of the list get a null group.
    ///
    /// - `ranks`: `count` world ranks, each once, in the group's order.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: as meron_barrier_begin; if the plan has parameters on tier device, also until the
    /// ranks of the group have called it, because it connects their devices.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (a rank beyond the world or twice), MERON_E_UNSUPPORTED (more
    /// than 64 groups), MERON_E_VERSION (libraries of collectives that differ),
    /// MERON_E_NO_MEMORY, -3xx. A lack of memory on one rank breaks the world, with
    /// MERON_E_NO_MEMORY on all ranks: the error names the rank.
    #[must_use]
    pub fn meron_group_create(
        out: *mut meron_group,
        context: meron_context,
        ranks: *const i32,
        count: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// This rank's number in the group.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_group_rank(
        out: *mut i32,
        group: meron_group,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The number of ranks in the group.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_group_rank.
    #[must_use]
    pub fn meron_group_size(
        out: *mut i32,
        group: meron_group,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// MERON_OK while the group works, else the error that broke it, of any class. So it decides,
    /// after an error of another call, if the program can continue.
    ///
    /// **Blocks**: never; checks if peers are alive.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: the one that broke the group, -3xx, as meron_group_rank.
    #[must_use]
    pub fn meron_group_status(group: meron_group, err: *mut *mut meron_error) -> meron_status;

    /// Breaks the group on every rank: pending waits end with MERON_E_ABORTED, which contains
    /// `reason`.
    ///
    /// - `reason`: NULL or text for people, at most 200 bytes are kept.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_group_rank.
    #[must_use]
    pub fn meron_group_abort(
        group: meron_group,
        reason: *const c_char,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins a barrier: the future ends when every rank of the group has begun it.
    ///
    /// - `out`: receives the future.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: if this rank is 1,024 calls ahead of a peer, until that peer has followed, at most
    /// the deadline; and while another thread of this rank begins an operation.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_group_rank, MERON_E_CANCELLED (nothing was begun), -3xx.
    #[must_use]
    pub fn meron_barrier_begin(
        out: *mut meron_future,
        group: meron_group,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins a broadcast of `bytes` bytes from rank `root` of the group.
    ///
    /// - `data`: memory of the host, read on the root and written elsewhere.
    ///
    /// **Ownership**: `data` must stay valid until the future has ended.
    ///
    /// **Blocks**: as meron_barrier_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, as meron_barrier_begin.
    #[must_use]
    pub fn meron_broadcast_begin(
        out: *mut meron_future,
        group: meron_group,
        data: *mut c_void,
        bytes: usize,
        root: i32,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins an all-reduce of `count` elements in place. Values are combined in rank order, so
    /// that every rank gets the same bits in every run. For small arrays (losses, metrics,
    /// counts): every rank reads all peers' values. For gradients, use meron_reduce_begin.
    ///
    /// - `data`: memory of the host.
    /// - `dtype`: any; equal on all ranks, like `count` and `op`: ranks that differ get
    ///   MERON_E_MISMATCH, which names both calls.
    /// - `op`: sum and mean are computed in f32, those of f64 in f64. A sum of i64 wraps around, as
    ///   in NCCL; its mean is an error. max and min are NaN if a rank's value is NaN, as in
    ///   PyTorch.
    ///
    /// **Ownership**: `data` must stay valid until the future has ended.
    ///
    /// **Blocks**: as meron_barrier_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, as meron_barrier_begin.
    #[must_use]
    pub fn meron_all_reduce_begin(
        out: *mut meron_future,
        group: meron_group,
        data: *mut c_void,
        count: usize,
        dtype: meron_dtype,
        op: meron_reduce_op,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases a group. Params and operations keep it while they need it.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    pub fn meron_group_release(group: meron_group, err: *mut *mut meron_error) -> meron_status;

    /// Fills the first `struct_size` bytes of \*desc with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_param_desc_init(
        desc: *mut meron_param_desc,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Registers a param. Collective over its group: all ranks register the same params in the
    /// same order; a difference is reported with both descriptions.
    ///
    /// - `out`: receives the param.
    /// - `desc`: copied.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: as meron_barrier_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (negative or overflowing shape, unknown dtype), MERON_E_DUPLICATE
    /// (name), MERON_E_HANDLE, MERON_E_STALE, MERON_E_MISMATCH, -3xx.
    #[must_use]
    pub fn meron_param_register(
        out: *mut meron_param,
        context: meron_context,
        desc: *const meron_param_desc,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the information about a param.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_param_get_info(
        out: *mut meron_param_info,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The param's name.
    ///
    /// **Ownership**: borrowed from the param.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_param_get_info.
    #[must_use]
    pub fn meron_param_name(
        out: *mut *const c_char,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases the handle. A param that is in a unit lives as long as the unit.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    pub fn meron_param_release(param: meron_param, err: *mut *mut meron_error) -> meron_status;

    /// Creates a unit and reserves its memory on this rank according to the plan; values are zero
    /// at version 0. The memory of gradients is counted, and checked against the host's free
    /// memory, but the first gradient allocates it: see meron_gradient_view. Collective over the
    /// params' group.
    ///
    /// - `name`: unique in the context, 1 to 512 bytes of UTF-8.
    /// - `params`: `count` params of one group, none of them in a unit.
    ///
    /// **Ownership**: the caller releases \*out; the memory stays until meron_unit_destroy or until
    /// the context is closed, because peers may read it.
    ///
    /// **Blocks**: as meron_barrier_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_DUPLICATE (a param twice, or in a unit already, or the
    /// name), MERON_E_NO_MEMORY (figures), -3xx. In a group of several ranks, a lack of memory on
    /// one of them breaks the group, with MERON_E_NO_MEMORY on all of them: the error names the
    /// rank.
    #[must_use]
    pub fn meron_unit_create(
        out: *mut meron_unit,
        context: meron_context,
        name: *const c_char,
        params: *const meron_param,
        count: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Destroys a unit and its params: releases their memory on the host, on the device and on
    /// the drive, and their names. Collective over the unit's group: all ranks call it, and no
    /// rank creates units or groups meanwhile. All handles of the unit and of its params become
    /// stale; views of its values and gradients must not be read any more.
    ///
    /// **Ownership**: none.
    ///
    /// **Blocks**: while a save copies states, without a deadline; then until every rank has called
    /// it and no rank uses the unit any more, at most the deadline.
    ///
    /// **Threads**: any, one unit at a time.
    ///
    /// **Errors**: MERON_E_STATE, before this rank notifies its peers and before anything has changed
    /// (the unit is gathered, updated, reduced or stepped, or it belongs to a schedule or an
    /// optimizer: release these first; another thread destroys a unit), MERON_E_CANCELLED
    /// (should_stop: call again to continue), MERON_E_HANDLE, MERON_E_STALE (also the second
    /// time), -3xx (names a rank that does not call).
    #[must_use]
    pub fn meron_unit_destroy(unit: meron_unit, err: *mut *mut meron_error) -> meron_status;

    /// Reads the information about a unit.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_unit_get_info(
        out: *mut meron_unit_info,
        unit: meron_unit,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The unit's name.
    ///
    /// **Ownership**: borrowed from the unit, until it is destroyed or the context is closed.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_unit_get_info.
    #[must_use]
    pub fn meron_unit_name(
        out: *mut *const c_char,
        unit: meron_unit,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// A param of the unit, for meron_param_get_info and meron_param_name.
    ///
    /// - `out`: receives a new handle of the param.
    /// - `index`: 0 to meron_unit_info.params - 1, in the order of meron_unit_create.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_unit_get_info; MERON_E_ARGUMENT also for another index.
    #[must_use]
    pub fn meron_unit_param(
        out: *mut meron_param,
        unit: meron_unit,
        index: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the information about a flat of the unit. meron_gather_begin can copy a flat into
    /// the caller's memory as a whole.
    ///
    /// - `out`: struct_size set by the caller.
    /// - `index`: 0 to meron_unit_info.flats - 1, in the order of their first params.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_unit_get_info; MERON_E_ARGUMENT also for another index.
    #[must_use]
    pub fn meron_unit_flat(
        out: *mut meron_flat_info,
        unit: meron_unit,
        index: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases the handle.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    pub fn meron_unit_release(unit: meron_unit, err: *mut *mut meron_error) -> meron_status;

    /// Begins an update of some units: requests that every rank release the current version.
    /// Collective over the units' group. When it has ended, this rank's shards may be written.
    ///
    /// - `out`: receives the update.
    /// - `units`: `count` units of one group, none leased on this rank.
    ///
    /// **Ownership**: the caller ends \*out by meron_update_publish. A release before that cancels
    /// the update: if this rank has waited for it and called neither meron_update_write nor
    /// meron_update_view, its values are published unchanged; otherwise the group breaks with
    /// MERON_E_ABORTED on every rank, because partly written values must not be published and
    /// peers continue the update.
    ///
    /// **Blocks**: as meron_barrier_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_STATE (a unit is leased here or being updated, a step is
    /// pending, or a master is offloaded), MERON_E_DUPLICATE, MERON_E_HANDLE, MERON_E_STALE,
    /// \-3xx.
    #[must_use]
    pub fn meron_update_begin(
        out: *mut meron_future,
        units: *const meron_unit,
        count: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The shard of `param` that this rank updates (the full tensor if the plan replicates the
    /// optimizer states), in the param's dtype, writable, in memory of the host. If the param has
    /// a master, the publication copies all of the view into it.
    ///
    /// **Ownership**: borrowed until meron_update_publish.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (the param is in none of the units), MERON_E_STATE (no call has
    /// waited for the update), MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_update_view(
        out: *mut meron_view,
        update: meron_future,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Writes this rank's shard of `param` from the full tensor. Every rank passes equal values.
    /// Converts between dtypes, and keeps f32 values in the master copy if there is one.
    ///
    /// - `data`: `count` elements, row-major.
    /// - `count`: the param's full element count.
    ///
    /// **Ownership**: `data` is only read, during the call.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_update_view.
    #[must_use]
    pub fn meron_update_write(
        update: meron_future,
        param: meron_param,
        data: *const c_void,
        count: u64,
        dtype: meron_dtype,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Publishes the written shards as the next version and ends the update; the handle becomes
    /// stale. Elements that were not written keep their values.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_STATE (not waited for), MERON_E_HANDLE, MERON_E_STALE, -3xx.
    #[must_use]
    pub fn meron_update_publish(update: meron_future, err: *mut *mut meron_error) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the defaults of a rule, as its INIT
    /// macro does (for languages without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_optimizer_rule_init(
        options: *mut meron_optimizer_options,
        struct_size: usize,
        kind: meron_optimizer_kind,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Creates an optimizer and its states (zero) for the trainable params of some units: the
    /// states of the rule, in the plan's dtype and on its tier, and an f32 master copy if the
    /// params have 16 bits. A master begins with the param's value at this call, and later
    /// updates write it too, so initial values may be written before or after. States on tier
    /// nvme are written once here, so that steps only overwrite existing data; if that takes
    /// long, the log reports the progress. Collective over the units' group.
    ///
    /// - `units`: `count` units of one group. Units whose params are all frozen are passed over, here
    ///   and in the steps; a step needs the gradients of all others.
    /// - `options`: NULL for AdamW with its defaults; else a struct from the INIT macro of its kind.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: as meron_barrier_begin; while a save copies states, without a deadline; also on
    /// this rank's drive if states are on nvme.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (a value out of range, no unit with a trainable param),
    /// MERON_E_DUPLICATE (a unit twice, or in an optimizer already), MERON_E_STATE (a unit is
    /// updated), MERON_E_HANDLE, MERON_E_STALE, -3xx. If this rank cannot hold the states, that
    /// breaks a group of several ranks: MERON_E_NO_MEMORY, and of tier nvme MERON_E_ARGUMENT (an
    /// unusable folder), MERON_E_NOT_FOUND, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT.
    #[must_use]
    pub fn meron_optimizer_create(
        out: *mut meron_optimizer,
        units: *const meron_unit,
        count: usize,
        options: *const meron_optimizer_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Sets the learning rate of the next steps for params of group 0; the same on all ranks (it
    /// is part of the step's fingerprint).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_set_learning_rate(
        optimizer: meron_optimizer,
        learning_rate: f64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Sets max_norm of the next steps: larger gradients are scaled down to it, smaller ones
    /// stay; 0 does not clip. The same on all ranks (it is part of the step's fingerprint).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_set_max_norm(
        optimizer: meron_optimizer,
        max_norm: f64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*group with the initial value, which is AdamW's
    /// (for languages without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_optimizer_group_init(
        group: *mut meron_optimizer_group,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Gives some params their own hyperparameters, for example no weight decay. All ranks must
    /// do the same before the next step, because it is part of the step's fingerprint.
    ///
    /// - `out`: receives the group's number, 1, 2, ...; group 0 has the params of no other group.
    /// - `params`: `count` params that this optimizer trains, all of group 0.
    /// - `group`: copied.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation.
    ///
    /// **Threads**: any, not during a step.
    ///
    /// **Errors**: MERON_E_ARGUMENT (a value out of range, or a group that does not start from one of
    /// this optimizer's rule), MERON_E_DUPLICATE (a param is in a group already), MERON_E_STATE
    /// (a step is pending), MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_add_group(
        out: *mut u32,
        optimizer: meron_optimizer,
        params: *const meron_param,
        count: usize,
        group: *const meron_optimizer_group,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Sets the hyperparameters of a group for the next steps; the same on all ranks.
    ///
    /// - `number`: 0, or a number from meron_optimizer_add_group.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (no such group, or as meron_optimizer_add_group), MERON_E_HANDLE,
    /// MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_set_group(
        optimizer: meron_optimizer,
        number: u32,
        group: *const meron_optimizer_group,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the hyperparameters of a group.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Ownership**: \*out is the caller's, a plain copy.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_optimizer_get_group(
        out: *mut meron_optimizer_group,
        optimizer: meron_optimizer,
        number: u32,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins a step: norm of all gradients of this optimizer (exact, so equal for every number
    /// of ranks), clipping, update of this rank's shards, publication of the next version. Needs
    /// the reduced gradient of every unit, and no lease on any of them on this rank: release
    /// gathers before, also pending ones, and drop schedules. A gather may begin again when the
    /// step has ended here. Collective over the units' group. States on tier nvme are read,
    /// updated and written at the same time, piece by piece; nothing is written before the norm
    /// is known to be finite.
    ///
    /// - `out`: receives the future.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: as meron_barrier_begin; the future waits for a save that copies the states.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_STATE (names the unit that is leased or not reduced; a step is pending;
    /// states are offloaded), MERON_E_HANDLE, MERON_E_STALE, -3xx. From the wait:
    /// MERON_E_NONFINITE on all ranks if the norm is not finite, or if the step would make a
    /// state infinite or a value too large for its dtype. Nothing was changed, the step does not
    /// count, and the gradients are discarded, so that training can continue. Two tiers differ.
    /// On nvme, an overflow that several steps have added up to is found only while it is
    /// written: then this error breaks the group. On device, only gradients are looked at before
    /// the step: a later step whose norm is not finite names a value of f16 that became infinite.
    /// MERON_E_IO and MERON_E_CORRUPT if a drive failed or returned other bytes than were
    /// written: these break the group, so continue from a checkpoint.
    #[must_use]
    pub fn meron_optimizer_step_begin(
        out: *mut meron_future,
        optimizer: meron_optimizer,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Sets the number of steps that the optimizer and all of its params have taken, for an
    /// optimizer that continues from a checkpoint, beside its states
    /// (meron_optimizer_write_state). Adam's bias corrections, the first step of SGD with a
    /// momentum (which takes no average) and the random rounding of states in 16 or 8 bits depend
    /// on it. All ranks set the same number, because the fingerprint of the next step includes
    /// it. Changes nothing else.
    ///
    /// - `steps`: at most 2^53.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, not during a step.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_STATE (a step is pending), MERON_E_HANDLE,
    /// MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_set_steps(
        optimizer: meron_optimizer,
        steps: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Makes the next steps skip some params: their values, states and counts of steps stay as
    /// they are, like those of a torch.optim param whose gradient is None. Replaces the params of
    /// the call before. All ranks give the same params before the next step, whose fingerprint
    /// includes them. Gradients of skipped params still count in the norm. States in 8 bits are
    /// rounded anew if they share a block with a param that is not skipped.
    ///
    /// - `params`: `count` params that this optimizer trains; NULL with a count of 0: no param is
    ///   skipped.
    ///
    /// **Ownership**: the array is copied.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, not during a step.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_STATE (a step is pending), MERON_E_HANDLE,
    /// MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_set_skipped(
        optimizer: meron_optimizer,
        params: *const meron_param,
        count: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the number of steps that a param has taken: those of the optimizer, without the
    /// steps that skipped the param (meron_optimizer_set_skipped).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (not a param of this optimizer), MERON_E_HANDLE, MERON_E_STALE,
    /// MERON_E_FORKED.
    #[must_use]
    pub fn meron_optimizer_param_steps(
        out: *mut u64,
        optimizer: meron_optimizer,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Sets the number of steps that one param has taken, for states that begin anew (0, beside
    /// meron_optimizer_write_state of zeros) or come from elsewhere. All ranks set the same
    /// number, because the fingerprint of the next step includes it. meron_optimizer_set_steps
    /// resets it.
    ///
    /// - `steps`: at most 2^53.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, not during a step.
    ///
    /// **Errors**: MERON_E_ARGUMENT (also for a param that this optimizer does not train),
    /// MERON_E_STATE (a step is pending), MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_set_param_steps(
        optimizer: meron_optimizer,
        param: meron_param,
        steps: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the information about an optimizer.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_optimizer_get_info(
        out: *mut meron_optimizer_info,
        optimizer: meron_optimizer,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// This rank's shard of a state of `param`, if the state is in memory of the host in f32.
    /// Writable, except for a master that is the param itself: that is mapped read-only (write it
    /// through an update).
    ///
    /// **Ownership**: borrowed until the next step, meron_optimizer_offload or
    /// meron_optimizer_release.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, not during a step.
    ///
    /// **Errors**: MERON_E_ARGUMENT (not a param of this optimizer, a state that the rule does not
    /// keep), MERON_E_STATE (the states are offloaded), MERON_E_UNSUPPORTED (it is on nvme or a
    /// device, or in 16 or 8 bits: use meron_optimizer_read_state), MERON_E_HANDLE,
    /// MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_state_view(
        out: *mut meron_view,
        optimizer: meron_optimizer,
        param: meron_param,
        state: meron_optimizer_state,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Copies this rank's shard of a state of `param` in f32, from any tier and dtype.
    ///
    /// - `out`: `count` floats.
    /// - `count`: the param's shard_count (meron_param_get_info).
    ///
    /// **Blocks**: while another thread of this rank begins an operation; if states are on nvme, on
    /// this rank's drive, and while a save copies states, without a deadline.
    ///
    /// **Threads**: any, not during a step.
    ///
    /// **Errors**: MERON_E_ARGUMENT (as meron_optimizer_state_view, or another count), MERON_E_STATE
    /// (a step is pending, the states are offloaded), MERON_E_IO, MERON_E_CORRUPT,
    /// MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_read_state(
        out: *mut f32,
        count: u64,
        optimizer: meron_optimizer,
        param: meron_param,
        state: meron_optimizer_state,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Replaces this rank's shard of a state of `param`, from f32; states of 16 or 8 bits are
    /// rounded to nearest.
    ///
    /// - `data`: `count` floats, only read.
    /// - `count`: the param's shard_count.
    ///
    /// **Blocks**: as meron_optimizer_read_state, and while a save copies states of any tier.
    ///
    /// **Threads**: any, not during a step.
    ///
    /// **Errors**: as meron_optimizer_read_state, MERON_E_ARGUMENT also for a master that is the
    /// param itself (write that through an update).
    #[must_use]
    pub fn meron_optimizer_write_state(
        optimizer: meron_optimizer,
        param: meron_param,
        state: meron_optimizer_state,
        data: *const f32,
        count: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Moves this rank's states in memory, including the f32 master, to this rank's file on a
    /// drive, and frees their memory, for a phase that needs it for something else, like
    /// DeepSpeed's offload_states. Values stay usable. Until meron_optimizer_reload, steps,
    /// updates, saves, loads and reads and writes of states return MERON_E_STATE.
    ///
    /// - `folder`: on a drive; NULL for the plan's nvme.path, or for the folder that already has this
    ///   rank's file.
    ///
    /// **Blocks**: on this rank's drive, and meanwhile other calls of this rank that begin an
    /// operation; while a save copies states, without a deadline; never on peers.
    ///
    /// **Threads**: any. An error changes nothing.
    ///
    /// **Errors**: MERON_E_ARGUMENT (no folder, an unusable one), MERON_E_STATE (a step is pending,
    /// they are offloaded already), MERON_E_UNSUPPORTED (they are on tier device),
    /// MERON_E_NO_SPACE, MERON_E_IO, MERON_E_NOT_FOUND, MERON_E_TIMEOUT, MERON_E_HANDLE,
    /// MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_offload(
        optimizer: meron_optimizer,
        folder: *const c_char,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Restores the states that meron_optimizer_offload moved, bit for bit.
    ///
    /// **Blocks**: as meron_optimizer_offload.
    ///
    /// **Threads**: any. After an error they are still offloaded.
    ///
    /// **Errors**: MERON_E_STATE (they are not offloaded), MERON_E_NO_MEMORY, MERON_E_IO,
    /// MERON_E_CORRUPT (the drive returned other bytes), MERON_E_TIMEOUT, MERON_E_HANDLE,
    /// MERON_E_STALE.
    #[must_use]
    pub fn meron_optimizer_reload(
        optimizer: meron_optimizer,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases the optimizer and its states. A pending step keeps them until it has ended.
    ///
    /// **Blocks**: if states are on nvme, until the writes of the last step have completed, at most 5
    /// s; never on peers.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    pub fn meron_optimizer_release(
        optimizer: meron_optimizer,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*tensor with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_checkpoint_tensor_init(
        tensor: *mut meron_checkpoint_tensor,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_checkpoint_save_options_init(
        options: *mut meron_checkpoint_save_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins to save the states of all units, or of those in the options, as they are now, as
    /// `name` in `folder`. Collective over the world. A thread of the engine copies them into
    /// bounded memory and writes: gathers, forward and backward continue meanwhile. The save
    /// completes without a wait, also if its future is released and the program only computes.
    /// (Over a custom transport between ranks it progresses within calls on the context.) The
    /// futures of a step or an update of a unit wait until the unit is copied, and so does a
    /// reduction with a codec that keeps feedback. Until all units are copied, these calls wait:
    /// meron_optimizer_create, meron_optimizer_write_state, meron_optimizer_read_state of tier
    /// nvme, meron_optimizer_offload, meron_optimizer_reload and meron_unit_destroy. Views of
    /// states must not be written before that. The counts of steps and the hyperparameters are
    /// those of the call. After a failure on any rank (a full disk) the future returns the error
    /// on all ranks, and the error names that rank. If some rank has not waited for the future,
    /// the begin of the next save returns the error once more, on all ranks, and begins nothing;
    /// the save after that is a new one. A failure of the last save that no wait returned is
    /// logged by meron_context_close. Existing checkpoints stay, and training can continue. One
    /// save at a time: the next save, and a load, wait for the previous one. Closing the context
    /// waits for it too. A save within an accumulation, or between a reduction and its step, has
    /// what the last update left: gradients are not saved, and stay as they are. A codec's
    /// feedback that replicas' exchange of such a gradient has changed is not saved either: it
    /// starts from zero after a load. A cancelled wait for the future does not affect the save. A
    /// rank that makes no progress for twice the context's timeout breaks the group
    /// (MERON_E_TIMEOUT); a slow rank does not, nor do steps that wait for it. With `per_node` a
    /// node's folder has the files of its ranks, and the manifest of all
    /// (docs/checkpoint-format.md): the checkpoint exists after every node has renamed its
    /// folder; a name that only some nodes have, because a host died meanwhile, is free. A killed
    /// save never takes its name: what it leaves is hidden, and the next save removes it.
    /// meron_checkpoint_cancel_save cancels a save.
    ///
    /// - `out`: receives the future.
    /// - `folder`: a directory that all ranks see; created, with its parents, if it does not exist.
    ///   With `per_node`, a directory that all ranks of the node see.
    /// - `name`: one component of a path, not hidden, at most 200 bytes of UTF-8.
    /// - `options`: NULL for the values alone: without `optimizers`, a load restores no training.
    ///
    /// **Ownership**: texts and arrays are copied; the memory at a tensor's `data` must not change
    /// until meron_checkpoint_wait_copied; the caller releases \*out.
    ///
    /// **Blocks**: as meron_barrier_begin; also until the previous save has ended, without a
    /// deadline, and until reductions under way that change feedback have ended.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_DUPLICATE (an optimizer or a unit twice), MERON_E_PARSE
    /// (`mapping`), MERON_E_STATE (a unit is gathered, also by a schedule that keeps it, or
    /// updated; a step is pending; states are offloaded), MERON_E_UNSUPPORTED (a unit of some
    /// ranks only), MERON_E_HANDLE, MERON_E_STALE, -3xx, and any of the previous save. From the
    /// future: MERON_E_ARGUMENT (an invalid name, `mapping`, tensors that do not fit each other),
    /// MERON_E_PARSE (`extra` is no JSON object), MERON_E_DUPLICATE (the name is taken),
    /// MERON_E_STATE (another process saves that name), MERON_E_NO_SPACE, MERON_E_IO,
    /// MERON_E_NO_MEMORY, MERON_E_NOT_FOUND, MERON_E_TIMEOUT, MERON_E_CANCELLED
    /// (meron_checkpoint_cancel_save), MERON_E_CLOSED, -3xx.
    #[must_use]
    pub fn meron_checkpoint_save_begin(
        out: *mut meron_future,
        context: meron_context,
        folder: *const c_char,
        name: *const c_char,
        options: *const meron_checkpoint_save_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Waits until the pending save has copied all its data: then the caller's tensors may
    /// change. Returns MERON_OK also if no save is pending, or if it has failed;
    /// MERON_IN_PROGRESS if timeout_ns passed first.
    ///
    /// - `timeout_ns`: nanoseconds; MERON_TIMEOUT_DEFAULT: without bound.
    ///
    /// **Blocks**: on the drive; by default without a deadline.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_checkpoint_wait_copied(
        context: meron_context,
        timeout_ns: i64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Cancels the pending save. Any rank may do so, without the others: all of them stop
    /// writing, and the save's future ends on each with MERON_E_CANCELLED, whose peer is a rank
    /// that cancelled. If all ranks have written their files by then, the save succeeds instead,
    /// on all of them. A cancelled save leaves no files, also with `overwrite` and `keep`:
    /// earlier checkpoints stay as they were. If a process is killed meanwhile, a hidden
    /// directory may remain (.saving-...), which the next save removes. The next save does not
    /// report the cancelled one. It begins nothing and waits for nothing: wait for the future.
    /// Returns MERON_OK also if no save is pending.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_CLOSED, MERON_E_FORKED.
    #[must_use]
    pub fn meron_checkpoint_cancel_save(
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the progress of the pending save, or of the last one.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Ownership**: the caller's.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_checkpoint_get_progress(
        out: *mut meron_checkpoint_progress,
        context: meron_context,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_checkpoint_write_options_init(
        options: *mut meron_checkpoint_write_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Writes tensors as a checkpoint of one rank, for importers of other formats. `data` is read
    /// once and in order, so it may be mapped files.
    ///
    /// - `folder`: , name  as meron_checkpoint_save_begin.
    ///
    /// **Ownership**: everything is only read, during the call.
    ///
    /// **Blocks**: on the drive.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_PARSE (`extra`, `optimizers`), MERON_E_DUPLICATE,
    /// MERON_E_STATE, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT.
    #[must_use]
    pub fn meron_checkpoint_write(
        folder: *const c_char,
        name: *const c_char,
        options: *const meron_checkpoint_write_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_checkpoint_load_options_init(
        options: *mut meron_checkpoint_load_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Loads a checkpoint into all units, or those in the options, and into their optimizers: see
    /// the top of checkpoint.h. Collective over the world. Before anything changes, all ranks
    /// have compared names, shapes and optimizers, and opened the files: such an error is one on
    /// all ranks and changes nothing, so that a program can begin anew after MERON_E_NOT_FOUND. A
    /// later error, also a wait that should_stop ended (MERON_E_ABORTED), is an error on all
    /// ranks and breaks the group, because states are of two checkpoints. When it ends on one
    /// rank, no rank reads the files any more. With `per_node` the newest checkpoint is the
    /// newest that has all its files in the nodes' folders together; the numbers of nodes and
    /// ranks may differ from those at the save, and a node may have the files of several.
    ///
    /// - `out`: receives the loaded checkpoint.
    /// - `folder`: of checkpoints, or one of them; or a model as Hugging Face publishes it, a
    ///   directory or one file, with `values_only`.
    /// - `name`: NULL for the newest complete one of the line that was saved to last. Incomplete ones
    ///   are passed over, which the log says; a damaged one that may be newer is an error.
    /// - `options`: NULL for a checkpoint that was saved without optimizers.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: until a pending save has ended, without a deadline; on the drive and on all ranks;
    /// other threads of this rank that begin an operation wait. A rank that makes no progress for
    /// twice the context's timeout ends the load (MERON_E_TIMEOUT, which names it); raise the
    /// timeout for such slow drives.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_NOT_FOUND (the folder or the name does not exist, or no checkpoint in it
    /// is complete), MERON_E_CORRUPT (names tensor, file and offset), MERON_E_PARSE (`mapping`, a
    /// manifest), MERON_E_VERSION (of a newer version), MERON_E_ARGUMENT (it does not fit: the
    /// message lists missing, unexpected and different shapes), MERON_E_DUPLICATE, MERON_E_STATE
    /// and MERON_E_UNSUPPORTED as meron_checkpoint_save_begin, MERON_E_STATE also for a gradient
    /// in another state than empty, MERON_E_IO, MERON_E_NO_MEMORY, MERON_E_AUTH (its manifest is
    /// a symbolic link; links of a Hugging Face model are followed), MERON_E_HANDLE,
    /// MERON_E_STALE, -3xx.
    #[must_use]
    pub fn meron_checkpoint_load(
        out: *mut meron_checkpoint,
        context: meron_context,
        folder: *const c_char,
        name: *const c_char,
        options: *const meron_checkpoint_load_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Opens a checkpoint, or a model as Hugging Face publishes it, to inspect it and to read
    /// tensors.
    ///
    /// - `out`: receives the checkpoint.
    /// - `folder`: , name   as meron_checkpoint_load.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: on the drive.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_NOT_FOUND, MERON_E_CORRUPT, MERON_E_PARSE, MERON_E_VERSION,
    /// MERON_E_ARGUMENT, MERON_E_AUTH (its manifest is a symbolic link), MERON_E_IO,
    /// MERON_E_NO_MEMORY.
    #[must_use]
    pub fn meron_checkpoint_open(
        out: *mut meron_checkpoint,
        folder: *const c_char,
        name: *const c_char,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Lists the complete checkpoints in a folder. Incomplete and damaged ones, links, and
    /// everything that is no checkpoint are left out.
    ///
    /// - `out`: receives JSON: an array of objects, the newest first, in the order in which a load
    ///   chooses. Each has "name", "step" (the caller's count), "world" (ranks that saved it),
    ///   "bytes" (of its files), "created" (UTC, such as "2026-11-28T19:00:00Z"), and "whole":
    ///   false if params, states or units were left out.
    /// - `folder`: a directory of checkpoints.
    ///
    /// **Ownership**: the caller frees \*out with meron_string_free.
    ///
    /// **Blocks**: on the drive.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_NOT_FOUND (no such folder), MERON_E_IO,
    /// MERON_E_NO_MEMORY.
    #[must_use]
    pub fn meron_checkpoint_list(
        out: *mut *mut c_char,
        folder: *const c_char,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Removes a checkpoint, complete or not, with all that is in its directory. It loses its
    /// name first: if the process is killed or the host loses power, the checkpoint is there as
    /// before or gone, and the next save removes what remains. Any one process may call it,
    /// beside a job that saves to the folder; ranks need not agree. If each node has its own
    /// folder, remove it in each.
    ///
    /// - `folder`: a directory of checkpoints.
    /// - `name`: of the checkpoint. It may be the newest: a load then takes the one before.
    ///
    /// **Blocks**: on the drive; at most half a minute while a save begins or ends in the folder.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (an invalid name; it is no checkpoint, and stays),
    /// MERON_E_NOT_FOUND, MERON_E_AUTH (the name is a symbolic link), MERON_E_STATE (a save of
    /// that name is pending, or a process reads the checkpoint or has not released a
    /// meron_checkpoint of it; file systems without locks, such as some over a network, cannot
    /// tell), MERON_E_PARSE, MERON_E_CORRUPT and MERON_E_VERSION (its manifest cannot be read:
    /// remove it by hand), MERON_E_IO, MERON_E_TIMEOUT.
    #[must_use]
    pub fn meron_checkpoint_remove(
        folder: *const c_char,
        name: *const c_char,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the information about a checkpoint.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_checkpoint_get_info(
        out: *mut meron_checkpoint_info,
        checkpoint: meron_checkpoint,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// A text of a checkpoint.
    ///
    /// - `out`: receives it.
    ///
    /// **Ownership**: borrowed from the checkpoint.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_checkpoint_text(
        out: *mut *const c_char,
        checkpoint: meron_checkpoint,
        kind: meron_checkpoint_text_kind,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads elements of a tensor in the files' dtype, after a comparison of their checksums.
    /// Local: no other rank takes part.
    ///
    /// - `data`: receives `count` elements.
    /// - `bytes`: of `data`: must be `count` times the size of an element of the tensor's dtype.
    /// - `kind`: NULL: "values".
    /// - `begin`: first element, row-major.
    ///
    /// **Ownership**: the caller owns `data`.
    ///
    /// **Blocks**: on the drive.
    ///
    /// **Threads**: any; one at a time reads.
    ///
    /// **Errors**: MERON_E_NOT_FOUND (no such tensor, a file is gone), MERON_E_ARGUMENT (outside of
    /// the tensor), MERON_E_CORRUPT, MERON_E_IO, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_checkpoint_read(
        data: *mut c_void,
        bytes: u64,
        checkpoint: meron_checkpoint,
        kind: *const c_char,
        name: *const c_char,
        begin: u64,
        count: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases a checkpoint; loaded states stay.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    pub fn meron_checkpoint_release(
        checkpoint: meron_checkpoint,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_checkpoint_export_options_init(
        options: *mut meron_checkpoint_export_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Writes the values of all units as Hugging Face publishes models: model.safetensors, or
    /// several files and model.safetensors.index.json. Collective over the world; each rank
    /// writes its own shard of each tensor in place, so nothing is gathered. If a param has an
    /// f32 master and its own dtype is not the written one, the master is the source: MERON_F32
    /// writes the masters. A tensor that layers share is one param and written once. A unit whose
    /// params the mapping leaves out may be in use. At every moment, also if a rank is killed,
    /// the folder has the former model or the new one. Its other files are unchanged, and the
    /// next export removes the files of a killed one. NaNs are written as they are.
    ///
    /// - `folder`: a directory that all ranks see; created if it does not exist.
    /// - `options`: NULL for the initial value.
    ///
    /// **Ownership**: everything is only read, during the call.
    ///
    /// **Blocks**: until a pending save has ended, on the drive and on all ranks, without a deadline;
    /// other threads of this rank that begin an operation wait.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT and MERON_E_PARSE (the mapping or a tensor, two tensors of one
    /// name, nothing to export), MERON_E_DUPLICATE (a model exists), MERON_E_STATE (another
    /// export to the folder is pending; and as meron_checkpoint_save_begin), MERON_E_UNSUPPORTED
    /// as that, MERON_E_NO_SPACE, MERON_E_IO, MERON_E_TIMEOUT, MERON_E_HANDLE, MERON_E_STALE,
    /// \-3xx.
    #[must_use]
    pub fn meron_checkpoint_export(
        context: meron_context,
        folder: *const c_char,
        options: *const meron_checkpoint_export_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_gather_options_init(
        options: *mut meron_gather_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins a gather. Collective over the units' group; the mode may differ between ranks. When
    /// it has ended, the tensors are full, those on a device too. A wait makes the requested
    /// copy, and may end with MERON_E_NO_MEMORY (the device is full: only this rank is concerned,
    /// and everything else stays usable) or MERON_E_DEVICE.
    ///
    /// - `out`: receives the gather, which holds a lease on every unit.
    /// - `units`: `count` units of one group.
    /// - `options`: NULL for a view.
    ///
    /// **Ownership**: the caller releases \*out, which releases the leases; destinations must stay
    /// valid until it has ended or is released. A release cancels a pending gather, and makes
    /// views invalid: on a device the caller must first wait for all work that uses them (or see
    /// meron_gather_release_on_stream).
    ///
    /// **Blocks**: as meron_barrier_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (also a destination on another device), MERON_E_DUPLICATE (a unit
    /// or a flat twice; a param with a destination of its own and one of its flat), MERON_E_STATE
    /// (a unit is being updated here, or a step is pending), MERON_E_NO_MEMORY (a copy),
    /// MERON_E_DEVICE, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, -3xx.
    #[must_use]
    pub fn meron_gather_begin(
        out: *mut meron_future,
        units: *const meron_unit,
        count: usize,
        options: *const meron_gather_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Makes `stream` wait until the tensors are full on the device: later work on the stream
    /// sees them. Does not wait for the device; for tensors on the host it is meron_future_wait.
    ///
    /// - `stream`: of the context's device (a cudaStream_t); NULL: its default stream.
    /// - `timeout_ns`: as meron_future_wait, of the wait for peers.
    ///
    /// **Blocks**: on peers, at most the deadline.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as of a wait for the gather; MERON_E_ARGUMENT (the context has no device, a stream
    /// of another one), MERON_E_STATE (the stream is being captured into a graph).
    #[must_use]
    pub fn meron_gather_wait_stream(
        gather: meron_future,
        stream: *mut c_void,
        timeout_ns: i64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The full tensor of a param of a gather that has ended. On a device, a call of
    /// meron_future_wait or meron_gather_wait_stream must have waited for the gather, and the
    /// pointer is one of the device.
    ///
    /// **Ownership**: borrowed until meron_future_release. Read-only for MERON_GATHER_VIEW, because
    /// it is the memory of the values, which other ranks may read. On the host it is mapped
    /// read-only under every plan: a write ends the process by a segmentation fault. A device
    /// does not protect its memory: a write there damages the values. Gather with
    /// MERON_GATHER_COPY or MERON_GATHER_INTO to change values; the tensor is then in the copy,
    /// or in the destination of the param or of its flat.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (not in this gather), MERON_E_STATE (not full yet, or on a device
    /// and no call has waited for it), MERON_E_DEVICE, MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_gather_view(
        out: *mut meron_view,
        gather: meron_future,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The same as a DLPack tensor (version 1.x; of the CPU or of a CUDA device), with a separate
    /// lease that its deleter releases. Its flags are read-only for MERON_GATHER_VIEW; a consumer
    /// that ignores them, as PyTorch does, must not write: see meron_gather_view.
    /// MERON_GATHER_INTO is an error: that memory is the caller's. On a device it may be taken
    /// before a call has waited; work that waits for the gather may read it.
    ///
    /// **Ownership**: the caller calls (\*out)-\>deleter(\*out) once. Until then the memory stays
    /// readable, also after the context was closed; peers may change the values from then on. On
    /// a device, work that was requested before the deleter's call may still use the memory, on
    /// streams that have waited for the gather (meron_gather_wait_stream): these must exist then,
    /// and must not be captured into a graph.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_gather_view, MERON_E_UNSUPPORTED.
    #[must_use]
    pub fn meron_gather_dlpack(
        out: *mut *mut DLManagedTensorVersioned,
        gather: meron_future,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// As meron_future_release, if queued work of `stream` still uses the views: their memory on
    /// the device is released when that work is done. DLPack tensors keep theirs.
    ///
    /// - `stream`: of the context's device; NULL: its default stream.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT and MERON_E_STATE as meron_gather_wait_stream (then nothing is
    /// released), MERON_E_DEVICE, MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_gather_release_on_stream(
        gather: meron_future,
        stream: *mut c_void,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_io_options_init(
        options: *mut meron_io_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Opens a queue to the kernel, with the threads that serve it.
    ///
    /// - `options`: NULL for the defaults.
    ///
    /// **Ownership**: the caller closes \*out.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (a value out of range), MERON_E_UNSUPPORTED
    /// (MERON_IO_BACKEND_URING if the host forbids io_uring: the message names the cause),
    /// MERON_E_NO_MEMORY, MERON_E_FORKED.
    #[must_use]
    pub fn meron_io_open(
        out: *mut meron_io,
        options: *const meron_io_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads `bytes` bytes of a file from `offset` on, and waits for them. Offset, length and
    /// memory need no alignment. Full pages bypass the page cache if the file system allows it
    /// and memory and file have the same alignment, for example both at multiples of the page.
    /// The rest uses the page cache.
    ///
    /// - `path`: of a regular file or a block device, in the host's notation.
    /// - `data`: `bytes` bytes of the caller's memory; may be NULL if `bytes` is 0.
    /// - `offset`: in bytes from the beginning of the file.
    ///
    /// **Ownership**: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still write
    /// to it, until meron_io_wait or meron_io_close has returned.
    ///
    /// **Blocks**: on the drive, until the options' timeout_ns has passed without any transfer, and
    /// on the file system while the file is opened.
    ///
    /// **Threads**: any; no pending request may write the same bytes.
    ///
    /// **Errors**: MERON_E_NOT_FOUND, MERON_E_IO (the file is too short: the message has the file,
    /// the offset, the requested bytes and the available ones; or the error of the drive),
    /// MERON_E_ARGUMENT (no regular file), MERON_E_TIMEOUT, MERON_E_NO_MEMORY, MERON_E_CLOSED
    /// (meanwhile), MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_io_read(
        io: meron_io,
        path: *const c_char,
        data: *mut c_void,
        bytes: u64,
        offset: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Writes `bytes` bytes to a file from `offset` on, and waits until the kernel has accepted
    /// them. Creates the file if it does not exist, with mode 0666 less the umask. Other content
    /// of the file stays, and the file is not truncated. Data that must survive a loss of power
    /// needs a sync by the caller. A file that has to grow gets its disk space before anything is
    /// written.
    ///
    /// - `path`: as meron_io_read.
    /// - `data`: `bytes` bytes, only read; may be NULL if `bytes` is 0.
    /// - `offset`: as meron_io_read; earlier bytes that were never written read as 0.
    ///
    /// **Ownership**: the memory stays the caller's; after MERON_E_TIMEOUT the drive may still read
    /// it, as meron_io_read.
    ///
    /// **Blocks**: as meron_io_read.
    ///
    /// **Threads**: any; no pending request may read or write the same bytes.
    ///
    /// **Errors**: as meron_io_read, MERON_E_NO_SPACE (a file that had to grow keeps its size),
    /// MERON_E_NOT_FOUND if the directory does not exist.
    #[must_use]
    pub fn meron_io_write(
        io: meron_io,
        path: *const c_char,
        data: *const c_void,
        bytes: u64,
        offset: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins a read. Requests begin in the order of the calls, run at the same time and end in
    /// any order: wait for a request before you begin another that depends on it. A request is a
    /// future. A wait for it ends also after the options' timeout_ns without any transfer
    /// (MERON_E_TIMEOUT: it is still pending), with MERON_E_IO or MERON_E_NO_SPACE (both name
    /// file, offset and bytes; meron_io_wait does not report them again), or with MERON_E_CLOSED
    /// (the io was closed before it ended). A pending request continues after its release: its
    /// memory must stay valid, and meron_io_wait or meron_io_close returns its result.
    ///
    /// - `out`: receives the request.
    /// - `path`: as meron_io_read.
    /// - `data`: as meron_io_read.
    /// - `offset`: as meron_io_read.
    ///
    /// **Ownership**: the caller releases \*out; the memory must stay until the request has ended
    /// (the memory of a meron_io_buffer does so by itself).
    ///
    /// **Blocks**: on the file system while the file is opened, never on the transfer.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_io_read; a wait returns the errors of the drive.
    #[must_use]
    pub fn meron_io_read_begin(
        out: *mut meron_future,
        io: meron_io,
        path: *const c_char,
        data: *mut c_void,
        bytes: u64,
        offset: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins a write. This call creates the file and lets it grow.
    ///
    /// - `out`: receives the request.
    /// - `path`: as meron_io_write.
    /// - `data`: as meron_io_write.
    /// - `offset`: as meron_io_write.
    ///
    /// **Ownership**: as meron_io_read_begin; the memory must not change until the request has ended.
    ///
    /// **Blocks**: as meron_io_read_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_io_write; a wait returns the errors of the drive.
    #[must_use]
    pub fn meron_io_write_begin(
        out: *mut meron_future,
        io: meron_io,
        path: *const c_char,
        data: *const c_void,
        bytes: u64,
        offset: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Waits for all requests that no call has waited for, also for those with a released handle.
    /// Returns MERON_IN_PROGRESS if timeout_ns passed first; the requests continue.
    ///
    /// - `timeout_ns`: nanoseconds; MERON_TIMEOUT_DEFAULT: as long as transfers progress; 0: only
    ///   polls.
    ///
    /// **Blocks**: on the drive, until the options' timeout_ns has passed without any transfer.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: after all have ended, their first error, which names its file and the number of
    /// other failures; MERON_E_TIMEOUT: no transfer progresses, and they are still pending;
    /// MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_io_wait(
        io: meron_io,
        timeout_ns: i64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the information about an io.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_io_get_info(
        out: *mut meron_io_info,
        io: meron_io,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Describes the speed for people, one line per fact: the backend and the kernel's grants,
    /// the reason if it is not a faster one, and the files that use the page cache with the
    /// reason.
    ///
    /// **Ownership**: the caller frees \*out with meron_string_free.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_NO_MEMORY, MERON_E_HANDLE, MERON_E_STALE,
    /// MERON_E_FORKED.
    #[must_use]
    pub fn meron_io_describe(
        out: *mut *mut c_char,
        io: meron_io,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Closes the io after pending requests have ended; its handle is stale at once. Requests and
    /// buffers stay until they are released.
    ///
    /// **Ownership**: memory of requests is the caller's again, unless this returns MERON_E_CLOSED or
    /// MERON_E_TIMEOUT: a drive has not returned some of it and may still use it.
    ///
    /// **Blocks**: on the drive, at most 5 s, or 10 s if it does not answer at all.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED, and, although the io is closed, the
    /// first error of requests that no call has waited for.
    pub fn meron_io_close(io: meron_io, err: *mut *mut meron_error) -> meron_status;

    /// Allocates pinned memory of `bytes` bytes, which read as 0. Reads and writes are fastest
    /// with it, although they accept any memory.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: until the host has allocated the memory.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (no bytes), MERON_E_NO_MEMORY (the host, its cgroup or a limit),
    /// MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED. If the kernel does not register it, it
    /// works unregistered (meron_io_describe has the reason).
    #[must_use]
    pub fn meron_io_buffer_create(
        out: *mut meron_io_buffer,
        io: meron_io,
        bytes: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Address and size of a buffer.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Ownership**: the memory is borrowed until meron_io_buffer_release.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_io_buffer_get_info(
        out: *mut meron_io_buffer_info,
        buffer: meron_io_buffer,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases a buffer. Its memory is freed after the last request that uses it has ended and a
    /// call has waited for that request. The buffer outlives its io if that is closed first.
    ///
    /// **Blocks**: never on the drive.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    pub fn meron_io_buffer_release(
        buffer: meron_io_buffer,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The memory in this rank's bucket for the gradient of `param`, writable, in memory of the
    /// host: the trainer adds to it. Under a plan that shards gradients it is zero at the start
    /// of each micro-batch. Under one that keeps them full it is zero at the start of an
    /// accumulation, and later has the sum of the micro-batches so far: always add then. Its
    /// dtype is the plan's gradient dtype. With "auto", the default, that is the param's own;
    /// full gradients of a 16-bit param are f32 from the second micro-batch on.
    ///
    /// - `flags`: 0, or MERON_GRADIENT_OVERWRITE if the view would be zero: it is not cleared, and
    ///   may have old values. The first call for the param in a micro-batch counts.
    ///
    /// **Ownership**: borrowed until meron_reduce_begin of the unit.
    ///
    /// **Blocks**: on peers that still read the bucket's last contents, at most the deadline. The
    /// unit's first gradient allocates the memory of gradients, which meron_unit_create has only
    /// counted.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_STATE (frozen, not in a unit, the gradient is reduced
    /// and not used, or all buckets are being filled), MERON_E_UNSUPPORTED (the gradient is
    /// summed on the device: pass sources to meron_reduce_begin), MERON_E_NO_MEMORY (nothing has
    /// changed: the call may be made again), MERON_E_HANDLE, MERON_E_STALE, MERON_E_CANCELLED (no
    /// bucket is taken), -3xx, also of another group if its reduction keeps the buckets.
    #[must_use]
    pub fn meron_gradient_view(
        out: *mut meron_view,
        param: meron_param,
        flags: u64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_reduce_options_init(
        options: *mut meron_reduce_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Begins the reduction of a unit's gradients of one micro-batch. Collective over the unit's
    /// group. Under a plan that keeps full gradients, a call with boundary 0 only accumulates: no
    /// communication.
    ///
    /// - `out`: receives the future. NULL: no wait for this reduction alone. It progresses in every
    ///   wait of this rank, the unit's next gradient waits for it, and its failure breaks the
    ///   group. Before a step, call meron_reduce_wait.
    /// - `sources`: NULL: the bucket was filled through meron_gradient_view. Else `count` gradients;
    ///   params without one count as zero.
    /// - `options`: NULL for a mean at the boundary.
    ///
    /// **Ownership**: the caller releases \*out; sources on the host are read during the call, those
    /// on the device until the reduction has ended: do not change these before a wait for the
    /// future, or meron_reduce_wait, has returned.
    ///
    /// **Blocks**: as meron_barrier_begin; from another state than filling, also as
    /// meron_gradient_view; if a device has the codec's feedback, also while a save copies
    /// states.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (a wrong count, a param of another unit, a source on another
    /// device), MERON_E_DEVICE, MERON_E_DUPLICATE, MERON_E_STATE (reduced already and not used,
    /// or all params frozen), MERON_E_HANDLE, MERON_E_STALE, -3xx; and as meron_gradient_view.
    #[must_use]
    pub fn meron_reduce_begin(
        out: *mut meron_future,
        unit: meron_unit,
        sources: *const meron_source,
        count: usize,
        options: *const meron_reduce_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Waits until the last reduction and the last end of an accumulation of each unit have
    /// ended, also those without a future. One call for many units. Returns MERON_IN_PROGRESS if
    /// timeout_ns passed first; all operations continue.
    ///
    /// - `units`: `count` units, also of several groups; a unit with no reduction counts as done.
    /// - `timeout_ns`: of the whole call; as in meron_future_wait.
    ///
    /// **Blocks**: as meron_future_wait.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_future_wait; MERON_E_ARGUMENT (no unit), MERON_E_HANDLE (units of several
    /// contexts).
    #[must_use]
    pub fn meron_reduce_wait(
        units: *const meron_unit,
        count: usize,
        timeout_ns: i64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The reduced gradient of the shard of `param` that this rank updates, f32, writable, in
    /// memory of the host: a sum on the device is copied there, and back by a step. It is for
    /// trainers with their own optimizer, or for changes: a step of Meron's optimizer computes
    /// norm, clipping and its test for NaN and infinity from the current content.
    ///
    /// **Ownership**: borrowed until the next gradient of the unit is begun, a step, or
    /// meron_reduce_discard.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation, and while a device
    /// copies the sum.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_STATE (no boundary reduction has ended), MERON_E_DEVICE, MERON_E_ARGUMENT,
    /// MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_reduced_view(
        out: *mut meron_view,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The same as a DLPack tensor (version 1.x, of the CPU): one dimension, the param's
    /// shard_count elements of f32, writable. The gradient is lent until its deleter is called:
    /// until then a step, meron_reduce_consume, meron_reduce_discard and meron_unit_destroy of
    /// the unit return MERON_E_STATE.
    ///
    /// **Ownership**: the caller calls (\*out)-\>deleter(\*out) once, on any thread; until then the
    /// memory stays valid, also after the context was closed.
    ///
    /// **Blocks**: as meron_reduced_view; the deleter never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: as meron_reduced_view; MERON_E_STATE also while a step uses the gradient.
    #[must_use]
    pub fn meron_reduced_dlpack(
        out: *mut *mut DLManagedTensorVersioned,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Computes the global 2-norm of the reduced gradients of some units, and scales them to at
    /// most `max_norm`, for an optimizer of the trainer's own: as torch.nn.utils.clip_grad_norm_.
    /// The norm is exact, so that it has the same bits for every number of ranks and every plan.
    /// Norm and scaled gradients have the bits with which a step of Meron's optimizer with
    /// `max_norm` works. Collective over the units' group, with equal units and max_norm.
    ///
    /// - `out`: receives the norm before scaling, equal on all ranks.
    /// - `units`: `count` units of one group, each with a reduced gradient. Units whose params are
    ///   all frozen are passed over.
    /// - `max_norm`: gradients are multiplied, in f32, by max_norm / (norm + 1e-6) if that is below
    ///   1; 0: they are only measured.
    ///
    /// **Ownership**: none. Views of meron_reduced_view stay valid, and must not be written
    /// meanwhile; until the call has ended, a new one is MERON_E_STATE. On a device, gradients
    /// travel to the host: see meron_reduced_view.
    ///
    /// **Blocks**: until every rank has called it, at most the deadline.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_NONFINITE on all ranks (a gradient is NaN or infinite: the message has
    /// param, element and rank, of a gradient on a device unit and rank; no gradient is changed,
    /// so meron_reduce_discard them), MERON_E_ARGUMENT (no unit, no unit that trains, a negative
    /// or infinite max_norm), MERON_E_DUPLICATE (a unit twice), MERON_E_STATE (names the unit
    /// that is not reduced, or is in use by a step), MERON_E_CANCELLED (should_stop: the
    /// gradients are scaled once all peers have called it), MERON_E_NO_MEMORY (the call may be
    /// made again), MERON_E_DEVICE, MERON_E_MISMATCH, MERON_E_HANDLE, MERON_E_STALE, -3xx.
    #[must_use]
    pub fn meron_gradient_clip(
        out: *mut f64,
        units: *const meron_unit,
        count: usize,
        max_norm: f64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Ends an accumulation without another micro-batch: all of them had boundary 0, and the
    /// result has the same bits as if the last one had boundary 1. Under a plan that shards
    /// gradients, no bytes move and the sum is scaled; under a plan that keeps full gradients,
    /// the accumulated gradient is reduced. A rank without a gradient contributes zeros.
    /// Collective over the unit's group.
    ///
    /// - `out`: receives the future; NULL as in meron_reduce_begin. When it has ended, the gradient
    ///   is reduced.
    /// - `options`: op and divisor; boundary must be 1. NULL for a mean.
    ///
    /// **Ownership**: the caller releases \*out.
    ///
    /// **Blocks**: as meron_barrier_begin; if the end moves gradients, also as meron_reduce_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_STATE (the gradient is written but not passed to
    /// meron_reduce_begin, or reduced and not used, or all params are frozen), MERON_E_NO_MEMORY
    /// (as meron_gradient_view), MERON_E_HANDLE, MERON_E_STALE, -3xx.
    #[must_use]
    pub fn meron_reduce_finish_begin(
        out: *mut meron_future,
        unit: meron_unit,
        options: *const meron_reduce_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Declares the reduced gradient of a unit as used by an optimizer of the trainer's own. If
    /// the codec has feedback, the next gradient makes up for what was lost of this one.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_STATE (there is none, or a reduction or step is pending), MERON_E_HANDLE,
    /// MERON_E_STALE.
    #[must_use]
    pub fn meron_reduce_consume(unit: meron_unit, err: *mut *mut meron_error) -> meron_status;

    /// Throws the reduced gradient of a unit away, or before the accumulation boundary the
    /// accumulation: then all ranks of the group must do the same. The codec's feedback, which is
    /// of this gradient, is thrown away too. Call meron_reduce_consume instead if an optimizer
    /// has used the gradient.
    ///
    /// **Blocks**: while another thread of this rank begins an operation and, if there is feedback,
    /// while a save copies it.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_STATE (there is neither, or a reduction or step is pending),
    /// MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_reduce_discard(unit: meron_unit, err: *mut *mut meron_error) -> meron_status;

    /// Multiplies the codec's feedback, which is what it has lost of gradients so far. Call it if
    /// a loss scale changes that is not a part of options.divisor, with the new scale divided by
    /// the old one. Does nothing if the plan has no feedback.
    ///
    /// - `factor`: of the next gradients to those before, 0 or more; 0 drops the feedback.
    ///
    /// **Blocks**: while another thread of this rank begins an operation and, if there is feedback,
    /// while a save copies it.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (the factor), MERON_E_STATE (a reduction is pending),
    /// MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_reduce_scale_feedback(
        unit: meron_unit,
        factor: f64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Fills the first `struct_size` bytes of \*options with the initial value (for languages
    /// without macros).
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT.
    #[must_use]
    pub fn meron_schedule_options_init(
        options: *mut meron_schedule_options,
        struct_size: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Creates a schedule of some units. Later calls use a unit by its index. Collective over the
    /// units' group: units and options are equal on all ranks.
    ///
    /// - `out`: receives the schedule.
    /// - `units`: `count` units of one group, at least one.
    /// - `options`: NULL for the defaults.
    ///
    /// **Ownership**: the caller releases \*out; a stream in the options must live as long as the
    /// schedule.
    ///
    /// **Blocks**: as meron_barrier_begin.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (also options that were not initialized, and a stream of another
    /// device), MERON_E_DUPLICATE (a unit twice), MERON_E_HANDLE, MERON_E_STALE, -3xx.
    #[must_use]
    pub fn meron_schedule_create(
        out: *mut meron_schedule,
        units: *const meron_unit,
        count: usize,
        options: *const meron_schedule_options,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Starts a pass. The uses of the previous pass become the recorded order of its kind, unless
    /// there were none. Releases prefetched units that were not used, and units that were kept
    /// for a use that the new pass does not have soon. Local: it begins no gather.
    ///
    /// - `kind`: below MERON_SCHEDULE_KINDS; for example 0 for training and 1 for evaluation.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_STATE (names the units that are entered),
    /// MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_schedule_start_pass(
        schedule: meron_schedule,
        kind: u32,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Enters a unit. It stays full until it is left as often as it was entered. Begins its
    /// gather, or uses the prefetched one, prefetches the next units of the recorded order, and
    /// waits: if views are on the device, for peers only, and the schedule's stream waits for the
    /// rest. Collective over the units' group if the unit is not full already. Before the first
    /// meron_schedule_start_pass, and after meron_schedule_reset, uses are not recorded and no
    /// gather is prefetched.
    ///
    /// - `index`: of the unit in meron_schedule_create.
    /// - `timeout_ns`: as meron_future_wait. After MERON_IN_PROGRESS or an error the unit is not
    ///   entered; its gather continues, and the next enter of the unit continues the same use.
    ///
    /// **Blocks**: on peers if the unit is not full, at most the deadline from the first call for
    /// this use.
    ///
    /// **Threads**: any, one at a time.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_STATE (this rank updates the unit, or one to prefetch;
    /// or another thread has reset or released the schedule meanwhile), MERON_E_HANDLE,
    /// MERON_E_STALE, MERON_E_FORKED; and as meron_future_wait, also from a prefetched gather.
    #[must_use]
    pub fn meron_schedule_enter(
        schedule: meron_schedule,
        index: usize,
        timeout_ns: i64,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Leaves a unit once. After as many leaves as enters its views are invalid, and the unit is
    /// released, unless the options keep it full. Local, but in the same position among the
    /// enters on all ranks: it begins no gather; the next enter does.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_STATE (it is not entered), MERON_E_HANDLE,
    /// MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_schedule_leave(
        schedule: meron_schedule,
        index: usize,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// The full tensor of a param of an entered unit. If views are on the device, it is for work
    /// of the schedule's stream.
    ///
    /// **Ownership**: borrowed until the unit is left; read-only, as of meron_gather_view.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT (the schedule does not have its unit), MERON_E_STATE (the unit is
    /// not entered), MERON_E_HANDLE, MERON_E_STALE.
    #[must_use]
    pub fn meron_schedule_view(
        out: *mut meron_view,
        schedule: meron_schedule,
        param: meron_param,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases all units that stay full or were prefetched. Call it before an update, an
    /// optimizer step, a save or a load, which need all leases released. The pass and the
    /// recorded orders stay. Local.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_STATE (names the units that are entered), MERON_E_HANDLE, MERON_E_STALE,
    /// MERON_E_FORKED.
    #[must_use]
    pub fn meron_schedule_drop(
        schedule: meron_schedule,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Drops all uses and the pass, and releases all units. Call it after an exception in the
    /// trainer. The recorded orders stay. Local.
    ///
    /// **Blocks**: only while another thread of this rank begins an operation.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_schedule_reset(
        schedule: meron_schedule,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Reads the information about a schedule.
    ///
    /// - `out`: struct_size set by the caller.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any.
    ///
    /// **Errors**: MERON_E_ARGUMENT, MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    #[must_use]
    pub fn meron_schedule_get_info(
        out: *mut meron_schedule_info,
        schedule: meron_schedule,
        err: *mut *mut meron_error,
    ) -> meron_status;

    /// Releases the schedule and all units that it holds; its views become invalid.
    ///
    /// **Blocks**: never.
    ///
    /// **Threads**: any, also a finalizer's.
    ///
    /// **Errors**: MERON_E_HANDLE, MERON_E_STALE, MERON_E_FORKED.
    pub fn meron_schedule_release(
        schedule: meron_schedule,
        err: *mut *mut meron_error,
    ) -> meron_status;
}

// Sizes on the data model that the library is built for.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_future>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_plan>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_workload>() == 28);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_transport>() == 88);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_context>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_allocator>() == 32);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_context_options>() == 136);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_stats>() == 176);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_prediction>() == 120);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_group>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_param>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_unit>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_param_desc>() == 40);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_view>() == 56);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_param_info>() == 184);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_unit_info>() == 80);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_flat_info>() == 32);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_optimizer>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_optimizer_options>() == 80);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_optimizer_group>() == 56);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_optimizer_info>() == 56);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_checkpoint>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_checkpoint_tensor>() == 64);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_checkpoint_save_options>() == 104);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_checkpoint_progress>() == 32);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_checkpoint_write_options>() == 48);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_checkpoint_load_options>() == 72);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_checkpoint_info>() == 56);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_checkpoint_export_options>() == 48);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_destination>() == 24);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_flat_destination>() == 32);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_gather_options>() == 56);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_io>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_io_buffer>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_io_options>() == 40);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_io_info>() == 88);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_io_buffer_info>() == 24);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_source>() == 32);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_reduce_options>() == 32);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_schedule>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_schedule_options>() == 64);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<meron_schedule_info>() == 80);

#[cfg(all(test, target_pointer_width = "64"))]
mod layout {
    use super::*;
    use std::mem::MaybeUninit;
    use std::ptr::addr_of;

    // The offset of each field, from the compiler.
    macro_rules! check {
        ($name:ident, $($field:ident: $offset:expr),*) => {
            let value = MaybeUninit::<$name>::uninit();
            let begin = value.as_ptr();
            $(
                // SAFETY: only an address is taken; nothing is read.
                let at = unsafe { addr_of!((*begin).$field) } as usize - begin as usize;
                assert_eq!(at, $offset, concat!(stringify!($name), ".", stringify!($field)));
            )*
        };
    }

    #[test]
    fn fields_lie_where_c_puts_them() {
        check!(meron_future, id: 0);
        check!(meron_plan, id: 0);
        check!(meron_workload, struct_size: 0, ranks: 4, micro_batches: 8, gathers_per_micro_batch:
            12, ranks_per_node: 16, optimizer_states: 20, reserved_0: 24);
        check!(meron_transport, struct_size: 0, reserved_0: 4, name: 8, user: 16, max_message: 24,
            send: 32, receive: 40, test: 48, cancel: 56, idle: 64, alive: 72, closed: 80);
        check!(meron_context, id: 0);
        check!(meron_allocator, struct_size: 0, reserved_0: 4, allocate: 8, release: 16, user: 24);
        check!(meron_context_options, struct_size: 0, header_version: 4, rank: 8, world_size: 12,
            transport: 16, job: 24, token: 32, timeout_ns: 40, host_memory_limit: 48, arena_reserve:
            56, threads: 64, reserved_0: 68, plan: 72, log: 80, log_user: 88, should_stop: 96,
            should_stop_user: 104, custom: 112, device: 120, allocator: 128);
        check!(meron_stats, struct_size: 0, reserved_0: 4, gather_mapped_bytes: 8,
            gather_copied_bytes: 16, reduce_bytes: 24, collective_bytes: 32, operations: 40,
            wait_ns: 48, param_bytes: 56, gradient_bytes: 64, optimizer_bytes: 72, staging_bytes:
            80, control_bytes: 88, peak_bytes: 96, arena_pages_bytes: 104, inter_node_gather_bytes:
            112, inter_node_reduce_bytes: 120, nvme_read_bytes: 128, nvme_written_bytes: 136,
            nvme_bytes: 144, device_up_bytes: 152, device_down_bytes: 160, device_bytes: 168);
        check!(meron_prediction, struct_size: 0, reserved_0: 4, param_bytes: 8, gradient_bytes: 16,
            optimizer_bytes: 24, peak_bytes: 32, gather_mapped_bytes: 40, gather_copied_bytes: 48,
            reduce_bytes: 56, secondary_partition_bytes: 64, inter_node_gather_bytes: 72,
            inter_node_reduce_bytes: 80, nvme_read_bytes: 88, nvme_written_bytes: 96, nvme_bytes:
            104, device_bytes: 112);
        check!(meron_group, id: 0);
        check!(meron_param, id: 0);
        check!(meron_unit, id: 0);
        check!(meron_param_desc, struct_size: 0, dtype: 4, name: 8, shape: 16, dims: 24, frozen: 28,
            group: 32);
        check!(meron_view, data: 0, count: 8, offset: 16, dtype: 24, writable: 28, device: 32,
            reserved_0: 36, reserved_1: 40, reserved_2: 48);
        check!(meron_param_info, struct_size: 0, dtype: 4, dims: 8, frozen: 12, shape: 16, count:
            144, shard_offset: 152, shard_count: 160, flat: 168, flat_offset: 176);
        check!(meron_unit_info, struct_size: 0, state: 4, version: 8, leases: 16, reduced: 20,
            param_codec: 24, gradient_codec: 28, param_error: 32, param_worst_block: 40,
            gradient_error: 48, gradient_worst_block: 56, params: 64, flats: 72);
        check!(meron_flat_info, struct_size: 0, dtype: 4, frozen: 8, reserved_0: 12, elements: 16,
            bytes: 24);
        check!(meron_optimizer, id: 0);
        check!(meron_optimizer_options, struct_size: 0, kind: 4, learning_rate: 8, beta1: 16, beta2:
            24, epsilon: 32, weight_decay: 40, max_norm: 48, dampening: 56, nesterov: 64,
            defaults_of: 68, lr_decay: 72);
        check!(meron_optimizer_group, struct_size: 0, defaults_of: 4, learning_rate: 8, beta1: 16,
            beta2: 24, epsilon: 32, weight_decay: 40, lr_decay: 48);
        check!(meron_optimizer_info, struct_size: 0, reserved_0: 4, steps: 8, norm: 16,
            learning_rate: 24, groups: 32, states: 36, nvme_bytes: 40, offloaded_bytes: 48);
        check!(meron_checkpoint, id: 0);
        check!(meron_checkpoint_tensor, struct_size: 0, dims: 4, name: 8, kind: 16, dtype: 24,
            shape: 32, begin: 40, count: 48, data: 56);
        check!(meron_checkpoint_save_options, struct_size: 0, values_only: 4, skip_frozen: 8,
            overwrite: 12, step: 16, keep: 24, extra: 32, optimizers: 40, optimizer_count: 48,
            tensors: 56, tensor_count: 64, mapping: 72, per_node: 80, reserved_0: 84, units: 88,
            unit_count: 96);
        check!(meron_checkpoint_progress, struct_size: 0, saving: 4, total: 8, copied: 16, written:
            24);
        check!(meron_checkpoint_write_options, struct_size: 0, overwrite: 4, step: 8, extra: 16,
            optimizers: 24, tensors: 32, tensor_count: 40);
        check!(meron_checkpoint_load_options, struct_size: 0, lenient: 4, values_only: 8,
            rank0_only: 12, optimizers: 16, optimizer_count: 24, mapping: 32, claimed: 40, per_node:
            48, reserved_0: 52, units: 56, unit_count: 64);
        check!(meron_checkpoint_info, struct_size: 0, world: 4, step: 8, bytes: 16, tensors: 24,
            bytes_read: 32, missing: 40, unexpected: 48);
        check!(meron_checkpoint_export_options, struct_size: 0, dtype: 4, keep_dtype: 8, overwrite:
            12, max_file_bytes: 16, mapping: 24, tensors: 32, tensor_count: 40);
        check!(meron_destination, param: 0, data: 8, bytes: 16);
        check!(meron_flat_destination, unit: 0, flat: 8, data: 16, bytes: 24);
        check!(meron_gather_options, struct_size: 0, mode: 4, destinations: 8, destination_count:
            16, tier: 24, reserved_0: 28, stream: 32, flats: 40, flat_count: 48);
        check!(meron_io, id: 0);
        check!(meron_io_buffer, id: 0);
        check!(meron_io_options, struct_size: 0, backend: 4, block_bytes: 8, depth: 12, threads: 16,
            single_submit: 20, overlap_events: 24, reserved_0: 28, timeout_ns: 32);
        check!(meron_io_info, struct_size: 0, backend: 4, block_bytes: 8, depth: 12, threads: 16,
            single_submit: 20, overlap_events: 24, reserved_0: 28, bytes_read: 32, bytes_written:
            40, calls: 48, direct_calls: 56, requests: 64, pending: 72, buffer_bytes: 80);
        check!(meron_io_buffer_info, struct_size: 0, registered: 4, bytes: 8, data: 16);
        check!(meron_source, param: 0, data: 8, count: 16, dtype: 24, reserved_0: 28);
        check!(meron_reduce_options, struct_size: 0, op: 4, boundary: 8, reserved_0: 12, divisor:
            16, stream: 24);
        check!(meron_schedule, id: 0);
        check!(meron_schedule_options, struct_size: 0, initialized: 4, prefetch_elements: 8,
            max_live_elements: 16, max_reuse_elements: 24, persist_elements: 32,
            persist_total_elements: 40, tier: 48, reserved_1: 52, stream: 56);
        check!(meron_schedule_info, struct_size: 0, entered: 4, units: 8, passes: 16, uses: 24,
            ready: 32, ahead: 40, deviations: 48, live_elements: 56, peak_live_elements: 64,
            wait_ns: 72);
    }
}
