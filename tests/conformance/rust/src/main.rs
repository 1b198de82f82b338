// SPDX-License-Identifier: Apache-2.0
//! Runs the conformance cases through the crate `meron`. `../README.md` says how it is called.

#[rustfmt::skip] // generated
mod calls;
mod checking;
mod checkpoints;
mod contexts;
#[rustfmt::skip] // generated
mod counters;
mod elements;
mod failure;
mod files;
mod gathers;
mod gradients;
mod groups;
mod operations;
mod optimizers;
mod params;
mod plans;
mod schedules;
mod session;
#[path = "../../../../examples/08_custom_transport/rust/src/sockets.rs"]
mod sockets;
mod table;
mod values;
mod waiting;

use std::io::Write;
use std::process::exit;
use std::sync::Arc;
use std::thread;

use failure::{Failure, RAW};
use session::{Session, Setup};
use table::{Case, Statement};
use values::holds;

/// Writes a complete line at once.
fn say(line: &str) {
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n";
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

/// Holds the outcome of an operation against what the statement expects.
fn judge(s: &Statement, outcome: Result<(), Failure>) -> Result<(), String> {
    let expected = s.get("fails");
    let failed = |code: &str, message: &str| match expected {
        Some(codes) if codes.split('|').any(|each| each == code) => Ok(()),
        _ => Err(format!("{code} instead of {}: {message}", expected.unwrap_or("success"))),
    };
    match outcome {
        Ok(()) => match expected {
            Some(code) => Err(format!("it did not fail with {code}")),
            None => Ok(()),
        },
        Err(Failure::Wrong(what)) => match what.strip_prefix(RAW) {
            Some(code) => failed(code, "of a raw call"),
            None => Err(what),
        },
        Err(Failure::Meron(error)) => {
            failed(error.code_name(), error.message())?;
            if let Some(says) = s.get("says") {
                if !holds(error.message(), says) {
                    return Err(format!("the message lacks {says}: {error}"));
                }
            }
            let peer = error.peer().map(|peer| peer.to_string());
            match s.get("peer") {
                Some(wanted) if peer.as_deref() != Some(wanted) => {
                    Err(format!("the peer is {peer:?} instead of {wanted}"))
                }
                _ => Ok(()),
            }
        }
    }
}

/// Runs a case on this rank; what went wrong.
fn run_case(setup: &Setup, case: &Case, plan: &str) -> Result<(), String> {
    let mut session = Session::new(setup, &case.name, plan);
    let mut result = Ok(());
    for s in case.statements.iter().filter(|s| s.is_for(setup.rank)) {
        let outcome = operations::execute(&mut session, s);
        if let Err(what) = judge(s, outcome) {
            let (rank, line, operation) = (setup.rank, s.line, &s.operation);
            result = Err(format!("rank {rank}: line {line}: {operation}: {what}"));
            break;
        }
    }
    session.end();
    result
}

/// Runs all cases on this rank; whether they went well.
fn run_rank(setup: &Setup, cases: &[Case], only: Option<&str>) -> bool {
    let mut well = true;
    for case in cases.iter().filter(|case| case.runs_on(&setup.transport, setup.ranks)) {
        if only.map_or(false, |name| name != case.name) {
            continue;
        }
        for plan in &case.plans {
            let title = format!("{} {plan}", case.name);
            if setup.rank == 0 {
                say(&format!("# {title}"));
            }
            if let Some(word) = &case.lacking {
                if setup.rank == 0 {
                    say(&format!("ok {title} # SKIP needs {word}"));
                }
                continue;
            }
            match run_case(setup, case, plan) {
                Err(what) => {
                    well = false;
                    say(&format!("not ok {title}: {what}"));
                }
                Ok(()) if setup.rank == 0 => say(&format!("ok {title}")),
                Ok(()) => {}
            }
        }
    }
    well
}

struct Arguments {
    cases: String,
    transport: String,
    ranks: i32,
    job: String,
    only: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut words = std::env::args().skip(1);
    let mut read = Arguments {
        cases: words.next().ok_or("which cases?")?,
        transport: String::new(),
        ranks: 1,
        job: "conformance".to_string(),
        only: None,
    };
    while let Some(option) = words.next() {
        let value = words.next().ok_or(format!("{option} needs a value"))?;
        match option.as_str() {
            "--transport" => read.transport = value,
            "--ranks" => read.ranks = value.parse().map_err(|_| format!("--ranks {value}"))?,
            "--job" => read.job = value,
            "--only" => read.only = Some(value),
            _ => return Err(format!("{option} is unknown")),
        }
    }
    if !["self", "local", "shm", "custom"].contains(&read.transport.as_str()) {
        return Err("--transport is self, local, shm or custom".to_string());
    }
    Ok(read)
}

fn number(name: &str) -> Result<i32, String> {
    let text = std::env::var(name).map_err(|_| format!("{name} is not set"))?;
    text.parse().map_err(|_| format!("{name} is no number"))
}

fn run() -> Result<bool, String> {
    let Arguments { cases, transport, ranks, job, only } = arguments()?;
    let text = std::fs::read_to_string(&cases).map_err(|error| format!("{cases}: {error}"))?;
    let cases = Arc::new(table::parse(&text)?);
    if transport == "shm" {
        let (rank, ranks) = (number("MERON_RANK")?, number("MERON_WORLD_SIZE")?);
        let setup = Setup { rank, ranks, transport, job };
        return Ok(run_rank(&setup, &cases, only.as_deref()));
    }
    let threads: Vec<_> = (0..ranks)
        .map(|rank| {
            let setup = Setup { rank, ranks, transport: transport.clone(), job: job.clone() };
            let (cases, only) = (cases.clone(), only.clone());
            thread::spawn(move || run_rank(&setup, &cases, only.as_deref()))
        })
        .collect();
    // All of them are waited for; one that panicked has failed.
    let ended: Vec<bool> =
        threads.into_iter().map(|thread| thread.join().unwrap_or(false)).collect();
    Ok(ended.into_iter().all(|well| well))
}

fn main() {
    match run() {
        Ok(true) => {}
        Ok(false) => exit(1),
        Err(what) => {
            eprintln!("conformance_runner: {what}");
            exit(2);
        }
    }
}
