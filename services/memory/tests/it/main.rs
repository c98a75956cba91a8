//! The memory over its gRPC, on a real Postgres; a file for each promise.

mod brought;
mod documents;
mod embedding;
mod erasing;
mod finding;
mod forgetting;
mod isolation;
mod keeping;
mod knowledge;
mod pdf;
mod proposals;
mod world;
