// SPDX-License-Identifier: Apache-2.0
//! How a context is opened.

use std::ffi::CString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use meron_sys as sys;

use crate::call::{c_string, nanoseconds, receive};
use crate::callbacks::Callbacks;
use crate::context::Context;
use crate::device::{self, DeviceAllocator, Memory};
use crate::error::Result;
use crate::home::Open;
use crate::plan::Plan;
use crate::system::require_version;
use crate::transport::{Bridge, CustomTransport};
use crate::values::LogLevel;

/// Options of a context. Options that are not set have the defaults of the C interface.
///
/// ```
/// use std::time::Duration;
/// use meron::{Context, Plan};
///
/// let context = Context::options()
///     .plan(Plan::preset("zero2")?)
///     .timeout(Duration::from_secs(60))
///     .log(|level, message| eprintln!("{level:?}: {message}"))
///     .open()?;
/// # Ok::<(), meron::Error>(())
/// ```
#[derive(Default)]
#[must_use = "call open()"]
pub struct ContextOptions {
    rank: Option<i32>,
    world_size: Option<i32>,
    transport: Option<String>,
    job: Option<String>,
    token: Option<String>,
    timeout: Option<Duration>,
    host_memory_limit: u64,
    arena_reserve: u64,
    threads: u32,
    plan: Option<Plan>,
    device: Option<String>,
    callbacks: Callbacks,
}

impl ContextOptions {
    /// This rank; by default from the environment.
    pub fn rank(mut self, rank: i32) -> ContextOptions {
        self.rank = Some(rank);
        self
    }

    /// The number of ranks; by default from the environment, and 1 without one.
    pub fn world_size(mut self, ranks: i32) -> ContextOptions {
        self.world_size = Some(ranks);
        self
    }

    /// `"self"`, `"local"` (ranks are threads of this process), `"shm"` (processes of this host),
    /// `"cluster"` (processes of a host share memory, and [`custom`](ContextOptions::custom) joins
    /// the hosts), `"mpi"` (MPI does) or `"auto"`, the default: self for one rank, mpi under mpirun
    /// where no token is given, else shm.
    pub fn transport(mut self, name: &str) -> ContextOptions {
        self.transport = Some(name.to_string());
        self
    }

    /// Transport local: ranks of one process with an equal job meet.
    pub fn job(mut self, name: &str) -> ContextOptions {
        self.job = Some(name.to_string());
        self
    }

    /// Transport shm: 64 hexadecimal digits, the same on all ranks; by default from the environment.
    pub fn token(mut self, digits: &str) -> ContextOptions {
        self.token = Some(digits.to_string());
        self
    }

    /// The deadline of every operation; by default, and for `None`, 600 s.
    pub fn timeout(mut self, timeout: impl Into<Option<Duration>>) -> ContextOptions {
        self.timeout = timeout.into();
        self
    }

    /// Bytes that this rank may take; by default there is no limit but the host's.
    pub fn host_memory_limit(mut self, bytes: u64) -> ContextOptions {
        self.host_memory_limit = bytes;
        self
    }

    /// Bytes of address space per window; by default the host's memory.
    pub fn arena_reserve(mut self, bytes: u64) -> ContextOptions {
        self.arena_reserve = bytes;
        self
    }

    /// Threads for compute on this rank; by default cores / ranks of this host.
    pub fn threads(mut self, threads: u32) -> ContextOptions {
        self.threads = threads;
        self
    }

    /// The plan; by default `"zero3"`.
    pub fn plan(mut self, plan: Plan) -> ContextOptions {
        self.plan = Some(plan);
        self
    }

    /// The device of this rank: `"cuda"` (the calling thread's current device), `"cuda:1"`;
    /// `"emulated"`, memory of the host and threads, for tests without a device. By default the
    /// host.
    ///
    /// Views of gathers are then in the device's memory ([`Gather::device_pointer`](crate::Gather::device_pointer)),
    /// and gradients may be ([`Source::on_device`](crate::Source::on_device)).
    pub fn device(mut self, name: &str) -> ContextOptions {
        self.device = Some(name.to_string());
        self
    }

    /// Allocates the device's memory, from the cache of a framework for example; by default a pool of
    /// Meron's own does. It is dropped when the context, and all that was made from it, has gone.
    pub fn allocator(mut self, allocator: impl DeviceAllocator) -> ContextOptions {
        self.callbacks.allocator = Some(Box::new(allocator));
        self
    }

    /// Receives log messages; by default warnings and errors go to stderr.
    ///
    /// Called on any thread that is inside a call of this crate. It may only look and release: each other
    /// call in it is an error of kind [`State`](crate::ErrorKind::State). A panic in it ends there, after
    /// the panic hook has reported it.
    pub fn log(mut self, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> ContextOptions {
        self.callbacks.log = Some(Box::new(log));
        self
    }

    /// Asked about ten times a second while a call waits; `true` ends the wait with an error of kind
    /// [`Cancelled`](crate::ErrorKind::Cancelled). It may only look and release, as [`log`](Self::log). A
    /// panic in it ends the wait too, and the error's message has the panic's.
    ///
    /// This is how Ctrl-C reaches a wait: a signal handler of the program sets a flag, which the closure
    /// reads.
    pub fn should_stop(mut self, ask: impl Fn() -> bool + Send + Sync + 'static) -> ContextOptions {
        self.callbacks.should_stop = Some(Box::new(ask));
        self
    }

    /// A transport of the program's own; rank and number of ranks then have to be given, or be in the
    /// environment. `name` is for messages; `max_message` is how many bytes one message may have, at
    /// least 4096, or 0 without a limit.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) for a name with NUL.
    pub fn custom(
        mut self,
        name: &str,
        max_message: u64,
        transport: impl CustomTransport,
    ) -> Result<ContextOptions> {
        let name = c_string(name, "the name of a transport")?;
        self.callbacks.transport = Some(Bridge::new(name, max_message, Box::new(transport)));
        Ok(self)
    }

    /// Opens this rank's context and meets the other ranks.
    ///
    /// Blocks until all ranks have come, at most until the deadline.
    ///
    /// # Errors
    ///
    /// [`Argument`](crate::ErrorKind::Argument) (a rank beyond the world, an unknown transport or device, a
    /// string with NUL), [`Auth`](crate::ErrorKind::Auth) (the token is missing or wrong),
    /// [`Timeout`](crate::ErrorKind::Timeout) (who is missing),
    /// [`Version`](crate::ErrorKind::Version) (of the library, says found and needed),
    /// [`NoMemory`](crate::ErrorKind::NoMemory), [`Io`](crate::ErrorKind::Io),
    /// [`Duplicate`](crate::ErrorKind::Duplicate) (a rank came twice),
    /// [`Unsupported`](crate::ErrorKind::Unsupported) (the device's module cannot work here),
    /// [`Device`](crate::ErrorKind::Device).
    pub fn open(self) -> Result<Context> {
        require_version()?;
        let text = |value: &Option<String>, what: &str| -> Result<Option<CString>> {
            value.as_deref().map(|text| c_string(text, what)).transpose()
        };
        let transport = text(&self.transport, "transport")?;
        let job = text(&self.job, "job")?;
        let token = text(&self.token, "token")?;
        let device = text(&self.device, "device")?;

        let mut options = sys::MERON_CONTEXT_OPTIONS_INIT;
        options.rank = self.rank.unwrap_or(options.rank);
        options.world_size = self.world_size.unwrap_or(options.world_size);
        if let Some(transport) = &transport {
            options.transport = transport.as_ptr();
        }
        if let Some(job) = &job {
            options.job = job.as_ptr();
        }
        if let Some(token) = &token {
            options.token = token.as_ptr();
        }
        if let Some(device) = &device {
            options.device = device.as_ptr();
        }
        // 0 would mean the default.
        options.timeout_ns = self.timeout.map_or(0, |timeout| nanoseconds(timeout).max(1));
        options.host_memory_limit = self.host_memory_limit;
        options.arena_reserve = self.arena_reserve;
        options.threads = self.threads;
        if let Some(plan) = &self.plan {
            options.plan = plan.as_raw();
        }
        let callbacks = Arc::new(self.callbacks);
        callbacks.enter(&mut options);
        let table = callbacks.transport.as_ref().map(Bridge::table);
        if let Some(table) = &table {
            options.custom = table;
        }
        let allocator = callbacks.allocator.as_ref().map(device::table);
        if let Some(table) = &allocator {
            options.allocator = table;
        }

        // SAFETY: strings and plan live during the call; closures, transport and allocator live as long as any
        // object of the context (`Shared` keeps them).
        let handle = receive(sys::meron_context::default(), |out, err| unsafe {
            sys::meron_context_open(out, &options, err)
        })?;
        Context::new(Open::new(handle, callbacks, Memory::of(self.device.as_deref())))
    }
}

impl Context {
    /// Opens a context with the defaults: rank and number of ranks from the environment (`meron run`,
    /// torchrun, Slurm, Open MPI), plan `"zero3"`. [`options`](Context::options) sets others.
    ///
    /// Blocks until all ranks have come. Errors as [`ContextOptions::open`].
    pub fn open() -> Result<Context> {
        Context::options().open()
    }

    /// How to open a context, to be filled in.
    pub fn options() -> ContextOptions {
        ContextOptions::default()
    }
}

impl fmt::Debug for ContextOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ContextOptions")
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("transport", &self.transport)
            .field("job", &self.job)
            .field("timeout", &self.timeout)
            .field("plan", &self.plan)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
