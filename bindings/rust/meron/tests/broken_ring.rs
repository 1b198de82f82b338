// SPDX-License-Identifier: Apache-2.0
//! A read whose io_uring breaks: the kernel keeps the memory of the request, and never the caller's
//! slice. Alone in its process, because the filter of system calls is the process's.

use std::os::raw::{c_int, c_long, c_ulong};
use std::path::PathBuf;
use std::time::Duration;

use meron::{ErrorKind, Io, IoBackend, IoOptions};

/// An instruction of the kernel's filter, `sock_filter`.
#[repr(C)]
struct Instruction(u16, u8, u8, u32);

/// `sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    code: *const Instruction,
}

extern "C" {
    fn prctl(option: c_int, ...) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// From now on a call that only waits for the ring fails with ENOMEM. False if the host has no such
/// filters.
fn break_waits() -> bool {
    const PR_SET_NO_NEW_PRIVS: c_int = 38;
    const SYS_SECCOMP: c_long = if cfg!(target_arch = "x86_64") { 317 } else { 277 };
    const SYS_IO_URING_ENTER: u32 = 426;
    const ENOMEM: u32 = 12;
    let code = [
        Instruction(0x20, 0, 0, 0),                  // load the number of the call
        Instruction(0x15, 0, 3, SYS_IO_URING_ENTER), // another one: allow
        Instruction(0x20, 0, 0, 24),                 // load its second argument: to submit
        Instruction(0x15, 0, 1, 0),                  // some: allow
        Instruction(0x06, 0, 0, 0x0005_0000 | ENOMEM), // fail
        Instruction(0x06, 0, 0, 0x7FFF_0000),        // allow
    ];
    let program = Program { length: code.len() as u16, code: code.as_ptr() };
    // SAFETY: the program lives during the call, which copies it.
    unsafe {
        prctl(PR_SET_NO_NEW_PRIVS, 1 as c_ulong, 0 as c_ulong, 0 as c_ulong, 0 as c_ulong) == 0
            && syscall(SYS_SECCOMP, 1 as c_ulong, 1 as c_ulong, &program as *const Program) == 0
    }
}

struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_borrowed_slice_does_not_change_after_a_read_that_failed() {
    let file = File(std::env::temp_dir().join(format!("meron-rust-{}-ring", std::process::id())));
    let options = IoOptions::default().backend(IoBackend::IoUring).block_bytes(1 << 18).depth(128);
    let io = match Io::open(&options) {
        Err(error) if error.kind() == ErrorKind::Unsupported => return,
        made => made.unwrap(),
    };
    let mut values = vec![0u8; 8 << 20];
    // The slice and the file have one alignment, so that a read would not use the page cache.
    let offset = values.as_ptr() as u64 % 4096;
    io.write(&file.0, &vec![7u8; values.len() + 4096], 0).unwrap();
    if !break_waits() {
        return;
    }
    match io.read(&file.0, &mut values, offset) {
        Ok(()) => assert!(values.iter().all(|&byte| byte == 7)), // it needed no wait
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            let at_return = values.clone();
            for _ in 0..10 {
                assert!(values == at_return);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
