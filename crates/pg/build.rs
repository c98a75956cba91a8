//! Recompiles the crate when there is a new migration. The macro that embeds the migrations does
//! not notice new files.

fn main() {
    println!("cargo::rerun-if-changed=../../migrations");
}
