//! Memory service over gRPC, on a real Postgres; one file per promise.

mod brought;
mod documents;
mod embedding;
mod erasing;
mod files;
mod finding;
mod forgetting;
mod isolation;
mod keeping;
mod knowledge;
mod pdf;
mod proposals;
mod tracing;
mod world;
