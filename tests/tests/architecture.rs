//! Who may depend on whom, and what every source file keeps to. The layers are drawn in
//! `docs/architecture.md`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, in its helpers too")]

mod architecture {
    pub mod arrows;
    pub mod features;
    pub mod logs;
    pub mod sources;
}
