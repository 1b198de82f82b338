// SPDX-License-Identifier: Apache-2.0
//! Reads and writes of borrowed memory, by copies that the requests own: a drive that fails may
//! keep the memory of a request, and borrowed memory cannot stay with it.

use std::collections::VecDeque;
use std::iter::once;
use std::mem::size_of_val;
use std::ops::Range;
use std::os::raw::c_void;
use std::path::Path;
use std::slice;

use crate::dtype::Plain;
use crate::error::Result;
use crate::io::Io;
use crate::io_memory::{sealed, IoMemory};
use crate::io_request::IoRequest;

const PAGE: usize = 4096;
/// Bytes of a read, and reads at a time: one moves while another is copied.
const PIECE: usize = 4 << 20;
const DEPTH: usize = 2;

/// A copy of borrowed memory, or of a piece of it. It has the alignment of the original, by which the library
/// decides if full pages bypass the page cache.
struct AlignedCopy {
    memory: Vec<u8>,
    /// The part of the memory that has the copy.
    place: Range<usize>,
}

impl AlignedCopy {
    /// Room for so many bytes of memory that begins at `original`.
    fn new(original: *const u8, bytes: usize) -> AlignedCopy {
        let memory = vec![0; bytes + PAGE];
        let first = (original as usize).wrapping_sub(memory.as_ptr() as usize) % PAGE;
        AlignedCopy { memory, place: first..first }
    }

    fn of_length(mut self, bytes: usize) -> AlignedCopy {
        self.place.end = self.place.start + bytes;
        self
    }

    fn as_slice(&self) -> &[u8] {
        &self.memory[self.place.clone()]
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.memory[self.place.clone()]
    }
}

impl sealed::Memory for AlignedCopy {
    fn memory(&mut self) -> (*mut c_void, u64) {
        let place = self.as_mut_slice();
        (place.as_mut_ptr() as *mut c_void, place.len() as u64)
    }
}
impl IoMemory for AlignedCopy {}

/// The pieces of so many bytes. The last one is first: it finds a file that is too short before other
/// bytes move.
fn pieces(bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let before = (bytes.max(1) - 1) / PIECE;
    once(before * PIECE..bytes).chain((0..before).map(|i| i * PIECE..(i + 1) * PIECE))
}

type UnderWay = VecDeque<(Range<usize>, IoRequest<AlignedCopy>)>;

impl Io {
    /// Fills all of `into` from byte `offset` of a file on, and waits for it.
    ///
    /// Reads by pieces of 4 MiB into memory of its own, and copies them: a drive that fails may keep
    /// the memory of a request, and borrowed memory cannot stay with it.
    /// [`read_begin`](Io::read_begin) needs no copy. After an error some pieces may be there. Blocks
    /// on the drive, as long as something moves.
    ///
    /// # Errors
    ///
    /// [`NotFound`](crate::ErrorKind::NotFound); [`Io`](crate::ErrorKind::Io) if the file is too
    /// short, or for an error of the drive; [`Argument`](crate::ErrorKind::Argument) if it is no
    /// file; [`Timeout`](crate::ErrorKind::Timeout) if no transfer progresses;
    /// [`Closed`](crate::ErrorKind::Closed) if the kernel does not return its memory.
    pub fn read<T: Plain>(
        &self,
        path: impl AsRef<Path>,
        into: &mut [T],
        offset: u64,
    ) -> Result<()> {
        read(self, path.as_ref(), into, offset)
    }

    /// Writes all of `data` to byte `offset` of a file and on, and waits for the kernel. Creates
    /// the file if it does not exist; its other content stays, also beyond the end of `data`. Data
    /// that must survive a loss of power needs a sync by the caller.
    ///
    /// Copies, blocks and fails as [`read`](Io::read); [`NoSpace`](crate::ErrorKind::NoSpace).
    /// [`write_begin`](Io::write_begin) needs no copy.
    pub fn write<T: Plain>(&self, path: impl AsRef<Path>, data: &[T], offset: u64) -> Result<()> {
        write(self, path.as_ref(), data, offset)
    }
}

fn read<T: Plain>(io: &Io, path: &Path, into: &mut [T], offset: u64) -> Result<()> {
    let bytes = size_of_val(into);
    // SAFETY: the memory of the slice; every pattern of bits is a T.
    let into = unsafe { slice::from_raw_parts_mut(into.as_mut_ptr() as *mut u8, bytes) };
    let mut under_way = UnderWay::new();
    for piece in pieces(bytes) {
        let copy = match under_way.len() < DEPTH {
            true => AlignedCopy::new(into.as_ptr(), bytes.min(PIECE)),
            false => end_of_read(&mut under_way, into)?,
        };
        let from = offset.saturating_add(piece.start as u64);
        under_way
            .push_back((piece.clone(), io.read_begin(path, copy.of_length(piece.len()), from)?));
    }
    while !under_way.is_empty() {
        end_of_read(&mut under_way, into)?;
    }
    Ok(())
}

/// Waits for the oldest request.
fn end_of_read(under_way: &mut UnderWay, into: &mut [u8]) -> Result<AlignedCopy> {
    let (piece, mut request) = under_way.pop_front().expect("a request is under way");
    let copy = request.wait()?;
    into[piece].copy_from_slice(copy.as_slice());
    Ok(copy)
}

/// One request: the file gets the disk space for all of it, or keeps its size.
fn write<T: Plain>(io: &Io, path: &Path, data: &[T], offset: u64) -> Result<()> {
    let bytes = size_of_val(data);
    // SAFETY: the memory of the slice; plain numbers have no padding.
    let data = unsafe { slice::from_raw_parts(data.as_ptr() as *const u8, bytes) };
    let mut copy = AlignedCopy::new(data.as_ptr(), bytes).of_length(bytes);
    copy.as_mut_slice().copy_from_slice(data);
    io.write_begin(path, copy, offset)?.wait().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::IoOptions;

    #[test]
    fn pieces_have_each_byte_once() {
        for bytes in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7] {
            let mut all: Vec<_> = pieces(bytes).collect();
            assert_eq!(all[0].end, bytes);
            assert!(all.iter().all(|piece| piece.len() <= PIECE));
            all.rotate_left(1);
            assert_eq!(all[0].start, 0);
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }

    #[test]
    fn several_pieces_are_written_and_read() {
        let path = std::env::temp_dir().join(format!("meron-rust-{}-pieces", std::process::id()));
        let io = Io::open(&IoOptions::default()).unwrap();
        let values: Vec<u32> = (0..(3 * PIECE / 4) as u32 + 5).collect();
        io.write(&path, &values, 3).unwrap();
        let mut read = vec![0u32; values.len()];
        io.read(&path, &mut read, 3).unwrap();
        assert!(read == values);
        // Nothing is read of a file that is too short.
        read.fill(0);
        assert!(io.read(&path, &mut read, 4).is_err());
        assert!(read.iter().all(|&value| value == 0));
        std::fs::remove_file(&path).unwrap();
    }
}
