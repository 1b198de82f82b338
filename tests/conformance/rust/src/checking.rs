// SPDX-License-Identifier: Apache-2.0
//! Holds texts and elements against what a statement expects.

use meron::Buffer;

use crate::failure::{check, Done};
use crate::table::Statement;
use crate::values::{checksum, holds, near, Values};

/// Checks that a text contains each of the words of `has`.
pub fn has(text: &str, s: &Statement) -> Done {
    for word in s.list("has") {
        check(holds(text, word), format!("{text} lacks {word}"))?;
    }
    Ok(())
}

/// Holds elements against `is=`, `crc=` or `crcN=`.
pub fn compare(seen: &Buffer, s: &Statement, offset: u64, rank: i32, ranks: i32) -> Done {
    if let Some(is) = s.get("is") {
        let wanted = Values::parse(is, rank, ranks)?;
        let within = s.number("within", 0.0)?;
        near(seen, &wanted.make(seen.dtype(), offset, seen.len())?, within)?;
    }
    for key in ["crc".to_string(), format!("crc{ranks}")] {
        if let Some(wanted) = s.get(&key) {
            let found = checksum(seen);
            check(found == wanted, format!("the CRC is {found} instead of {wanted}"))?;
        }
    }
    Ok(())
}
