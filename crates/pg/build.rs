//! Has the crate compiled anew when there is a new migration: the macro that embeds them sees only
//! those that it knows.

fn main() {
    println!("cargo::rerun-if-changed=../../migrations");
}
