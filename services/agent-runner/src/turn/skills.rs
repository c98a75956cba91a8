//! Skills in a turn.
//!
//! | file | contents |
//! |---|---|
//! | `invocation.rs` | skills that users invoke by name, and that models read |
//! | `dispatch.rs` | skills whose command goes directly to a tool |
//! | `recommendations.rs` | skills that may fit a message |

pub(crate) mod dispatch;
pub(crate) mod invocation;
pub(crate) mod recommendations;
