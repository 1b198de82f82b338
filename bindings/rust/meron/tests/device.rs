// SPDX-License-Identifier: Apache-2.0
//! Devices, by the emulated one: its memory is the host's, its streams are threads.

mod common;

use std::alloc::{alloc, dealloc, Layout};
use std::os::raw::c_void;
use std::panic::panic_any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use common::{alone, modest, Bomb};
use meron::{
    Context, ContextOptions, DeviceAllocator, ErrorKind, Param, ScheduleOptions, Source, Stream,
    Tier, Unit,
};

fn emulated() -> ContextOptions {
    modest().transport("self").rank(0).world_size(1).device("emulated")
}

fn written(context: &Context) -> (Param, Unit) {
    let param = context.param("w", &[3, 4]).unwrap();
    let unit = context.unit("u", &[&param]).unwrap();
    let mut update = context.update(&[&unit]).unwrap();
    update.write(&param, &values()).unwrap();
    update.publish().unwrap();
    (param, unit)
}

fn values() -> Vec<f32> {
    (0..12).map(|i| i as f32).collect()
}

#[test]
fn a_stream_waits_and_the_host_need_not() {
    let context = emulated().open().unwrap();
    let (param, unit) = written(&context);
    let full = unit.gather_begin().unwrap().wait_stream(Stream::default()).unwrap();
    full.wait_stream(Stream::default()).unwrap();
    let shown = full.view(&param).unwrap().as_slice::<f32>().unwrap();
    assert_eq!(shown, values());
    assert_eq!(full.device_pointer(&param).unwrap(), shown.as_ptr() as *const c_void);
    let up = context.stats().unwrap().device_up_bytes;
    assert!(up >= 48);

    let host = unit.gather_begin_at(Tier::Host).unwrap().wait().unwrap();
    assert_eq!(host.view(&param).unwrap().to_f32(), values());
    assert_ne!(host.device_pointer(&param).unwrap(), full.device_pointer(&param).unwrap());
    let tensor = unit.gather().unwrap().dlpack(&param).unwrap();
    assert_eq!((tensor.device(), tensor.as_slice::<f32>().unwrap()), ((1, 0), &values()[..]));
    assert_eq!(context.stats().unwrap().device_up_bytes, up);
    assert_eq!(unit.info().unwrap().leases, 3);
    drop((tensor, host));
    full.release_on_stream(Stream::default()).unwrap();
    assert_eq!(unit.info().unwrap().leases, 0);
}

#[test]
fn gradients_from_its_memory() {
    let context = emulated().open().unwrap();
    let (param, unit) = written(&context);
    let full = unit.gather().unwrap();
    let data = full.device_pointer(&param).unwrap();
    // SAFETY: the gather holds the memory until the reduction has ended.
    let source = unsafe { Source::on_device(&param, data, 12, param.dtype()) };
    unit.reduce_from(&[source], &Default::default()).unwrap();
    assert_eq!(unit.reduced().unwrap().view(&param).unwrap().as_slice::<f32>().unwrap(), values());
    assert!(context.stats().unwrap().device_down_bytes >= 48);
    unit.discard_reduced().unwrap();

    // A slice of the same memory is read during the call, as every slice.
    let slice = full.view(&param).unwrap().as_slice::<f32>().unwrap();
    let reduction =
        unit.reduce_from_begin(&[Source::new(&param, slice)], &Default::default()).unwrap();
    drop(full);
    reduction.wait().unwrap();
    assert_eq!(unit.reduced().unwrap().view(&param).unwrap().as_slice::<f32>().unwrap(), values());
}

#[test]
fn an_entered_unit_on_a_device_shows_no_slice() {
    let context = emulated().open().unwrap();
    let (param, unit) = written(&context);
    for (tier, refused) in [(Tier::Device, true), (Tier::Host, false)] {
        let schedule = context.schedule(&[&unit], &ScheduleOptions::default().tier(tier)).unwrap();
        schedule.start_pass(0).unwrap();
        let used = schedule.enter(0).unwrap();
        assert!(!used.device_pointer(&param).unwrap().is_null());
        match used.view(&param) {
            Ok(view) => assert!(!refused && view.to_f32() == values()),
            Err(error) => {
                assert!(refused && error.kind() == ErrorKind::Unsupported, "{error}");
                assert!(error.advice().contains("Tier::Host"), "{error}");
            }
        };
    }
}

/// Counts what it lends.
struct Pool {
    lent: Arc<AtomicUsize>,
    /// 0: it has none; 1: it panics.
    most: u64,
}

fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes as usize, 256).unwrap()
}

// SAFETY: memory of the host, which is what the emulated device takes, from the program's allocator.
unsafe impl DeviceAllocator for Pool {
    fn allocate(&self, bytes: u64, _stream: Stream) -> Option<NonNull<c_void>> {
        match self.most {
            0 => return None,
            1 => panic_any(Bomb),
            most if bytes > most => return None,
            _ => {}
        }
        self.lent.fetch_add(1, Ordering::SeqCst);
        // SAFETY: no caller requests 0 bytes.
        NonNull::new(unsafe { alloc(layout(bytes)) } as *mut c_void)
    }

    fn release(&self, data: NonNull<c_void>, bytes: u64, _stream: Stream) {
        self.lent.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: it came from `allocate`, with that size.
        unsafe { dealloc(data.as_ptr() as *mut u8, layout(bytes)) };
    }
}

#[test]
fn an_allocator_of_the_programs_own() {
    let lent = Arc::new(AtomicUsize::new(0));
    let pool = |most| Pool { lent: lent.clone(), most };
    let context = emulated().allocator(pool(1 << 20)).open().unwrap();
    let (param, unit) = written(&context);
    let tensor = unit.gather().unwrap().dlpack(&param).unwrap();
    assert!(lent.load(Ordering::SeqCst) > 0);
    drop((unit, param, context));
    assert_eq!(tensor.as_slice::<f32>().unwrap(), values());
    drop(tensor);
    assert_eq!(lent.load(Ordering::SeqCst), 0);

    for most in [0, 1] {
        let context = emulated().allocator(pool(most)).open().unwrap();
        let (param, unit) = written(&context);
        assert_eq!(unit.gather().unwrap_err().kind(), ErrorKind::NoMemory);
        let host = unit.gather_begin_at(Tier::Host).unwrap().wait().unwrap();
        assert_eq!(host.view(&param).unwrap().to_f32(), values());
    }
}

#[test]
fn what_is_refused() {
    for name in ["gpu", "emulated:7", "cuda:x"] {
        let error = modest().rank(0).world_size(1).device(name).open().unwrap_err();
        assert_eq!((error.kind(), error.subject()), (ErrorKind::Argument, name));
    }
    let context = alone();
    let (_param, unit) = written(&context);
    let pending = unit.gather_begin().unwrap();
    let error = pending.wait_stream(Stream::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    let error = unit.gather().unwrap().release_on_stream(Stream::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    assert_eq!(unit.info().unwrap().leases, 0);
}
