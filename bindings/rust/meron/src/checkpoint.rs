// SPDX-License-Identifier: Apache-2.0
//! Checkpoints as files, without a context.

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::mem::size_of_val;
use std::os::raw::{c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use meron_sys as sys;

use crate::call::{c_string, check, receive, receive_text, sized};
use crate::checkpoint_options::WriteOptions;
use crate::error::Result;
use crate::handle::Owned;
use crate::home::ForCall;
use crate::io::c_path;
use crate::saved_tensor::{CheckpointTensor, RawTensors, SavedElement};
use crate::system::require_version;
use crate::values::CheckpointInfo;

/// A checkpoint, or a model as Hugging Face publishes it, that was opened
/// ([`open_checkpoint`](crate::open_checkpoint)) or loaded ([`Context::load`](crate::Context::load)).
/// Dropping it closes its files; what was loaded stays.
///
/// ```
/// use meron::{open_checkpoint, write_checkpoint, CheckpointTensor, WriteOptions};
///
/// # let folder = std::env::temp_dir().join(format!("meron-doc-{}", std::process::id()));
/// let tensor = CheckpointTensor::new("bias", &[3], vec![1.0f32, 2.0, 3.0]).kind("values");
/// write_checkpoint(&folder, "first", &[tensor], &WriteOptions::new().step(1))?;
///
/// let checkpoint = open_checkpoint(&folder, None)?; // the newest
/// let mut tail = [0.0f32; 2];
/// checkpoint.read("values", "bias", 1, &mut tail)?;
/// assert_eq!(tail, [2.0, 3.0]);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), meron::Error>(())
/// ```
pub struct Checkpoint {
    handle: Owned<sys::meron_checkpoint>,
}

impl ForCall for Checkpoint {
    type Raw = sys::meron_checkpoint;

    fn for_call(&self) -> Result<sys::meron_checkpoint> {
        Ok(self.as_raw())
    }
}

impl Checkpoint {
    pub(crate) fn new(handle: sys::meron_checkpoint) -> Checkpoint {
        Checkpoint { handle: Owned::new(handle) }
    }

    /// Its step, the ranks that saved it, and what did not fit; also after the context that has loaded it
    /// was closed. Never blocks.
    pub fn info(&self) -> Result<CheckpointInfo> {
        // SAFETY: `out` says its size, and is valid during the call.
        let raw = receive(sized!(meron_checkpoint_info), |out, err| unsafe {
            sys::meron_checkpoint_get_info(out, self.as_raw(), err)
        })?;
        Ok(CheckpointInfo::of(&raw))
    }

    /// Of its directory, or of its one file.
    pub fn path(&self) -> Result<PathBuf> {
        self.text(sys::MERON_CHECKPOINT_TEXT_PATH, |text| {
            PathBuf::from(OsStr::from_bytes(text.to_bytes()))
        })
    }

    /// The program's own state, as it was given to the save: the text of a JSON object.
    pub fn extra(&self) -> Result<String> {
        self.string(sys::MERON_CHECKPOINT_TEXT_EXTRA)
    }

    /// The states that it lacks, and that stayed as they were when it was loaded.
    pub fn missing(&self) -> Result<Vec<String>> {
        self.lines(sys::MERON_CHECKPOINT_TEXT_MISSING)
    }

    /// Its tensors that no unit has.
    pub fn unexpected(&self) -> Result<Vec<String>> {
        self.lines(sys::MERON_CHECKPOINT_TEXT_UNEXPECTED)
    }

    /// All of its manifest, the text of a JSON object: docs/checkpoint-format.md.
    pub fn manifest(&self) -> Result<String> {
        self.string(sys::MERON_CHECKPOINT_TEXT_MANIFEST)
    }

    /// Reads as many elements of a tensor as `into` has, from element `begin` on (row-major), as the
    /// files have them, after their checksums were compared. `kind`: `"values"`, `"exp_avg"`,
    /// `"extra"`, ... (docs/checkpoint-format.md); the elements have the size of the tensor's. Local:
    /// no other rank takes part.
    ///
    /// Blocks on the drive.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::ErrorKind::NotFound) (no such tensor, a file is gone),
    /// [`Argument`](crate::ErrorKind::Argument) (outside of the tensor, elements of another size),
    /// [`Corrupt`](crate::ErrorKind::Corrupt), [`Io`](crate::ErrorKind::Io).
    pub fn read<T: SavedElement>(
        &self,
        kind: &str,
        name: &str,
        begin: u64,
        into: &mut [T],
    ) -> Result<()> {
        let kind = c_string(kind, "the kind of a tensor")?;
        let name = c_string(name, "the name of a tensor")?;
        let (count, bytes) = (into.len() as u64, size_of_val(into) as u64);
        // SAFETY: so many bytes may be written, during the call; every pattern of bits is a value.
        check(|err| unsafe {
            let data = into.as_mut_ptr() as *mut c_void;
            let (kind, name) = (kind.as_ptr(), name.as_ptr());
            sys::meron_checkpoint_read(data, bytes, self.as_raw(), kind, name, begin, count, err)
        })
    }

    /// The handle of the C interface, for calls of `meron-sys`.
    pub fn as_raw(&self) -> sys::meron_checkpoint {
        self.handle.raw()
    }

    /// Closes it, as dropping it does.
    pub fn release(self) -> Result<()> {
        self.handle.release()
    }

    fn text<T>(
        &self,
        kind: sys::meron_checkpoint_text_kind,
        take: impl FnOnce(&CStr) -> T,
    ) -> Result<T> {
        // SAFETY: `out` is valid during the call; the text is the checkpoint's, which `self` keeps.
        unsafe {
            let found: *const c_char = receive(ptr::null(), |out, err| {
                sys::meron_checkpoint_text(out, self.as_raw(), kind, err)
            })?;
            Ok(take(CStr::from_ptr(found)))
        }
    }

    fn string(&self, kind: sys::meron_checkpoint_text_kind) -> Result<String> {
        self.text(kind, |text| text.to_string_lossy().into_owned())
    }

    fn lines(&self, kind: sys::meron_checkpoint_text_kind) -> Result<Vec<String>> {
        Ok(self.string(kind)?.lines().map(str::to_string).collect())
    }
}

impl fmt::Debug for Checkpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path(), self.info()) {
            (Ok(path), Ok(info)) => write!(formatter, "Checkpoint({path:?}, step {})", info.step),
            (Err(error), _) | (_, Err(error)) => write!(formatter, "Checkpoint({error})"),
        }
    }
}

/// Opens a checkpoint to look at it and to read tensors, without a context. `folder`: of checkpoints,
/// or one of them; or a model as Hugging Face publishes it, a directory or one file. `name`: `None` for
/// the newest complete one.
///
/// Blocks on the drive.
///
/// # Errors
///
/// [`NotFound`](crate::ErrorKind::NotFound), [`Corrupt`](crate::ErrorKind::Corrupt),
/// [`Parse`](crate::ErrorKind::Parse), [`Version`](crate::ErrorKind::Version) (of a newer one),
/// [`Argument`](crate::ErrorKind::Argument), [`Auth`](crate::ErrorKind::Auth) (a link),
/// [`Io`](crate::ErrorKind::Io).
pub fn open_checkpoint(folder: impl AsRef<Path>, name: Option<&str>) -> Result<Checkpoint> {
    require_version()?;
    let folder = c_path(folder.as_ref())?;
    let name = optional(name, "the name of a checkpoint")?;
    // SAFETY: the texts are only read, during the call.
    let handle = receive(sys::meron_checkpoint::default(), |out, err| unsafe {
        sys::meron_checkpoint_open(out, folder.as_ptr(), pointer(&name), err)
    })?;
    Ok(Checkpoint::new(handle))
}

/// The complete checkpoints in a folder, newest first: the text of a JSON array of objects with `"name"`,
/// `"step"`, `"world"` (ranks that saved it), `"bytes"` (of its files), `"created"` and `"whole"` (false
/// if params, states or units were left out).
///
/// Blocks on the drive.
///
/// # Errors
///
/// [`NotFound`](crate::ErrorKind::NotFound) (no such folder), [`Io`](crate::ErrorKind::Io).
pub fn list_checkpoints(folder: impl AsRef<Path>) -> Result<String> {
    require_version()?;
    let folder = c_path(folder.as_ref())?;
    // SAFETY: the text is only read, during the call.
    receive_text(|out, err| unsafe { sys::meron_checkpoint_list(out, folder.as_ptr(), err) })
}

/// Removes a checkpoint, complete or not, with all that is in its directory. It loses its name first:
/// if the process is killed, it is there as before or gone. Any one process may call it.
///
/// Blocks on the drive.
///
/// # Errors
///
/// [`Argument`](crate::ErrorKind::Argument) (it is no checkpoint, and stays),
/// [`NotFound`](crate::ErrorKind::NotFound), [`Auth`](crate::ErrorKind::Auth) (a link),
/// [`State`](crate::ErrorKind::State) (a save of that name is pending, or a process has it open),
/// [`Io`](crate::ErrorKind::Io).
pub fn remove_checkpoint(folder: impl AsRef<Path>, name: &str) -> Result<()> {
    require_version()?;
    let folder = c_path(folder.as_ref())?;
    let name = c_string(name, "the name of a checkpoint")?;
    // SAFETY: the texts are only read, during the call.
    check(|err| unsafe { sys::meron_checkpoint_remove(folder.as_ptr(), name.as_ptr(), err) })
}

/// Writes tensors as a checkpoint of one rank, without a context. Elements are read once and in order.
///
/// Blocks on the drive.
///
/// # Errors
///
/// [`Argument`](crate::ErrorKind::Argument), [`Duplicate`](crate::ErrorKind::Duplicate) (the name is
/// taken), [`State`](crate::ErrorKind::State) (another process writes it),
/// [`NoSpace`](crate::ErrorKind::NoSpace), [`Io`](crate::ErrorKind::Io).
pub fn write_checkpoint(
    folder: impl AsRef<Path>,
    name: &str,
    tensors: &[CheckpointTensor<'_>],
    options: &WriteOptions,
) -> Result<()> {
    require_version()?;
    let folder = c_path(folder.as_ref())?;
    let name = c_string(name, "the name of a checkpoint")?;
    let extra = optional(options.extra.as_deref(), "extra")?;
    let optimizers = optional(options.optimizers.as_deref(), "optimizers")?;
    let tensors = RawTensors::new(tensors)?;
    let raw = sys::meron_checkpoint_write_options {
        overwrite: options.overwrite.into(),
        step: options.step,
        extra: pointer(&extra),
        optimizers: pointer(&optimizers),
        tensors: tensors.first(),
        tensor_count: tensors.count(),
        ..sys::MERON_CHECKPOINT_WRITE_OPTIONS_INIT
    };
    // SAFETY: everything is only read, during the call.
    check(|err| unsafe { sys::meron_checkpoint_write(folder.as_ptr(), name.as_ptr(), &raw, err) })
}

pub(crate) fn optional(text: Option<&str>, what: &str) -> Result<Option<CString>> {
    text.map(|text| c_string(text, what)).transpose()
}

/// Null where there is no text.
pub(crate) fn pointer(text: &Option<CString>) -> *const c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}
