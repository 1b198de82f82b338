// SPDX-License-Identifier: Apache-2.0
//! Finds libmeron.so: in MERON_DIR, else by pkg-config.
//!
//! A library outside of the system's folders is linked into OUT_DIR under its names, with the modules
//! beside it (devices, MPI). Cargo puts that folder on the loader's path for everything that it runs
//! itself (`cargo test`, `cargo run`); a program that is started without cargo finds the library by
//! the loader's usual means.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

const FILE: &str = "libmeron.so";
/// Where a prefix, or a build folder of Meron, has the library.
const FOLDERS: [&str; 5] =
    ["lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "capi"];

fn main() {
    for name in ["MERON_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("DOCS_RS").is_some() {
        return; // documentation needs no library
    }
    let folders = match env::var_os("MERON_DIR") {
        Some(folder) if !folder.is_empty() => vec![in_folder(Path::new(&folder))],
        _ => by_pkg_config(),
    };
    println!("cargo:rustc-link-lib=dylib=meron");
    for folder in &folders {
        println!("cargo:rustc-link-search=native={}", folder.display());
        // For dependents: DEP_MERON_LIBDIR, to set an rpath.
        println!("cargo:libdir={}", folder.display());
        println!("cargo:rerun-if-changed={}", folder.join(FILE).display());
        link_into_out_dir(folder);
    }
}

/// Prints the missing part and the remedy, and ends the build.
fn fail(message: &str) -> ! {
    eprintln!("meron-sys: {message}");
    exit(1);
}

fn in_folder(given: &Path) -> PathBuf {
    let candidates =
        || FOLDERS.iter().map(|folder| given.join(folder)).chain([given.to_path_buf()]);
    match candidates().find(|folder| folder.join(FILE).exists()) {
        Some(folder) => folder.canonicalize().unwrap_or(folder),
        None => {
            let tried: Vec<_> =
                candidates().map(|folder| format!("\n  {}", folder.join(FILE).display())).collect();
            fail(&format!(
                "there is no {FILE} in MERON_DIR={}; looked for:{}\nSet MERON_DIR to the prefix \
                 that Meron was installed to, or to its build folder (such as build/release).",
                given.display(),
                tried.concat()
            ))
        }
    }
}

/// The folders that pkg-config names besides the system's own, which the linker knows.
fn by_pkg_config() -> Vec<PathBuf> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let wanted = format!("meron >= {}", env!("CARGO_PKG_VERSION"));
    let output = Command::new(&program).args(["--libs-only-L", &wanted]).output();
    let why = match output {
        Ok(output) if output.status.success() => {
            return String::from_utf8_lossy(&output.stdout)
                .split_whitespace()
                .filter_map(|word| word.strip_prefix("-L"))
                .map(PathBuf::from)
                .collect();
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_string(),
        Err(error) => error.to_string(),
    };
    fail(&format!(
        "libmeron was not found. MERON_DIR is not set, and `{} --libs-only-L '{wanted}'` says:\n  \
         {}\nInstall Meron (cmake --install build/release --prefix PREFIX) and set \
         MERON_DIR=PREFIX, or PKG_CONFIG_PATH=PREFIX/lib/pkgconfig.",
        program.to_string_lossy(),
        why.replace('\n', "\n  ")
    ));
}

/// Links to the library's files (libmeron.so, libmeron.so.0.2, ...) and to its modules
/// (libmeron_cuda.so, ...) in OUT_DIR, which is searched too. The library looks for modules beside
/// the name that it was loaded by.
fn link_into_out_dir(folder: &Path) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => fail(&format!("cannot read {}: {error}", folder.display())),
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let is_module = text.starts_with("libmeron_") && text.ends_with(".so");
        if text.starts_with(FILE) || is_module {
            let link = out.join(&name);
            let _ = fs::remove_file(&link); // of an earlier build; there may be none
            if let Err(error) = std::os::unix::fs::symlink(entry.path(), &link) {
                fail(&format!("cannot make {}: {error}", link.display()));
            }
        }
    }
    println!("cargo:rustc-link-search=native={}", out.display());
}
