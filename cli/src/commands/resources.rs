//! A tenant as resources: printed, and applied from a file.

pub mod apply;
pub mod export;
