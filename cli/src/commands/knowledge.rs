//! Commands for what agents know: memories, the knowledge base.

pub mod kb;
pub mod memory;
