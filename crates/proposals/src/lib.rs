//! Proposals: changes of itself that an agent asks for, and that a person decides about (spec SLF-005,
//! SLF-011).
//!
//! ```text
//! proposed ─┬─▶ approved ─┬─▶ applied ─▶ rolled back
//!           │             └─▶ failed
//!           └─▶ rejected
//! ```
//!
//! A proposal holds the whole new text with the base on which it was made, and never changes. It
//! waits without a turn. Applying it makes a version of the agent's files or of a behaviour, unless
//! the base is stale.
//!
//! | part | file |
//! |---|---|
//! | [`Proposals`]: propose, apply, reject, roll back | `proposals.rs` |
//! | reads and writes of what a proposal changes | `target.rs` |
//! | types and checks | `model.rs` |
//! | the table `work.proposals` | `store.rs` |
//!
//! ## What can go wrong
//!
//! A process dies between the change and its record. The proposal is `approved` then; approving it
//! again finds the change made, and records it.

mod error;
mod model;
mod proposals;
mod store;
mod target;

pub use error::Error;
pub use model::{Decider, NewProposal, Proposal, ProposalFilter, ProposalState};
pub use proposals::Proposals;
