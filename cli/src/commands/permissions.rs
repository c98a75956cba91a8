//! Commands for what agents may do: policies, tools, approvals.

pub mod approvals;
pub mod policy;
pub mod tools;
