// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
//! Structs that callers fill, structs that the library fills, and enums.

use std::time::Duration;

use meron_sys as sys;

use crate::call::nanoseconds;
use crate::device::Stream;

/// Levels of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LogLevel {
    /// Error.
    Error,
    /// Warning.
    Warning,
    /// Info.
    Info,
}

#[allow(dead_code)]
impl LogLevel {
    pub(crate) fn code(self) -> sys::meron_log_level {
        match self {
            LogLevel::Error => sys::MERON_LOG_ERROR,
            LogLevel::Warning => sys::MERON_LOG_WARNING,
            LogLevel::Info => sys::MERON_LOG_INFO,
        }
    }

    pub(crate) fn of(code: sys::meron_log_level) -> LogLevel {
        match code {
            sys::MERON_LOG_ERROR => LogLevel::Error,
            sys::MERON_LOG_WARNING => LogLevel::Warning,
            _ => LogLevel::Info,
        }
    }
}

/// The operation that combines values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their sum, divided by the number of ranks.
    #[default]
    Mean,
    /// The largest of them, of an all-reduce alone.
    Max,
    /// The smallest of them, of an all-reduce alone.
    Min,
}

#[allow(dead_code)]
impl ReduceOp {
    pub(crate) fn code(self) -> sys::meron_reduce_op {
        match self {
            ReduceOp::Sum => sys::MERON_REDUCE_OP_SUM,
            ReduceOp::Mean => sys::MERON_REDUCE_OP_MEAN,
            ReduceOp::Max => sys::MERON_REDUCE_OP_MAX,
            ReduceOp::Min => sys::MERON_REDUCE_OP_MIN,
        }
    }

    pub(crate) fn of(code: sys::meron_reduce_op) -> ReduceOp {
        match code {
            sys::MERON_REDUCE_OP_SUM => ReduceOp::Sum,
            sys::MERON_REDUCE_OP_MEAN => ReduceOp::Mean,
            sys::MERON_REDUCE_OP_MAX => ReduceOp::Max,
            _ => ReduceOp::Min,
        }
    }
}

/// Encoding of numbers that are sent between replicas; docs/plan.md has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// None.
    None,
    /// Bf16.
    Bf16,
    /// Int8.
    Int8,
    /// Int4.
    Int4,
    /// Something that this version of the crate does not know.
    Other(i32),
}

#[allow(dead_code)]
impl Codec {
    pub(crate) fn code(self) -> sys::meron_codec {
        match self {
            Codec::None => sys::MERON_CODEC_NONE,
            Codec::Bf16 => sys::MERON_CODEC_BF16,
            Codec::Int8 => sys::MERON_CODEC_INT8,
            Codec::Int4 => sys::MERON_CODEC_INT4,
            Codec::Other(other) => other,
        }
    }

    pub(crate) fn of(code: sys::meron_codec) -> Codec {
        match code {
            sys::MERON_CODEC_NONE => Codec::None,
            sys::MERON_CODEC_BF16 => Codec::Bf16,
            sys::MERON_CODEC_INT8 => Codec::Int8,
            sys::MERON_CODEC_INT4 => Codec::Int4,
            other => Codec::Other(other),
        }
    }
}

/// State of a unit on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Activity {
    /// This rank holds its shard only.
    Partitioned,
    /// A gather is pending.
    Gathering,
    /// Leased at least once.
    Available,
    /// Being written.
    Updating,
    /// Something that this version of the crate does not know.
    Other(i32),
}

#[allow(dead_code)]
impl Activity {
    pub(crate) fn code(self) -> sys::meron_unit_state {
        match self {
            Activity::Partitioned => sys::MERON_UNIT_STATE_PARTITIONED,
            Activity::Gathering => sys::MERON_UNIT_STATE_GATHERING,
            Activity::Available => sys::MERON_UNIT_STATE_AVAILABLE,
            Activity::Updating => sys::MERON_UNIT_STATE_UPDATING,
            Activity::Other(other) => other,
        }
    }

    pub(crate) fn of(code: sys::meron_unit_state) -> Activity {
        match code {
            sys::MERON_UNIT_STATE_PARTITIONED => Activity::Partitioned,
            sys::MERON_UNIT_STATE_GATHERING => Activity::Gathering,
            sys::MERON_UNIT_STATE_AVAILABLE => Activity::Available,
            sys::MERON_UNIT_STATE_UPDATING => Activity::Updating,
            other => Activity::Other(other),
        }
    }
}

/// A state of an optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum State {
    /// F32 values; the param itself if that is f32.
    Master,
    /// Average of the gradients; Lion's, and SGD's momentum.
    ExpAvg,
    /// Average of their squares; Adagrad's sum of them.
    ExpAvgSq,
}

#[allow(dead_code)]
impl State {
    pub(crate) fn code(self) -> sys::meron_optimizer_state {
        match self {
            State::Master => sys::MERON_OPTIMIZER_STATE_MASTER,
            State::ExpAvg => sys::MERON_OPTIMIZER_STATE_EXP_AVG,
            State::ExpAvgSq => sys::MERON_OPTIMIZER_STATE_EXP_AVG_SQ,
        }
    }

    pub(crate) fn of(code: sys::meron_optimizer_state) -> State {
        match code {
            sys::MERON_OPTIMIZER_STATE_MASTER => State::Master,
            sys::MERON_OPTIMIZER_STATE_EXP_AVG => State::ExpAvg,
            _ => State::ExpAvgSq,
        }
    }
}

/// Memory of a view, by its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// In the device's memory, if the context has a device; else the host's.
    Device,
    /// In the host's memory.
    Host,
}

#[allow(dead_code)]
impl Tier {
    pub(crate) fn code(self) -> sys::meron_tier {
        match self {
            Tier::Device => sys::MERON_TIER_DEVICE,
            Tier::Host => sys::MERON_TIER_HOST,
        }
    }

    pub(crate) fn of(code: sys::meron_tier) -> Tier {
        match code {
            sys::MERON_TIER_DEVICE => Tier::Device,
            _ => Tier::Host,
        }
    }
}

/// The interface that moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum IoBackend {
    /// io_uring if the host allows it, else threads.
    Auto,
    /// io_uring.
    IoUring,
    /// Threads of this process that call pread and pwrite.
    Threads,
}

#[allow(dead_code)]
impl IoBackend {
    pub(crate) fn code(self) -> sys::meron_io_backend {
        match self {
            IoBackend::Auto => sys::MERON_IO_BACKEND_AUTO,
            IoBackend::IoUring => sys::MERON_IO_BACKEND_URING,
            IoBackend::Threads => sys::MERON_IO_BACKEND_THREADS,
        }
    }

    pub(crate) fn of(code: sys::meron_io_backend) -> IoBackend {
        match code {
            sys::MERON_IO_BACKEND_AUTO => IoBackend::Auto,
            sys::MERON_IO_BACKEND_URING => IoBackend::IoUring,
            _ => IoBackend::Threads,
        }
    }
}

/// Workload of a step, for a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Workload {
    /// The world size; a context uses its own.
    pub ranks: u32,
    /// Per optimizer step; default 1.
    pub micro_batches: u32,
    /// Of every unit; default 2: forward and backward.
    pub gathers_per_micro_batch: u32,
    /// Consecutive ranks that share memory; 0: all of them. A context uses its own.
    pub ranks_per_node: u32,
    /// Of the update rule per element, besides the master: 2 for AdamW and Adam, 1 for Adagrad,
    /// Lion and SGD with a momentum, 0 for SGD without one.
    pub optimizer_states: u32,
}

impl Default for Workload {
    fn default() -> Workload {
        Workload {
            ranks: 1,
            micro_batches: 1,
            gathers_per_micro_batch: 2,
            ranks_per_node: 0,
            optimizer_states: 2,
        }
    }
}

impl Workload {
    /// The world size; a context uses its own.
    #[must_use]
    pub fn ranks(mut self, value: u32) -> Workload {
        self.ranks = value;
        self
    }

    /// Per optimizer step; default 1.
    #[must_use]
    pub fn micro_batches(mut self, value: u32) -> Workload {
        self.micro_batches = value;
        self
    }

    /// Of every unit; default 2: forward and backward.
    #[must_use]
    pub fn gathers_per_micro_batch(mut self, value: u32) -> Workload {
        self.gathers_per_micro_batch = value;
        self
    }

    /// Consecutive ranks that share memory; 0: all of them. A context uses its own.
    #[must_use]
    pub fn ranks_per_node(mut self, value: u32) -> Workload {
        self.ranks_per_node = value;
        self
    }

    /// Of the update rule per element, besides the master: 2 for AdamW and Adam, 1 for Adagrad,
    /// Lion and SGD with a momentum, 0 for SGD without one.
    #[must_use]
    pub fn optimizer_states(mut self, value: u32) -> Workload {
        self.optimizer_states = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_workload {
        sys::meron_workload {
            ranks: self.ranks,
            micro_batches: self.micro_batches,
            gathers_per_micro_batch: self.gathers_per_micro_batch,
            ranks_per_node: self.ranks_per_node,
            optimizer_states: self.optimizer_states,
            ..sys::MERON_WORKLOAD_INIT
        }
    }
}

/// Hyperparameters of the params of one group. The rule ignores those that it does not use.
/// The defaults are AdamW's: for an optimizer of another rule, start from one of its groups.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OptimizerGroup {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1. SGD: the momentum, 0 in all groups or in none.
    pub beta1: f64,
    /// 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Adagrad: \>= 0; else 0.
    pub lr_decay: f64,
    pub(crate) defaults_of: u32,
}

impl Default for OptimizerGroup {
    fn default() -> OptimizerGroup {
        OptimizerGroup {
            learning_rate: 0.001,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-08,
            weight_decay: 0.01,
            lr_decay: 0.0,
            defaults_of: sys::MERON_OPTIMIZER_GROUP_INIT.defaults_of,
        }
    }
}

impl OptimizerGroup {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> OptimizerGroup {
        self.learning_rate = value;
        self
    }

    /// 0 or more, below 1. SGD: the momentum, 0 in all groups or in none.
    #[must_use]
    pub fn beta1(mut self, value: f64) -> OptimizerGroup {
        self.beta1 = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta2(mut self, value: f64) -> OptimizerGroup {
        self.beta2 = value;
        self
    }

    /// Above 0.
    #[must_use]
    pub fn epsilon(mut self, value: f64) -> OptimizerGroup {
        self.epsilon = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> OptimizerGroup {
        self.weight_decay = value;
        self
    }

    /// Adagrad: \>= 0; else 0.
    #[must_use]
    pub fn lr_decay(mut self, value: f64) -> OptimizerGroup {
        self.lr_decay = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_group {
        sys::meron_optimizer_group {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            lr_decay: self.lr_decay,
            defaults_of: self.defaults_of,
            ..sys::MERON_OPTIMIZER_GROUP_INIT
        }
    }
}

impl OptimizerGroup {
    pub(crate) fn of(raw: &sys::meron_optimizer_group) -> OptimizerGroup {
        OptimizerGroup {
            learning_rate: raw.learning_rate,
            beta1: raw.beta1,
            beta2: raw.beta2,
            epsilon: raw.epsilon,
            weight_decay: raw.weight_decay,
            lr_decay: raw.lr_decay,
            defaults_of: raw.defaults_of,
        }
    }
}

/// Options of a reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReduceOptions {
    /// The operation that combines the values of the ranks.
    pub op: ReduceOp,
    /// True for the last micro-batch before the step.
    pub boundary: bool,
    /// Additional divisor of the sum, e.g. the number of micro-batches, times the loss scale. The
    /// complete sum is divided once, as the call with `boundary` 1 says; in each call all ranks
    /// pass the same. With a codec that has feedback, give the same one for each micro-batch of
    /// an accumulation: what was lost of the accumulation before is scaled by the change, so that
    /// it counts as much as it did.
    pub divisor: f64,
    /// Sources on the device are read after the queued work of this stream; by default the
    /// device's default stream.
    pub stream: Stream,
}

impl Default for ReduceOptions {
    fn default() -> ReduceOptions {
        ReduceOptions {
            op: ReduceOp::Mean,
            boundary: true,
            divisor: 1.0,
            stream: Stream::default(),
        }
    }
}

impl ReduceOptions {
    /// The operation that combines the values of the ranks.
    #[must_use]
    pub fn op(mut self, value: ReduceOp) -> ReduceOptions {
        self.op = value;
        self
    }

    /// True for the last micro-batch before the step.
    #[must_use]
    pub fn boundary(mut self, value: bool) -> ReduceOptions {
        self.boundary = value;
        self
    }

    /// Additional divisor of the sum, e.g. the number of micro-batches, times the loss scale. The
    /// complete sum is divided once, as the call with `boundary` 1 says; in each call all ranks
    /// pass the same. With a codec that has feedback, give the same one for each micro-batch of
    /// an accumulation: what was lost of the accumulation before is scaled by the change, so that
    /// it counts as much as it did.
    #[must_use]
    pub fn divisor(mut self, value: f64) -> ReduceOptions {
        self.divisor = value;
        self
    }

    /// Sources on the device are read after the queued work of this stream; by default the
    /// device's default stream.
    #[must_use]
    pub fn stream(mut self, value: Stream) -> ReduceOptions {
        self.stream = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_reduce_options {
        sys::meron_reduce_options {
            op: self.op.code(),
            boundary: u32::from(self.boundary),
            divisor: self.divisor,
            stream: self.stream.as_raw(),
            ..sys::MERON_REDUCE_OPTIONS_INIT
        }
    }
}

/// Options of an io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoOptions {
    /// The interface that moves the bytes.
    pub backend: IoBackend,
    /// Of one call of the kernel: a multiple of 4096; default 1 MiB.
    pub block_bytes: u32,
    /// Pending calls of io_uring, 1 to 4096; default 32.
    pub depth: u32,
    /// Of the backend of threads, 1 to 256: as many calls at a time.
    pub threads: u32,
    /// True: submit each call to the kernel alone.
    pub single_submit: bool,
    /// False: the next calls begin after the last ones have ended.
    pub overlap_events: bool,
    /// A wait fails after this time without any transfer; by default 600 s.
    pub timeout: Duration,
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        IoOptions {
            backend: IoBackend::Auto,
            block_bytes: 1048576,
            depth: 32,
            threads: 1,
            single_submit: false,
            overlap_events: true,
            timeout: Duration::ZERO,
        }
    }
}

impl IoOptions {
    /// The interface that moves the bytes.
    #[must_use]
    pub fn backend(mut self, value: IoBackend) -> IoOptions {
        self.backend = value;
        self
    }

    /// Of one call of the kernel: a multiple of 4096; default 1 MiB.
    #[must_use]
    pub fn block_bytes(mut self, value: u32) -> IoOptions {
        self.block_bytes = value;
        self
    }

    /// Pending calls of io_uring, 1 to 4096; default 32.
    #[must_use]
    pub fn depth(mut self, value: u32) -> IoOptions {
        self.depth = value;
        self
    }

    /// Of the backend of threads, 1 to 256: as many calls at a time.
    #[must_use]
    pub fn threads(mut self, value: u32) -> IoOptions {
        self.threads = value;
        self
    }

    /// True: submit each call to the kernel alone.
    #[must_use]
    pub fn single_submit(mut self, value: bool) -> IoOptions {
        self.single_submit = value;
        self
    }

    /// False: the next calls begin after the last ones have ended.
    #[must_use]
    pub fn overlap_events(mut self, value: bool) -> IoOptions {
        self.overlap_events = value;
        self
    }

    /// A wait fails after this time without any transfer; by default 600 s.
    #[must_use]
    pub fn timeout(mut self, value: Duration) -> IoOptions {
        self.timeout = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_io_options {
        sys::meron_io_options {
            backend: self.backend.code(),
            block_bytes: self.block_bytes,
            depth: self.depth,
            threads: self.threads,
            single_submit: u32::from(self.single_submit),
            overlap_events: u32::from(self.overlap_events),
            timeout_ns: nanoseconds(self.timeout),
            ..sys::MERON_IO_OPTIONS_INIT
        }
    }
}

/// Options of a schedule: limits in elements, and the memory of views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleOptions {
    /// Gathers are prefetched for the next uses within this many elements; 0: no prefetch.
    pub prefetch_elements: u64,
    /// Limit of prefetched and kept units, never of the unit in use; default 1e9.
    pub max_live_elements: u64,
    /// A unit stays full if its next recorded use is within this many elements of other units'
    /// uses; default 1e9.
    pub max_reuse_elements: u64,
    /// A unit of at most this many elements stays full from its first use until the schedule
    /// drops its units.
    pub persist_elements: u64,
    /// Limit for all such units together, in their order at the creation; by default no limit.
    pub persist_total_elements: u64,
    /// Memory of views.
    pub tier: Tier,
    /// For views on the device: this stream waits for an entered unit, and the unit's memory is
    /// released after the stream's queued work. It must live as long as the schedule.
    pub stream: Stream,
}

impl Default for ScheduleOptions {
    fn default() -> ScheduleOptions {
        ScheduleOptions {
            prefetch_elements: 50000000,
            max_live_elements: 1000000000,
            max_reuse_elements: 1000000000,
            persist_elements: 100000,
            persist_total_elements: u64::MAX,
            tier: Tier::Host,
            stream: Stream::default(),
        }
    }
}

impl ScheduleOptions {
    /// Gathers are prefetched for the next uses within this many elements; 0: no prefetch.
    #[must_use]
    pub fn prefetch_elements(mut self, value: u64) -> ScheduleOptions {
        self.prefetch_elements = value;
        self
    }

    /// Limit of prefetched and kept units, never of the unit in use; default 1e9.
    #[must_use]
    pub fn max_live_elements(mut self, value: u64) -> ScheduleOptions {
        self.max_live_elements = value;
        self
    }

    /// A unit stays full if its next recorded use is within this many elements of other units'
    /// uses; default 1e9.
    #[must_use]
    pub fn max_reuse_elements(mut self, value: u64) -> ScheduleOptions {
        self.max_reuse_elements = value;
        self
    }

    /// A unit of at most this many elements stays full from its first use until the schedule
    /// drops its units.
    #[must_use]
    pub fn persist_elements(mut self, value: u64) -> ScheduleOptions {
        self.persist_elements = value;
        self
    }

    /// Limit for all such units together, in their order at the creation; by default no limit.
    #[must_use]
    pub fn persist_total_elements(mut self, value: u64) -> ScheduleOptions {
        self.persist_total_elements = value;
        self
    }

    /// Memory of views.
    #[must_use]
    pub fn tier(mut self, value: Tier) -> ScheduleOptions {
        self.tier = value;
        self
    }

    /// For views on the device: this stream waits for an entered unit, and the unit's memory is
    /// released after the stream's queued work. It must live as long as the schedule.
    #[must_use]
    pub fn stream(mut self, value: Stream) -> ScheduleOptions {
        self.stream = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_schedule_options {
        sys::meron_schedule_options {
            prefetch_elements: self.prefetch_elements,
            max_live_elements: self.max_live_elements,
            max_reuse_elements: self.max_reuse_elements,
            persist_elements: self.persist_elements,
            persist_total_elements: self.persist_total_elements,
            tier: self.tier.code(),
            stream: self.stream.as_raw(),
            ..sys::MERON_SCHEDULE_OPTIONS_INIT
        }
    }
}

/// Counters since the context was opened, and the memory in use now, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Shards of peers read in place, or fetched by devices.
    pub gather_mapped_bytes: u64,
    /// Parts of peers copied.
    pub gather_copied_bytes: u64,
    /// Gradients read from peers.
    pub reduce_bytes: u64,
    /// Read from peers by broadcast and all-reduce.
    pub collective_bytes: u64,
    /// Collectives begun.
    pub operations: u64,
    /// Nanoseconds spent waiting for peers.
    pub wait_ns: u64,
    /// Of values, held now.
    pub param_bytes: u64,
    /// Of gradients, counted from the creation of a unit on.
    pub gradient_bytes: u64,
    /// Of optimizer states, held now.
    pub optimizer_bytes: u64,
    /// Of staging buffers, held now.
    pub staging_bytes: u64,
    /// Of the control data that keeps the ranks in step, held now.
    pub control_bytes: u64,
    /// Maximum of param + gradient + optimizer + staging.
    pub peak_bytes: u64,
    /// Bytes of pages in this rank's arena.
    pub arena_pages_bytes: u64,
    /// Gathered from ranks that share no memory, as on the wire.
    pub inter_node_gather_bytes: u64,
    /// Reduced from such ranks, likewise.
    pub inter_node_reduce_bytes: u64,
    /// Read from this rank's file on tier nvme.
    pub nvme_read_bytes: u64,
    /// Written to it.
    pub nvme_written_bytes: u64,
    /// Of that file, in use now.
    pub nvme_bytes: u64,
    /// Copied from the host to this rank's device.
    pub device_up_bytes: u64,
    /// Copied from it to the host.
    pub device_down_bytes: u64,
    /// On the device at all times: entries of tier device.
    pub device_bytes: u64,
}

impl Stats {
    pub(crate) fn of(raw: &sys::meron_stats) -> Stats {
        Stats {
            gather_mapped_bytes: raw.gather_mapped_bytes,
            gather_copied_bytes: raw.gather_copied_bytes,
            reduce_bytes: raw.reduce_bytes,
            collective_bytes: raw.collective_bytes,
            operations: raw.operations,
            wait_ns: raw.wait_ns,
            param_bytes: raw.param_bytes,
            gradient_bytes: raw.gradient_bytes,
            optimizer_bytes: raw.optimizer_bytes,
            staging_bytes: raw.staging_bytes,
            control_bytes: raw.control_bytes,
            peak_bytes: raw.peak_bytes,
            arena_pages_bytes: raw.arena_pages_bytes,
            inter_node_gather_bytes: raw.inter_node_gather_bytes,
            inter_node_reduce_bytes: raw.inter_node_reduce_bytes,
            nvme_read_bytes: raw.nvme_read_bytes,
            nvme_written_bytes: raw.nvme_written_bytes,
            nvme_bytes: raw.nvme_bytes,
            device_up_bytes: raw.device_up_bytes,
            device_down_bytes: raw.device_down_bytes,
            device_bytes: raw.device_bytes,
        }
    }
}

/// The plan's predictions for this rank and its current units, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prediction {
    /// Of values, held.
    pub param_bytes: u64,
    /// Of gradients, held.
    pub gradient_bytes: u64,
    /// Of optimizer states, held.
    pub optimizer_bytes: u64,
    /// Maximum held at once on this rank.
    pub peak_bytes: u64,
    /// As in meron_stats, per optimizer step; so are those below.
    pub gather_mapped_bytes: u64,
    /// Parts of peers copied.
    pub gather_copied_bytes: u64,
    /// Gradients read from peers.
    pub reduce_bytes: u64,
    /// Of values, from the first gather to the update (of frozen ones permanently): in addition
    /// to param_bytes, within the peak.
    pub secondary_partition_bytes: u64,
    /// Gathered from ranks that share no memory, as on the wire.
    pub inter_node_gather_bytes: u64,
    /// Reduced from such ranks, likewise.
    pub inter_node_reduce_bytes: u64,
    /// Read from this rank's file on tier nvme.
    pub nvme_read_bytes: u64,
    /// Written to it.
    pub nvme_written_bytes: u64,
    /// In use there, at all times.
    pub nvme_bytes: u64,
    /// On the device at all times, if ranks exchange on their devices.
    pub device_bytes: u64,
}

impl Prediction {
    pub(crate) fn of(raw: &sys::meron_prediction) -> Prediction {
        Prediction {
            param_bytes: raw.param_bytes,
            gradient_bytes: raw.gradient_bytes,
            optimizer_bytes: raw.optimizer_bytes,
            peak_bytes: raw.peak_bytes,
            gather_mapped_bytes: raw.gather_mapped_bytes,
            gather_copied_bytes: raw.gather_copied_bytes,
            reduce_bytes: raw.reduce_bytes,
            secondary_partition_bytes: raw.secondary_partition_bytes,
            inter_node_gather_bytes: raw.inter_node_gather_bytes,
            inter_node_reduce_bytes: raw.inter_node_reduce_bytes,
            nvme_read_bytes: raw.nvme_read_bytes,
            nvme_written_bytes: raw.nvme_written_bytes,
            nvme_bytes: raw.nvme_bytes,
            device_bytes: raw.device_bytes,
        }
    }
}

/// Information about a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleInfo {
    /// Units that are entered now.
    pub entered: u32,
    /// Of the schedule.
    pub units: u64,
    /// Started so far.
    pub passes: u64,
    /// Units entered so far.
    pub uses: u64,
    /// Uses whose unit was full already.
    pub ready: u64,
    /// Uses with a prefetched gather.
    pub ahead: u64,
    /// Uses that differ from the recorded order.
    pub deviations: u64,
    /// Of the units that are full or gathering now.
    pub live_elements: u64,
    /// Maximum of live_elements.
    pub peak_live_elements: u64,
    /// Nanoseconds that uses have waited.
    pub wait_ns: u64,
}

impl ScheduleInfo {
    pub(crate) fn of(raw: &sys::meron_schedule_info) -> ScheduleInfo {
        ScheduleInfo {
            entered: raw.entered,
            units: raw.units,
            passes: raw.passes,
            uses: raw.uses,
            ready: raw.ready,
            ahead: raw.ahead,
            deviations: raw.deviations,
            live_elements: raw.live_elements,
            peak_live_elements: raw.peak_live_elements,
            wait_ns: raw.wait_ns,
        }
    }
}

/// Information about an optimizer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct OptimizerInfo {
    /// Taken so far, with those of meron_optimizer_set_steps and of a loaded checkpoint; without
    /// steps that ended in MERON_E_NONFINITE.
    pub steps: u64,
    /// 2-norm of all gradients of the last step, before clipping.
    pub norm: f64,
    /// Of group 0.
    pub learning_rate: f64,
    /// Of params, at least 1.
    pub groups: u32,
    /// Of the rule per element, besides the master.
    pub states: u32,
    /// Of this rank's states on tier nvme.
    pub nvme_bytes: u64,
    /// Of the states that meron_optimizer_offload has moved to a drive.
    pub offloaded_bytes: u64,
}

impl OptimizerInfo {
    pub(crate) fn of(raw: &sys::meron_optimizer_info) -> OptimizerInfo {
        OptimizerInfo {
            steps: raw.steps,
            norm: raw.norm,
            learning_rate: raw.learning_rate,
            groups: raw.groups,
            states: raw.states,
            nvme_bytes: raw.nvme_bytes,
            offloaded_bytes: raw.offloaded_bytes,
        }
    }
}

/// Information about a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointInfo {
    /// Ranks that saved it.
    pub world: u32,
    /// The caller's count.
    pub step: u64,
    /// Of its files.
    pub bytes: u64,
    /// In the checkpoint.
    pub tensors: u64,
    /// Of its files, by this rank, so far.
    pub bytes_read: u64,
    /// States that it lacks; the load did not change them.
    pub missing: u64,
    /// Tensors that no unit has.
    pub unexpected: u64,
}

impl CheckpointInfo {
    pub(crate) fn of(raw: &sys::meron_checkpoint_info) -> CheckpointInfo {
        CheckpointInfo {
            world: raw.world,
            step: raw.step,
            bytes: raw.bytes,
            tensors: raw.tensors,
            bytes_read: raw.bytes_read,
            missing: raw.missing,
            unexpected: raw.unexpected,
        }
    }
}

/// Progress of a save.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SaveProgress {
    /// True while a save is pending.
    pub saving: bool,
    /// Bytes that this rank writes; 0: not known yet, or no save.
    pub total: u64,
    /// Of these, copied from the units.
    pub copied: u64,
    /// Of these, written to files.
    pub written: u64,
}

impl SaveProgress {
    pub(crate) fn of(raw: &sys::meron_checkpoint_progress) -> SaveProgress {
        SaveProgress {
            saving: raw.saving != 0,
            total: raw.total,
            copied: raw.copied,
            written: raw.written,
        }
    }
}

/// Information about an io.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoInfo {
    /// The interface that moves the bytes: never the automatic choice.
    pub backend: IoBackend,
    /// As in the options.
    pub block_bytes: u32,
    /// As in the options.
    pub depth: u32,
    /// As in the options.
    pub threads: u32,
    /// As in the options.
    pub single_submit: bool,
    /// As in the options.
    pub overlap_events: bool,
    /// By requests that have succeeded.
    pub bytes_read: u64,
    /// Likewise.
    pub bytes_written: u64,
    /// Of the kernel, completed.
    pub calls: u64,
    /// Of these, past the page cache.
    pub direct_calls: u64,
    /// Reads and writes that were begun, also blocking ones.
    pub requests: u64,
    /// Of these, pending or not waited for.
    pub pending: u64,
    /// Of all existing buffers.
    pub buffer_bytes: u64,
}

impl IoInfo {
    pub(crate) fn of(raw: &sys::meron_io_info) -> IoInfo {
        IoInfo {
            backend: IoBackend::of(raw.backend),
            block_bytes: raw.block_bytes,
            depth: raw.depth,
            threads: raw.threads,
            single_submit: raw.single_submit != 0,
            overlap_events: raw.overlap_events != 0,
            bytes_read: raw.bytes_read,
            bytes_written: raw.bytes_written,
            calls: raw.calls,
            direct_calls: raw.direct_calls,
            requests: raw.requests,
            pending: raw.pending,
            buffer_bytes: raw.buffer_bytes,
        }
    }
}

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AdamW {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1.
    pub beta1: f64,
    /// 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW {
            learning_rate: 0.001,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-08,
            weight_decay: 0.01,
            max_norm: 0.0,
        }
    }
}

impl AdamW {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> AdamW {
        self.learning_rate = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta1(mut self, value: f64) -> AdamW {
        self.beta1 = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta2(mut self, value: f64) -> AdamW {
        self.beta2 = value;
        self
    }

    /// Above 0.
    #[must_use]
    pub fn epsilon(mut self, value: f64) -> AdamW {
        self.epsilon = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> AdamW {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> AdamW {
        self.max_norm = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_ADAMW_INIT
        }
    }
}

/// Adam (Kingma and Ba, arXiv 1412.6980); weight decay is part of the gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Adam {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1.
    pub beta1: f64,
    /// 0 or more, below 1.
    pub beta2: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
}

impl Default for Adam {
    fn default() -> Adam {
        Adam {
            learning_rate: 0.001,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-08,
            weight_decay: 0.0,
            max_norm: 0.0,
        }
    }
}

impl Adam {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> Adam {
        self.learning_rate = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta1(mut self, value: f64) -> Adam {
        self.beta1 = value;
        self
    }

    /// 0 or more, below 1.
    #[must_use]
    pub fn beta2(mut self, value: f64) -> Adam {
        self.beta2 = value;
        self
    }

    /// Above 0.
    #[must_use]
    pub fn epsilon(mut self, value: f64) -> Adam {
        self.epsilon = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> Adam {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> Adam {
        self.max_norm = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_ADAM_INIT
        }
    }
}

/// Adagrad (Duchi, Hazan and Singer, JMLR 12, 2011); weight decay is part of the gradient.
/// Keeps the sum of squared gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Adagrad {
    /// 0 or more.
    pub learning_rate: f64,
    /// Above 0.
    pub epsilon: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
    /// 0 or more: the rate of step t is lr / (1 + (t - 1) lr_decay).
    pub lr_decay: f64,
}

impl Default for Adagrad {
    fn default() -> Adagrad {
        Adagrad {
            learning_rate: 0.01,
            epsilon: 1e-10,
            weight_decay: 0.0,
            max_norm: 0.0,
            lr_decay: 0.0,
        }
    }
}

impl Adagrad {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> Adagrad {
        self.learning_rate = value;
        self
    }

    /// Above 0.
    #[must_use]
    pub fn epsilon(mut self, value: f64) -> Adagrad {
        self.epsilon = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> Adagrad {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> Adagrad {
        self.max_norm = value;
        self
    }

    /// 0 or more: the rate of step t is lr / (1 + (t - 1) lr_decay).
    #[must_use]
    pub fn lr_decay(mut self, value: f64) -> Adagrad {
        self.lr_decay = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            lr_decay: self.lr_decay,
            ..sys::MERON_OPTIMIZER_ADAGRAD_INIT
        }
    }
}

/// Lion (Chen et al., arXiv 2302.06675). Keeps an average of gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lion {
    /// 0 or more.
    pub learning_rate: f64,
    /// Of the direction of the update; 0 or more, below 1.
    pub beta1: f64,
    /// Of the stored average; 0 or more, below 1.
    pub beta2: f64,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion {
            learning_rate: 0.0001,
            beta1: 0.9,
            beta2: 0.99,
            weight_decay: 0.0,
            max_norm: 0.0,
        }
    }
}

impl Lion {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> Lion {
        self.learning_rate = value;
        self
    }

    /// Of the direction of the update; 0 or more, below 1.
    #[must_use]
    pub fn beta1(mut self, value: f64) -> Lion {
        self.beta1 = value;
        self
    }

    /// Of the stored average; 0 or more, below 1.
    #[must_use]
    pub fn beta2(mut self, value: f64) -> Lion {
        self.beta2 = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> Lion {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> Lion {
        self.max_norm = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_LION_INIT
        }
    }
}

/// Stochastic gradient descent, as torch.optim.SGD; weight decay is part of the gradient.
/// With a momentum it keeps an average of gradients; without one, no state.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sgd {
    /// 0 or more.
    pub learning_rate: f64,
    /// 0 or more, below 1; beta1 of an optimizer group.
    pub momentum: f64,
    /// Of the gradient that is added to the state; 0 or more, below 1.
    pub dampening: f64,
    /// Nesterov's momentum, which needs a momentum and no dampening.
    pub nesterov: bool,
    /// 0 or more.
    pub weight_decay: f64,
    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    pub max_norm: f64,
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd {
            learning_rate: 0.001,
            momentum: 0.0,
            dampening: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            max_norm: 0.0,
        }
    }
}

impl Sgd {
    /// 0 or more.
    #[must_use]
    pub fn learning_rate(mut self, value: f64) -> Sgd {
        self.learning_rate = value;
        self
    }

    /// 0 or more, below 1; beta1 of an optimizer group.
    #[must_use]
    pub fn momentum(mut self, value: f64) -> Sgd {
        self.momentum = value;
        self
    }

    /// Of the gradient that is added to the state; 0 or more, below 1.
    #[must_use]
    pub fn dampening(mut self, value: f64) -> Sgd {
        self.dampening = value;
        self
    }

    /// Nesterov's momentum, which needs a momentum and no dampening.
    #[must_use]
    pub fn nesterov(mut self, value: bool) -> Sgd {
        self.nesterov = value;
        self
    }

    /// 0 or more.
    #[must_use]
    pub fn weight_decay(mut self, value: f64) -> Sgd {
        self.weight_decay = value;
        self
    }

    /// Gradients are scaled to at most this 2-norm, of all gradients of the optimizer together,
    /// as meron_gradient_clip does; 0: no clipping.
    #[must_use]
    pub fn max_norm(mut self, value: f64) -> Sgd {
        self.max_norm = value;
        self
    }

    pub(crate) fn raw(&self) -> sys::meron_optimizer_options {
        sys::meron_optimizer_options {
            learning_rate: self.learning_rate,
            beta1: self.momentum,
            dampening: self.dampening,
            nesterov: u32::from(self.nesterov),
            weight_decay: self.weight_decay,
            max_norm: self.max_norm,
            ..sys::MERON_OPTIMIZER_SGD_INIT
        }
    }
}
