//! Rollback of the last step of a session that works by behaviours
//! (docs/decisions/0097-rolling-back-a-step.md).
//!
//! | of the step | becomes |
//! |---|---|
//! | state of the session | the one before the step, so that the same step follows |
//! | todos | what the log of operations gives without the step's |
//! | files | their contents before the step, by a new revision; a file that somebody changed since stays |
//! | values of the memory | the value before, as a new one; a value that somebody set since stays |
//! | worklog | `ABORTED`, with a record of the rollback behind |
//! | ledger | as it is, with an entry of the rollback behind |
//! | journal | as it is; the next turn is told |
//! | everything else, such as messages and commands | as it is, and named in the report |
//!
//! ## What can go wrong
//!
//! Everything but the memory is one transaction under the session's row lock, so no turn runs
//! meanwhile. The memory is changed last before the commit: if the commit fails, a repetition finds
//! the values as they should be, and finishes.

mod error;
mod memory;
mod report;
mod step_rollback;

pub use error::Error;
pub use report::{FileConflict, NotUndone, RollbackMode, RollbackReport};
pub use step_rollback::{RollbackRequest, RollbackResult, StepRollback};
