// SPDX-License-Identifier: Apache-2.0
//! Output for people, and the JSON file. Everything here runs on rank 0 alone.

use std::fs;
use std::io::{self, Write};

use crate::options::Options;

/// Counters of one rank in training, and the predictions of the plan, in bytes.
#[derive(Clone, Copy, Default)]
pub struct Figures {
    // In all steps together.
    pub mapped: u64,
    pub copied: u64,
    pub reduced: u64,
    // In one step.
    pub planned_mapped: u64,
    pub planned_copied: u64,
    pub planned_reduced: u64,
    pub peak: u64,
    pub planned_peak: u64,
    pub arena_pages: u64,
    /// Some of the peers share no memory with this rank.
    pub between_nodes: bool,
}

pub struct Summary<'a> {
    pub options: &'a Options,
    pub transport: &'a str,
    /// As JSON.
    pub plan: &'a str,
    pub parameters: u64,
    pub units: usize,
    pub text_bytes: usize,
    pub ranks: usize,
    /// One per step.
    pub losses: Vec<f32>,
    pub seconds: f64,
    /// One per rank.
    pub figures: Vec<Figures>,
}

/// After how many steps the progress is shown: a fiftieth of them.
pub fn steps_per_report(steps: usize) -> usize {
    (steps / 50).max(1)
}

impl Figures {
    fn bytes_as_planned(&self, steps: usize) -> bool {
        let count = steps as u64;
        self.mapped == count * self.planned_mapped
            && self.copied == count * self.planned_copied
            && self.reduced == count * self.planned_reduced
    }

    fn memory_difference(&self) -> f64 {
        match self.planned_peak {
            0 => 0.0,
            planned => self.peak as f64 / planned as f64 - 1.0,
        }
    }

    /// Counted bytes equal the plan's to the byte, and peak memory is within 5 % of it. Between
    /// nodes, messages in flight are not part of the plan's memory.
    pub fn as_planned(&self, steps: usize) -> bool {
        let difference = self.memory_difference();
        self.bytes_as_planned(steps)
            && difference >= -0.05
            && (difference <= 0.05 || self.between_nodes)
    }
}

// ---- Text ----------------------------------------------------------------------------------------

/// 1234567 as "1,234,567".
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// As C's %.*g writes it.
fn significant(value: f64, digits: usize) -> String {
    let scientific = format!("{:.*e}", digits - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    without_zeros(&format!("{:.*}", (digits as i32 - 1 - exponent) as usize, value))
}

/// Says what is about to be trained.
pub fn begin(summary: &Summary<'_>) {
    println!(
        "{} parameters ({}) in {} units over {} rank{}, plan {}, transport {}; {} bytes of text",
        grouped(summary.parameters),
        summary.options.dtype,
        grouped(summary.units as u64),
        summary.ranks,
        if summary.ranks == 1 { "" } else { "s" },
        summary.options.plan,
        summary.transport,
        grouped(summary.text_bytes as u64)
    );
}

// ---- Progress ------------------------------------------------------------------------------------

extern "C" {
    fn isatty(descriptor: i32) -> i32;
}

/// Progress of the training.
pub struct Progress {
    first: usize,
    steps: usize,
    on_terminal: bool,
    /// A log gets a line every tenth of the way.
    tenths_shown: usize,
}

impl Progress {
    /// For steps up to `steps`, after `first` earlier ones.
    pub fn new(first: usize, steps: usize) -> Progress {
        // SAFETY: a question about a number.
        let on_terminal = unsafe { isatty(2) } == 1;
        Progress { first, steps, on_terminal, tenths_shown: 0 }
    }

    /// `loss` is the mean over the steps since the last call.
    pub fn show(&mut self, step: usize, loss: f32, seconds: f64) {
        const BAR: usize = 30;
        let steps = self.steps;
        let rate = (step - self.first) as f64 / seconds;
        let percent = 100 * step / steps;
        let left = (steps - step) as f64 / rate;
        let text =
            format!("step {step}/{steps}  loss {loss:.3}  {rate:.1} steps/s  {left:.0} s left");
        if self.on_terminal {
            let bar: String =
                (0..BAR).map(|i| if i * steps < BAR * step { '#' } else { '.' }).collect();
            let end = if step == steps { "\n" } else { "" };
            eprint!("\r{bar} {percent:3} %  {text} \x1b[K{end}");
        } else if percent / 10 > self.tenths_shown || step == steps {
            self.tenths_shown = percent / 10;
            eprintln!("{percent:3} %  {text}");
        }
    }
}

// ---- Summary -------------------------------------------------------------------------------------

impl Summary<'_> {
    /// The loss of step 1, and the mean over the last twentieth of the steps.
    fn first_and_last_loss(&self) -> (f32, f32) {
        let count = (self.losses.len() / 20).max(1);
        let tail = &self.losses[self.losses.len() - count..];
        let sum: f64 = tail.iter().map(|&loss| f64::from(loss)).sum();
        (self.losses[0], (sum / count as f64) as f32)
    }

    pub fn print(&self) {
        let options = self.options;
        let steps = self.losses.len() as u64;
        let rate = steps as f64 / self.seconds;
        let (first, last) = self.first_and_last_loss();
        let percent = 100.0 * last / first;
        println!("\nloss    {first:.3} at first, {last:.3} at last: {percent:.1} % of its start");
        let examples = rate * (options.batch * options.accumulate * self.ranks) as f64;
        let seconds = self.seconds;
        println!("speed   {rate:.1} steps/s, {examples:.0} examples/s, {seconds:.1} s in all");

        let line = |name: &str, cells: [&str; 4]| {
            let cells: String = cells.iter().map(|cell| format!("{cell:>18}")).collect();
            println!("  {name:<14}{cells}");
        };
        println!();
        line("", ["gathered", "gathered", "reduced", "peak memory"]);
        line("rank", ["in place, B/step", "copied, B/step", "B/step", "B"]);
        let row = |rank: &str, what: &str, bytes: [u64; 4]| {
            let cells = bytes.map(grouped);
            let name = format!("{rank:<5}{what}");
            line(&name, [&cells[0], &cells[1], &cells[2], &cells[3]]);
        };
        let verdict = |counted, planned| if counted == planned { "equal" } else { "DIFFERS" };
        for (rank, f) in self.figures.iter().enumerate() {
            let counted = [f.mapped / steps, f.copied / steps, f.reduced / steps, f.peak];
            let planned = [f.planned_mapped, f.planned_copied, f.planned_reduced, f.planned_peak];
            row(&rank.to_string(), "counted", counted);
            row("", "plan", planned);
            let memory = format!("{:+.1} %", 100.0 * f.memory_difference());
            let cells = [
                verdict(f.mapped, steps * f.planned_mapped),
                verdict(f.copied, steps * f.planned_copied),
                verdict(f.reduced, steps * f.planned_reduced),
                &memory,
            ];
            line("", cells);
        }
    }

    pub fn write_json(&self, path: &str) -> io::Result<()> {
        let o = self.options;
        let equal = self.figures.iter().all(|figures| figures.bytes_as_planned(self.losses.len()));
        let (first, last) = self.first_and_last_loss();
        let mut text = Vec::new();
        writeln!(text, "{{\n  \"example\": \"02_language_model\",\n  \"language\": \"rust\",")?;
        writeln!(text, "  \"ranks\": {},\n  \"transport\": \"{}\",", self.ranks, self.transport)?;
        writeln!(text, "  \"plan\": {},\n  \"parameters\": {},", self.plan, self.parameters)?;
        writeln!(text, "  \"units\": {},\n  \"dtype\": \"{}\",", self.units, o.dtype)?;
        writeln!(
            text,
            "  \"text_bytes\": {},\n  \"steps\": {},",
            self.text_bytes,
            self.losses.len()
        )?;
        writeln!(text, "  \"batch\": {},\n  \"accumulate\": {},", o.batch, o.accumulate)?;
        writeln!(text, "  \"width\": {},\n  \"layers\": {},", o.width, o.layers)?;
        writeln!(text, "  \"context\": {},", o.context)?;
        writeln!(text, "  \"learning_rate\": {},", significant(o.learning_rate, 17))?;
        writeln!(text, "  \"seed\": {},\n  \"seconds\": {:.3},", o.seed, self.seconds)?;
        writeln!(text, "  \"steps_per_second\": {:.3},", self.losses.len() as f64 / self.seconds)?;
        writeln!(text, "  \"loss_first\": {},", significant(f64::from(first), 9))?;
        writeln!(text, "  \"loss_last\": {},", significant(f64::from(last), 9))?;
        writeln!(text, "  \"bytes_equal\": {equal},\n  \"per_rank\": [")?;
        for (rank, f) in self.figures.iter().enumerate() {
            let comma = if rank + 1 < self.ranks { "," } else { "" };
            let bytes = |name: &str, counted: u64, planned: u64| {
                format!(
                    "     \"{name}\": {{\"counted\": {counted}, \"plan_per_step\": {planned}}},"
                )
            };
            writeln!(text, "    {{\"rank\": {rank},")?;
            writeln!(text, "{}", bytes("gather_mapped_bytes", f.mapped, f.planned_mapped))?;
            writeln!(text, "{}", bytes("gather_copied_bytes", f.copied, f.planned_copied))?;
            writeln!(text, "{}", bytes("reduce_bytes", f.reduced, f.planned_reduced))?;
            let (peak, planned) = (f.peak, f.planned_peak);
            writeln!(text, "     \"peak_bytes\": {{\"counted\": {peak}, \"plan\": {planned}}},")?;
            writeln!(text, "     \"arena_pages_bytes\": {}}}{comma}", f.arena_pages)?;
        }
        let losses: Vec<String> =
            self.losses.iter().map(|&loss| significant(f64::from(loss), 9)).collect();
        writeln!(text, "  ],\n  \"losses\": [{}]\n}}", losses.join(", "))?;
        fs::write(path, text)
    }
}
