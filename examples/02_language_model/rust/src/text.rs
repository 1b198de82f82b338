// SPDX-License-Identifier: Apache-2.0
//! The training text: some files, one after the other.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Debian's folder of common licences, the default text.
pub const DEFAULT_FOLDER: &str = "/usr/share/common-licenses";

/// Reads files, or those of `DEFAULT_FOLDER` when none is named; or says why there is no text.
pub fn load(paths: &[String]) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    for path in paths {
        match fs::read(path) {
            Ok(bytes) if bytes.is_empty() => return Err(format!("{path} is empty")),
            Ok(bytes) => text.extend(bytes),
            Err(error) => return Err(format!("cannot read {path}: {}", reason(&error))),
        }
    }
    if paths.is_empty() {
        text = default_text();
    }
    if text.is_empty() {
        return Err(format!("this machine has no texts in {DEFAULT_FOLDER}"));
    }
    Ok(text)
}

/// The regular files of the default folder in the order of their names; a file that has a second name by
/// a link counts once.
fn default_text() -> Vec<u8> {
    let entries = fs::read_dir(DEFAULT_FOLDER).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let (mut text, mut seen) = (Vec::new(), Vec::new());
    for path in paths {
        let identity = match fs::metadata(&path) {
            Ok(info) if info.is_file() => (info.dev(), info.ino()),
            _ => continue,
        };
        if !seen.contains(&identity) {
            if let Ok(bytes) = fs::read(&path) {
                text.extend(bytes);
                seen.push(identity);
            }
        }
    }
    text
}

/// The system's text for an error, without its number.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}
