//! What the model is shown besides instructions and tools.
//!
//! | file | contents |
//! |---|---|
//! | `compaction.rs` | keeps the conversation within the context window |
//! | `compact_command.rs` | compaction on a user's request |
//! | `flush.rs` | memory flush before a compaction |
//! | `media.rs` | images and files: stored, shown, sent |
//! | `memory_prefetch.rs` | memories that fit a message |
//! | `recordings.rs` | recordings of messages, transcribed before a model is asked |

pub(crate) mod compact_command;
pub(crate) mod compaction;
pub(crate) mod flush;
pub(crate) mod media;
pub(crate) mod memory_prefetch;
pub(crate) mod recordings;
