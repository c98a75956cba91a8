//! Tests of the secrets service over gRPC, alone and behind directories.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod access;
mod directories;
mod world;
