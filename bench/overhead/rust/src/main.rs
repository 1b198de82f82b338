// SPDX-License-Identifier: Apache-2.0
//! What a gather of a unit that is at hand costs the caller, in Rust: the counterpart of
//! overhead.cpp.

use std::fs;
use std::time::Instant;

use meron::{Context, ReduceOp, Result, Unit};

extern "C" {
    fn sched_getaffinity(process: i32, bytes: usize, set: *mut u64) -> i32;
    fn sched_setaffinity(process: i32, bytes: usize, set: *const u64) -> i32;
}

/// Rank r runs on the r-th CPU that this process may use, and nowhere else, if there is one for
/// each.
fn pin(context: &Context) {
    let mut allowed = [0u64; 16];
    // SAFETY: the set has the bytes that are named.
    if unsafe { sched_getaffinity(0, 128, allowed.as_mut_ptr()) } < 0 {
        return;
    }
    let cpus: Vec<usize> =
        (0..1024).filter(|cpu| allowed[cpu / 64] >> (cpu % 64) & 1 == 1).collect();
    if cpus.len() >= context.world_size() as usize {
        let cpu = cpus[context.rank() as usize];
        let mut mine = [0u64; 16];
        mine[cpu / 64] = 1 << (cpu % 64);
        // SAFETY: as above.
        unsafe { sched_setaffinity(0, 128, mine.as_ptr()) };
    }
}

/// Number of involuntary context switches of this thread.
fn interruptions() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Of the values that the ranks pass.
fn largest(context: &Context, value: f64) -> Result<f64> {
    let mut values = vec![0.0f32; context.world_size() as usize];
    values[context.rank() as usize] = value as f32;
    context.world()?.all_reduce(&mut values, ReduceOp::Sum)?;
    Ok(values.into_iter().fold(0.0, f32::max).into())
}

fn gather(unit: &Unit) -> Result<()> {
    unit.gather_begin()?.wait()?.release()
}

/// Seconds of some gathers on the slowest rank; the ranks begin together.
fn timed(context: &Context, unit: &Unit, times: usize) -> Result<f64> {
    context.world()?.barrier()?;
    let begin = Instant::now();
    for _ in 0..times {
        gather(unit)?;
    }
    largest(context, begin.elapsed().as_secs_f64())
}

struct Series {
    arm: &'static str,
    microseconds: Vec<f64>,
    disturbed: usize,
}

/// Back-to-back gathers in batches of two milliseconds.
fn measure(context: &Context, unit: &Unit, arm: &'static str, quick: bool) -> Result<Series> {
    let (batch_seconds, batches) = if quick { (1e-3, 3) } else { (2e-3, 25) };
    for _ in 0..4 {
        gather(unit)?;
    }
    let once = timed(context, unit, 1)?.max(1e-8);
    let times = (batch_seconds / once).clamp(1.0, 20_000.0) as usize;
    let mut series = Series { arm, microseconds: Vec::new(), disturbed: 0 };
    for _ in 0..batches {
        let before = interruptions();
        series.microseconds.push(timed(context, unit, times)? / times as f64 * 1e6);
        series.disturbed += usize::from(largest(context, (interruptions() - before) as f64)? > 0.0);
    }
    Ok(series)
}

fn main() -> Result<()> {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let context = Context::open()?;
    pin(&context);
    let param = context.param("tensor", &[1024])?;
    let unit = context.unit("tensor", &[&param])?;
    let mut all = vec![measure(&context, &unit, "only lease", quick)?];
    let held = unit.gather()?;
    all.push(measure(&context, &unit, "leased already", quick)?);
    drop(held);

    if context.rank() == 0 {
        let batches: usize = all.iter().map(|series| series.microseconds.len()).sum();
        let disturbed: usize = all.iter().map(|series| series.disturbed).sum();
        let series: Vec<String> = all
            .iter()
            .map(|series| {
                let (arm, us) = (series.arm, &series.microseconds);
                format!("{{\"arm\": \"{arm}\", \"bytes\": 0, \"us\": {us:?}}}")
            })
            .collect();
        let disturbed = disturbed as f64 / batches as f64;
        println!("{{\"disturbed\": {disturbed:.3}, \"series\": [{}]}}", series.join(", "));
    }
    context.world()?.barrier() // keep this rank until the others have measured
}
