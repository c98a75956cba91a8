//! What goes into a prompt, and in which order.
//!
//! | module | question |
//! |---|---|
//! | `choice` | which blocks, tools and skills does a choice come to? |
//! | `order` | what stands after what? |
//! | `hygiene` | is a list of messages from elsewhere fit for a provider? |

mod choice;
mod hygiene;
mod order;

pub use choice::{Available, Block, Blocks, Choice, choose, wants_recommendations};
pub use holdfast_types::{ContextOptions, Strategy};
pub use hygiene::sanitised;
#[cfg(test)]
pub(crate) use hygiene::tests as tests_of_hygiene;
pub(crate) use order::introduced;
pub use order::{SEPARATOR, system_text, with_current};
