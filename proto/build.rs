//! Compiles the contracts, without `protoc`.

use std::{env, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 13] = [
    "messages",
    "sessions",
    "control",
    "files",
    "approvals",
    "connections",
    "mcp",
    "models",
    "nodes",
    "operations",
    "policies",
    "skills",
    "subagents",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = FILES.map(|name| format!("holdfast/gateway/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=holdfast");

    let descriptors = protox::compile(files, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
