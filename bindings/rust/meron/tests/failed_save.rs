// SPDX-License-Identifier: Apache-2.0
//! A save in the background that fails after its future was dropped. Alone in its process, because the
//! limit on the size of files is the process's.

mod common;

use std::os::raw::{c_int, c_void};
use std::time::Duration;

use meron::{CheckpointTensor, SaveOptions};

const RLIMIT_FSIZE: c_int = 1;
const SIGXFSZ: c_int = 25;
const SIG_IGN: *const c_void = 1 as *const c_void;

extern "C" {
    fn signal(number: c_int, handler: *const c_void) -> *const c_void;
    fn getrlimit(resource: c_int, limit: *mut [u64; 2]) -> c_int;
    fn setrlimit(resource: c_int, limit: *const [u64; 2]) -> c_int;
}

/// No file of this process grows beyond so many bytes; `None`: any may.
fn limit_files(bytes: Option<u64>) {
    let mut limit = [0; 2];
    // SAFETY: `limit` is laid out as rlimit is; ignoring a signal calls nothing.
    unsafe {
        signal(SIGXFSZ, SIG_IGN);
        assert_eq!(getrlimit(RLIMIT_FSIZE, &mut limit), 0);
        limit[0] = bytes.unwrap_or(limit[1]);
        assert_eq!(setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
}

#[test]
fn the_next_save_raises_what_nobody_waited_for() {
    let folder = std::env::temp_dir().join(format!("meron-rust-{}-failed", std::process::id()));
    let context = common::alone();
    let weight = context.param("weight", &[3, 5]).unwrap();
    let unit = context.unit("layer", &[&weight]).unwrap();
    let mut update = context.update(&[&unit]).unwrap();
    update.write(&weight, &[1.0f32; 15]).unwrap();
    update.publish().unwrap();
    let tensor = CheckpointTensor::new("own", &[1000], vec![1.0f32; 1000]);
    let options = SaveOptions::new().tensor(tensor);

    limit_files(Some(16));
    drop(context.save_begin(&folder, "one", &[], &options).unwrap());
    while context.save_progress().unwrap().saving {
        std::thread::sleep(Duration::from_millis(1));
    }
    context.progress().unwrap(); // releases the future, and the tensor with it
    limit_files(None);
    let raised = context.save_begin(&folder, "two", &[], &options).err();
    assert!(raised.is_some(), "the failure of 'one' is lost");
    context.save_begin(&folder, "three", &[], &options).unwrap().wait().unwrap();
    drop(context);
    std::fs::remove_dir_all(&folder).unwrap();
}
