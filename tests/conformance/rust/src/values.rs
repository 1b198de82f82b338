// SPDX-License-Identifier: Apache-2.0
//! Values by formula, texts that are compared loosely, checksums.

use meron::{Bf16, Buffer, Dtype, F16};

use crate::failure::{wrong, Failure};

/// A sum of terms; a function from the row-major index in the full tensor to a number.
pub struct Values {
    terms: Vec<Term>,
}

struct Term {
    kind: Kind,
    factor: f64,
}

enum Kind {
    Pattern(i64),
    Ranks(i64, i64),
    Mean(i64, i64),
    Fill(f64),
}

fn value(i: u64, s: i64) -> f64 {
    (((7 * i as i64 + 13 * s) % 61) - 30) as f64 / 8.0
}

impl Values {
    pub fn parse(text: &str, rank: i32, ranks: i32) -> Result<Values, Failure> {
        let terms = text.split('+').map(|term| {
            let malformed = || wrong(format!("{term} is no term"));
            let (term_text, factor) = match term.split_once('*') {
                Some((text, factor)) => (text, factor.parse().map_err(|_| malformed())?),
                None => (term, 1.0),
            };
            let (name, argument) = term_text.split_once(':').ok_or_else(malformed)?;
            let seed = || argument.parse::<i64>().map_err(|_| malformed());
            let kind = match name {
                "pattern" => Kind::Pattern(seed()?),
                "rank" => Kind::Pattern(seed()? + i64::from(rank)),
                "ranks" => Kind::Ranks(seed()?, i64::from(ranks)),
                "mean" => Kind::Mean(seed()?, i64::from(ranks)),
                "fill" => Kind::Fill(argument.parse().map_err(|_| malformed())?),
                _ => return Err(malformed()),
            };
            Ok(Term { kind, factor })
        });
        Ok(Values { terms: terms.collect::<Result<_, _>>()? })
    }

    pub fn at(&self, i: u64) -> f64 {
        let sum = |s: i64, ranks: i64| (0..ranks).map(|r| value(i, s + r)).sum::<f64>();
        let term = |term: &Term| {
            term.factor
                * match term.kind {
                    Kind::Pattern(s) => value(i, s),
                    Kind::Ranks(s, ranks) => sum(s, ranks),
                    Kind::Mean(s, ranks) => sum(s, ranks) / ranks as f64,
                    Kind::Fill(x) => x,
                }
        };
        self.terms.iter().map(term).sum()
    }

    /// `count` elements from `offset` on, converted.
    pub fn make(&self, dtype: Dtype, offset: u64, count: usize) -> Result<Buffer, Failure> {
        let all = (0..count as u64).map(|k| self.at(offset + k) as f32);
        Ok(match dtype {
            Dtype::F32 => Buffer::F32(all.collect()),
            Dtype::Bf16 => Buffer::Bf16(all.map(Bf16::from_f32).collect()),
            Dtype::F16 => Buffer::F16(all.map(F16::from_f32).collect()),
            other => return Err(wrong(format!("{other} is unknown here"))),
        })
    }
}

/// The elements as f32: what both sides of a comparison are.
pub fn floats(buffer: &Buffer) -> Vec<f32> {
    match buffer {
        Buffer::F32(values) => values.clone(),
        Buffer::Bf16(values) => values.iter().map(|&value| value.into()).collect(),
        Buffer::F16(values) => values.iter().map(|&value| value.into()).collect(),
        _ => unreachable!("the table has no other dtype"),
    }
}

/// Compares; NaN equals NaN.
pub fn same(seen: &Buffer, wanted: &Buffer) -> Result<(), Failure> {
    near(seen, wanted, 0.0)
}

/// Checks that each element differs by at most `within`.
pub fn near(seen: &Buffer, wanted: &Buffer, within: f64) -> Result<(), Failure> {
    if seen.dtype() != wanted.dtype() || seen.len() != wanted.len() {
        let (a, b) = (seen.dtype(), wanted.dtype());
        return Err(wrong(format!("{} {a} instead of {} {b}", seen.len(), wanted.len())));
    }
    for (i, (a, b)) in floats(seen).iter().zip(floats(wanted)).enumerate() {
        let near = *a == b || (f64::from(*a) - f64::from(b)).abs() <= within;
        let both_nan = a.is_nan() && b.is_nan();
        if !near && !both_nan {
            return Err(wrong(format!("element {i} is {a} instead of {b}")));
        }
    }
    Ok(())
}

/// CRC-32 (IEEE 802.3) of the bytes, as 8 digits.
pub fn checksum(buffer: &Buffer) -> String {
    let bytes: Vec<u8> = match buffer {
        Buffer::F32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Buffer::Bf16(values) => values.iter().flat_map(|value| value.0.to_le_bytes()).collect(),
        Buffer::F16(values) => values.iter().flat_map(|value| value.0.to_le_bytes()).collect(),
        _ => unreachable!("the table has no other dtype"),
    };
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
        }
    }
    format!("{:08x}", !crc)
}

/// Whether a text holds another, blanks and underscores apart.
pub fn holds(text: &str, part: &str) -> bool {
    let bare = |text: &str| -> String {
        text.chars().filter(|c| !c.is_whitespace() && *c != '_').collect()
    };
    bare(text).contains(&bare(part))
}

pub fn dtype_of(name: &str) -> Result<Dtype, Failure> {
    [Dtype::F32, Dtype::Bf16, Dtype::F16]
        .into_iter()
        .find(|dtype| dtype.name() == name)
        .ok_or_else(|| wrong(format!("{name} is no dtype")))
}
