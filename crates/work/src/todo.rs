//! Todos, without I/O.
//!
//! | file | contents |
//! |---|---|
//! | `model.rs` | a todo, its code, its limits |
//! | `rules.rs` | which actor may make which change |
//! | `list.rs` | the list, and how operations change it |
//! | `view.rs` | the part of a list that prompts show |

mod list;
mod model;
mod rules;
mod view;

pub use list::{Change, TodoList, note_name};
pub use model::{
    MAX_TODOS, Todo, TodoCounts, TodoError, TodoErrorKind, TodoNote, code_number, code_of,
};
pub use view::{TodoView, details_of};

pub(crate) use list::{counted, shown};
pub use rules::status_name;
pub(crate) use view::tokens;
