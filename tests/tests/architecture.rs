//! Who may depend on whom, and what every source file keeps to. The layers are drawn in
//! `docs/architecture.md`.

mod architecture {
    pub mod arrows;
    pub mod logs;
    pub mod sources;
}
