//! Compiles the contracts, without `protoc`.

use std::{env, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 31] = [
    "messages",
    "schedules",
    "sessions",
    "control",
    "files",
    "heartbeats",
    "approvals",
    "audit",
    "behaviors",
    "connections",
    "console",
    "devices",
    "economy",
    "events",
    "mcp",
    "memories",
    "mesh",
    "models",
    "nodes",
    "operations",
    "people",
    "plans",
    "policies",
    "proposals",
    "runs",
    "security",
    "settings",
    "skills",
    "subagents",
    "work",
    "workspaces",
];

/// Contracts between the mesh's own services, which no caller sees.
const MESH: [&str; 2] = ["holdfast/memory/v1/memory.proto", "holdfast/secrets/v1/secrets.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = FILES.map(|name| format!("holdfast/gateway/v1/{name}.proto"));
    println!("cargo:rerun-if-changed=holdfast");

    let descriptors = protox::compile(files, ["."])?;
    let mesh = protox::compile(MESH, ["."])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    tonic_prost_build::configure().compile_fds(mesh)?;
    Ok(())
}
