// SPDX-License-Identifier: Apache-2.0
//! The runner finds the library that it was built with, however it is started.

fn main() {
    println!("cargo:rerun-if-env-changed=DEP_MERON_LIBDIR");
    if let Ok(folder) = std::env::var("DEP_MERON_LIBDIR") {
        println!("cargo:rustc-link-arg-bins=-Wl,-rpath,{folder}");
    }
}
