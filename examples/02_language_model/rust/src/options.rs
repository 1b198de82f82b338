// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::str::FromStr;

use meron::Dtype;

#[derive(Clone)]
pub struct Options {
    /// File names; none: the default text.
    pub data: Vec<String>,
    /// A preset's name, or a file of JSON.
    pub plan: String,
    pub steps: usize,
    pub batch: usize,
    pub accumulate: usize,
    pub width: usize,
    pub layers: usize,
    pub context: usize,
    pub learning_rate: f64,
    pub dtype: Dtype,
    pub seed: u64,
    /// Folder of checkpoints.
    pub save: Option<String>,
    /// Steps; 0: at the end.
    pub save_every: usize,
    /// Folder of checkpoints, or one of them.
    pub resume: Option<String>,
    /// Directory of published weights.
    pub from: Option<String>,
    /// Directory to publish in.
    pub export: Option<String>,
    pub json: Option<String>,
    pub quiet: bool,
    pub help: bool,
}

pub const HELP: &str = "\
Trains a language model on the bytes of a text, partitioned over the ranks.

usage: meron run -n RANKS -- language_model [options]

  --data FILE...    text to train on (default: the licences in /usr/share/common-licenses)
  --plan PLAN       zero0 to zero3, mics(N), hpz(N), zeropp(N) or a JSON file (default: zero3)
  --steps N         optimizer steps (default: 400)
  --batch N         examples per micro-batch and rank (default: 64)
  --accumulate N    micro-batches per step and rank (default: 1)
  --width N         values that flow from layer to layer (default: 512)
  --layers N        residual blocks of two matrices each (default: 4)
  --context N       bytes that the model sees; must divide the width (default: 16)
  --lr RATE         peak learning rate (default: 0.002)
  --dtype DTYPE     of the parameters: f32, bf16 or f16 (default: f32)
  --seed N          of the initial values and the choice of examples (default: 1)
  --save DIR        save checkpoints there, in the background, and keep the newest two
  --save-every N    after every N steps too (default: at the end)
  --resume DIR      resume the newest checkpoint there, by any number of ranks and plan
  --from DIR        start from the weights of a model there, in Hugging Face's layout
  --export DIR      publish the model there at the end, in that layout; replaces another
  --json FILE       write all figures and the loss curve there
  --quiet           print nothing but errors
  --help            this text
";

impl Default for Options {
    fn default() -> Options {
        Options {
            data: Vec::new(),
            plan: "zero3".to_string(),
            steps: 400,
            batch: 64,
            accumulate: 1,
            width: 512,
            layers: 4,
            context: 16,
            learning_rate: 2e-3,
            dtype: Dtype::F32,
            seed: 1,
            save: None,
            save_every: 0,
            resume: None,
            from: None,
            export: None,
            json: None,
            quiet: false,
            help: false,
        }
    }
}

impl Options {
    /// Reads the arguments. Returns the options that could be read, and any error with its remedy.
    pub fn parse(arguments: &[String]) -> (Options, Result<(), String>) {
        let mut options = Options::default();
        let read = options.read(arguments).and_then(|()| options.check());
        (options, read)
    }

    fn read(&mut self, arguments: &[String]) -> Result<(), String> {
        let mut rest = arguments.iter().map(String::as_str).peekable();
        while let Some(name) = rest.next() {
            match name {
                "--quiet" => self.quiet = true,
                "--help" => self.help = true,
                "--data" | "--plan" | "--steps" | "--batch" | "--accumulate" | "--width"
                | "--layers" | "--context" | "--lr" | "--dtype" | "--seed" | "--json"
                | "--save" | "--save-every" | "--resume" | "--from" | "--export" => {
                    let value = match rest.next_if(|next| !next.starts_with("--")) {
                        Some(value) => value,
                        None => return Err(format!("{name} needs a value: --help says which")),
                    };
                    self.set(name, value)
                        .map_err(|wanted| format!("{name} {value}: must be {wanted}"))?;
                    if name == "--data" {
                        while let Some(file) = rest.next_if(|next| !next.starts_with("--")) {
                            self.data.push(file.to_string());
                        }
                    }
                }
                _ => return Err(format!("{name} is no option: --help lists them")),
            }
        }
        Ok(())
    }

    /// Sets an option, or says what its value should have been.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "--data" => self.data.push(value.to_string()),
            "--plan" => self.plan = value.to_string(),
            "--json" => self.json = Some(value.to_string()),
            "--save" => self.save = Some(value.to_string()),
            "--resume" => self.resume = Some(value.to_string()),
            "--from" => self.from = Some(value.to_string()),
            "--export" => self.export = Some(value.to_string()),
            "--save-every" => self.save_every = whole(value, 1, 100_000_000)?,
            "--steps" => self.steps = whole(value, 1, 100_000_000)?,
            "--batch" => self.batch = whole(value, 1, 65536)?,
            "--accumulate" => self.accumulate = whole(value, 1, 65536)?,
            "--width" => self.width = whole(value, 1, 65536)?,
            "--layers" => self.layers = whole(value, 0, 1000)?,
            "--context" => self.context = whole(value, 1, 65536)?,
            "--seed" => self.seed = whole(value, 0, 1_000_000_000)?,
            "--lr" => {
                self.learning_rate = match f64::from_str(value) {
                    Ok(rate) if rate.is_finite() && rate > 0.0 => rate,
                    _ => return Err("a number above 0".to_string()),
                }
            }
            _ => {
                self.dtype = [Dtype::F32, Dtype::Bf16, Dtype::F16]
                    .into_iter()
                    .find(|dtype| dtype.name() == value)
                    .ok_or("f32, bf16 or f16")?
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.save_every > 0 && self.save.is_none() {
            return Err("--save-every needs --save DIR: where to".to_string());
        }
        if self.from.is_some() && self.resume.is_some() {
            return Err(
                "--from and --resume exclude each other: start from published weights, or resume \
                        a checkpoint"
                    .to_string(),
            );
        }
        if self.width % self.context == 0 {
            return Ok(());
        }
        Err(format!(
            "--width {} is no multiple of --context {}: take {}, for example",
            self.width,
            self.context,
            (self.width / self.context + 1) * self.context
        ))
    }
}

fn whole<T: TryFrom<i64>>(text: &str, least: i64, most: i64) -> Result<T, String> {
    i64::from_str(text)
        .ok()
        .filter(|value| (least..=most).contains(value))
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| format!("a whole number from {least} to {most}"))
}
