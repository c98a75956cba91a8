//! Contents and order of a prompt.
//!
//! | module | contents |
//! |---|---|
//! | `choice` | the blocks, tools and skills of a prompt |
//! | `order` | the order of its parts |
//! | `hygiene` | validation of imported messages |

mod choice;
mod hygiene;
mod order;

pub use choice::{Available, Block, Blocks, PromptContents, choose, wants_recommendations};
pub use holdfast_types::{ContextOptions, PromptStrategy};
pub use hygiene::sanitised;
#[cfg(test)]
pub(crate) use hygiene::tests as tests_of_hygiene;
pub use order::{SEPARATOR, system_text, with_current};
