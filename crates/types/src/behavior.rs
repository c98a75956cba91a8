//! Behaviours: how an agent works in steps, each with a structured result.
//!
//! A behaviour (spec BHV) is a prompt, a set of tools, an output protocol and limits. An agent with
//! behaviours answers each model request with a [`StepResult`], which says what to do next.

mod name;
mod result;
mod todo;

pub use name::{BehaviorName, InvalidBehaviorName};
pub use result::{
    BehaviorRole, NewSession, SessionDelta, StepAction, StepReply, StepResult, WaitDetails,
    WorkspaceChoice,
};
pub use todo::{
    NewTodo, TodoEstimate, TodoInit, TodoKind, TodoNoteKind, TodoOperation, TodoStatus,
};
