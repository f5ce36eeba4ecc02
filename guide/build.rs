//! Makes the tests of `docs/guide.md` out of what people read.

use std::path::Path;
use std::{env, fs, process};

mod examples;

const GUIDE: &str = "../docs/guide.md";

fn main() {
    println!("cargo::rerun-if-changed={GUIDE}");
    let text = fs::read_to_string(GUIDE).unwrap_or_else(|e| fail(&format!("{GUIDE}: {e}")));
    let tests = examples::complete(&text).unwrap_or_else(|e| fail(&format!("{GUIDE}:{e}")));
    let folder = env::var("OUT_DIR").unwrap_or_else(|e| fail(&e.to_string()));
    if let Err(error) = fs::write(Path::new(&folder).join("guide.md"), tests) {
        fail(&error.to_string());
    }
}

fn fail(why: &str) -> ! {
    println!("cargo::error={why}");
    process::exit(1);
}
