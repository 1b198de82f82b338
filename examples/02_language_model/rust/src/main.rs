// SPDX-License-Identifier: Apache-2.0
//! Meron's example 02: from the command line to the exit code: 0, 1 (something was not as planned), 2 (bad
//! input).

mod checkpoint;
mod matrix;
mod model;
mod options;
mod pretrained;
mod report;
mod text;
mod train;

use std::fs::OpenOptions;
use std::process::exit;
use std::time::Instant;

use meron::{Context, Plan, Result, Stats, Workload};

use checkpoint::Saver;
use options::{Options, HELP};
use report::{Figures, Summary};
use train::Trainer;

// The next three check the user's input. Their errors name the problem and the remedy.

/// A preset's name, or a file of JSON.
fn load_plan(name: &str) -> std::result::Result<Plan, String> {
    let made = if name.contains(&['.', '/'][..]) {
        let json = text::load(&[name.to_string()]).map_err(|reason| {
            format!(
                "--plan: {reason}; name zero0 to zero3, mics(N), hpz(N), zeropp(N) or a JSON file"
            )
        })?;
        Plan::parse(&String::from_utf8_lossy(&json))
    } else {
        Plan::preset(name)
    };
    made.map_err(|error| format!("--plan {name}: {error}"))
}

fn load_text(options: &Options) -> std::result::Result<Vec<u8>, String> {
    let folder = text::DEFAULT_FOLDER;
    let text = text::load(&options.data).map_err(|reason| {
        format!(
            "--data: {reason}; name files that have text in them, or leave --data out to train on \
             the licences in {folder}"
        )
    })?;
    if text.len() > options.context {
        return Ok(text);
    }
    Err(format!(
        "--data: the text has {} bytes, and one example takes {}; name more text, or lower --context",
        text.len(),
        options.context + 1
    ))
}

fn try_output(path: Option<&str>) -> std::result::Result<(), String> {
    let path = match path {
        Some(path) => path,
        None => return Ok(()),
    };
    match OpenOptions::new().append(true).create(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("--json: cannot write {path}: {}", text::reason(&error))),
    }
}

/// Exchanges the counters of all ranks since `before`, and the predictions of their plans.
fn collect_figures(context: &Context, options: &Options, before: &Stats) -> Result<Vec<Figures>> {
    let after = context.stats()?;
    let plan = context.predict(
        &Workload::default().micro_batches(options.accumulate as u32).gathers_per_micro_batch(2),
    )?;
    let own = [
        after.gather_mapped_bytes - before.gather_mapped_bytes,
        after.gather_copied_bytes - before.gather_copied_bytes,
        after.reduce_bytes - before.reduce_bytes,
        plan.gather_mapped_bytes,
        plan.gather_copied_bytes,
        plan.reduce_bytes,
        after.peak_bytes,
        plan.peak_bytes,
        after.arena_pages_bytes,
        plan.inter_node_gather_bytes + plan.inter_node_reduce_bytes,
    ];
    let world = context.world()?;
    (0..context.world_size())
        .map(|rank| {
            let mut row = own;
            world.broadcast(&mut row, rank)?;
            let [mapped, copied, reduced, planned_mapped, planned_copied, planned_reduced, ..] =
                row;
            let [.., peak, planned_peak, arena_pages, inter_node] = row;
            Ok(Figures {
                mapped,
                copied,
                reduced,
                planned_mapped,
                planned_copied,
                planned_reduced,
                peak,
                planned_peak,
                arena_pages,
                between_nodes: inter_node > 0,
            })
        })
        .collect()
}

/// Loads a checkpoint for --resume, or weights for --from. Returns a description of them, or the
/// error, the same on all ranks.
fn load(
    context: &Context,
    trainer: &mut Trainer<'_>,
    options: &Options,
) -> std::result::Result<Option<String>, String> {
    if let Some(folder) = &options.resume {
        return checkpoint::resume(context, trainer, folder, options.steps).map(Some);
    }
    match &options.from {
        Some(folder) => pretrained::start_from(context, options.layers, folder).map(Some),
        None => Ok(None),
    }
}

/// Trains; rank 0 reports. Returns the exit code.
fn run(context: &Context, plan: &str, options: &Options, text: &[u8]) -> Result<i32> {
    let mut trainer = Trainer::new(context, options, text)?;
    let speaks = context.rank() == 0;
    match load(context, &mut trainer, options) {
        Ok(Some(loaded)) if speaks && !options.quiet => println!("{loaded}"),
        Ok(_) => {}
        Err(problem) => {
            if speaks {
                eprintln!("language_model: {problem}");
            }
            return Ok(2);
        }
    }
    let mut summary = Summary {
        options,
        transport: context.transport(),
        plan,
        parameters: trainer.parameters(),
        units: trainer.units(),
        text_bytes: text.len(),
        ranks: context.world_size() as usize,
        losses: Vec::new(),
        seconds: 0.0,
        figures: Vec::new(),
    };
    if speaks && !options.quiet {
        report::begin(&summary);
    }

    let before = context.stats()?;
    let mut saver = Saver::new(context, options);
    let begin = Instant::now();
    let losses = trainer.train(|trainer, step, loss| saver.after_step(trainer, step, loss))?;
    saver.finish()?;
    let seconds = begin.elapsed().as_secs_f64();
    let steps = losses.len();
    summary.losses = losses;
    summary.seconds = seconds;
    summary.figures = collect_figures(context, options, &before)?;
    if let Some(folder) = &options.export {
        pretrained::publish(context, options.layers, folder)?;
    }

    let mut code = i32::from(!summary.figures.iter().all(|f| f.as_planned(steps)));
    if speaks && !options.quiet {
        summary.print();
    }
    if speaks && code != 0 {
        eprintln!("language_model: counters and plan differ");
    }
    if let (true, Some(path)) = (speaks, &options.json) {
        if let Err(error) = summary.write_json(path) {
            eprintln!("language_model: cannot write {path}: {}", text::reason(&error));
            code = 1;
        }
    }
    Ok(code)
}

/// Reads the plan and the text of the user's options.
fn prepare(options: &Options) -> std::result::Result<(Plan, Vec<u8>), String> {
    let plan = load_plan(&options.plan)?;
    let text = load_text(options)?;
    try_output(options.json.as_deref())?;
    Ok((plan, text))
}

fn start() -> Result<i32> {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    // The user's input is checked before the ranks meet, and reported after: every rank finds the
    // same error, and one rank reports it.
    let (options, read) = Options::parse(&arguments);
    let prepared = match read {
        Err(problem) => Err(problem),
        Ok(()) if options.help => Ok(None),
        Ok(()) => prepare(&options).map(Some),
    };

    let mut opening = Context::options();
    let prepared = match prepared {
        Ok(Some((plan, text))) => {
            let json = plan.to_json()?;
            opening = opening.plan(plan);
            Ok(Some((json, text)))
        }
        Ok(None) => Ok(None),
        Err(problem) => Err(problem),
    };
    let context = opening.open()?;
    let code = match prepared {
        Ok(Some((plan, text))) => run(&context, &plan, &options, &text)?,
        Ok(None) => {
            if context.rank() == 0 {
                print!("{HELP}");
            }
            0
        }
        Err(problem) => {
            if context.rank() == 0 {
                eprintln!("language_model: {problem}");
            }
            2
        }
    };

    // `meron run` ends the job when a rank leaves with an error: let rank 0 have said why first.
    context.world()?.barrier()?;
    context.close()?;
    Ok(code)
}

fn main() {
    match start() {
        Ok(code) => exit(code),
        Err(error) => {
            eprintln!("language_model: {error}");
            exit(1);
        }
    }
}
