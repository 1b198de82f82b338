// SPDX-License-Identifier: Apache-2.0
//! Files: what is written is read, memory stays with its request, and errors name the file.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use meron::{ErrorKind, Io, IoBackend, IoOptions};

/// A file that goes with the test.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> File {
        let name = format!("meron-rust-{}-{name}", std::process::id());
        File(std::env::temp_dir().join(name))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn both() -> Vec<Io> {
    [IoBackend::IoUring, IoBackend::Threads]
        .into_iter()
        .filter_map(|backend| {
            let options =
                IoOptions::default().backend(backend).block_bytes(65536).depth(4).threads(2);
            match Io::open(&options) {
                Err(error) if error.kind() == ErrorKind::Unsupported => None,
                made => Some(made.unwrap()),
            }
        })
        .collect()
}

#[test]
fn what_was_written_is_read() {
    let file = File::new("read");
    for io in both() {
        let values: Vec<f32> = (0..50_001).map(|i| i as f32).collect();
        io.write(&file.0, &values, 0).unwrap();
        io.write(&file.0, b"abc", 4001).unwrap();
        let mut bytes = [0u8; 5];
        io.read(&file.0, &mut bytes, 4000).unwrap();
        assert_eq!(&bytes[1..4], b"abc");
        let mut some = [0.0f32; 3];
        io.read(&file.0, &mut some, 8000).unwrap();
        assert_eq!(some, [2000.0, 2001.0, 2002.0]);
        io.read(&file.0, &mut [0u8; 0], 0).unwrap();

        let mut buffer = io.buffer(40_000).unwrap();
        assert!(buffer.iter().all(|&byte| byte == 0) && buffer.as_ptr() as usize % 4096 == 0);
        buffer[39_999] = 7;
        let mut request = io.write_begin(&file.0, buffer, 10_001).unwrap();
        let buffer = request.wait().unwrap();
        assert!(io.wait_timeout(Duration::from_secs(60)).unwrap());
        let read = common::run(io.read_begin(&file.0, vec![0u8; 40_000], 10_001).unwrap()).0;
        assert_eq!(read.unwrap(), &buffer[..]);
        let mut request = io.read_begin(&file.0, vec![0u8; 40_000], 10_001).unwrap();
        assert!(request.wait_timeout(Duration::from_secs(60)).unwrap());
        assert_eq!(request.wait().unwrap(), &buffer[..]);
        assert_eq!(request.wait().unwrap_err().kind(), ErrorKind::State);
        let info = io.info().unwrap();
        assert_eq!((info.block_bytes, info.pending, info.buffer_bytes), (65536, 0, 40_000));
        drop(io);
        assert_eq!(buffer[39_999], 7); // it outlives its io
    }
}

#[test]
fn requests_keep_their_memory() {
    let file = File::new("keep");
    for io in both() {
        for round in 0..20u8 {
            drop(io.write_begin(&file.0, vec![round; 1 << 20], 0).unwrap());
            io.wait().unwrap();
            drop(io.read_begin(&file.0, vec![0u8; 1 << 20], 0).unwrap());
        }
        let mut last = io.write_begin(&file.0, vec![9u8; 3 << 20], 0).unwrap();
        io.close().unwrap();
        assert_eq!(last.wait().unwrap().len(), 3 << 20);
        assert_eq!(std::fs::read(&file.0).unwrap(), vec![9u8; 3 << 20]);
        std::fs::remove_file(&file.0).unwrap();
    }
}

#[test]
fn errors_name_the_file() {
    let file = File::new("errors");
    let io = Io::open(&IoOptions::default()).unwrap();
    let none = io.read(&file.0, &mut [0u8; 1], 0).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    assert_eq!(none.subject(), file.0.to_str().unwrap());
    io.write(&file.0, &[0u8; 100], 0).unwrap();
    let short = io.read_begin(&file.0, vec![0u32; 10], 80).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::Io);
    assert!(short.message().contains("40 bytes are wanted at offset 80, and 20 are there"));
    let nul = io.read("a\0b", &mut [0u8; 1], 0).unwrap_err();
    assert_eq!(nul.kind(), ErrorKind::Argument);
    assert_eq!(io.buffer(0).unwrap_err().kind(), ErrorKind::Argument);
    let odd = IoOptions::default().block_bytes(1);
    assert_eq!(Io::open(&odd).unwrap_err().kind(), ErrorKind::Argument);
    assert!(io.describe().unwrap().contains("blocks of 1.0 MiB"));
}
