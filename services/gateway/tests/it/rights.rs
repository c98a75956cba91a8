//! The matrix of rights: each call, by each role and each scope of a key, on everybody's objects.
//!
//! The tests make the calls, and compare the outcome with `docs/rights.md`. With
//! `HOLDFAST_WRITE_RIGHTS=1` they rewrite the page. A method, route or tool without a row fails a
//! test, unless `unaffected` says why it has none.

mod callers;
mod grpc;
mod http;
mod matrix;
mod objects;
mod unaffected;
mod websocket;
