//! Tools of agents, connected to the mesh.
//!
//! | file | contents |
//! |---|---|
//! | `tool_set.rs`, `policies.rs` | tools of an agent; compiled policies |
//! | `tool_context.rs`, `tool_usage.rs` | what tools read of a turn and leave for it; cost of paid tools |
//! | `mesh.rs` | sessions, agents and messages of the mesh |
//! | `files.rs`, `patches.rs` | workspace files; copies that subagents work on |
//! | `shell.rs` | commands in the sandbox, on workspace files |
//! | `lost_state.rs` | what sessions have lost with a runner |
//! | `memory.rs`, `memory_subject.rs` | memory, and whose memory it is |
//! | `subagents.rs`, `chains.rs` | subagents, and sequences of them |
//! | `schedules.rs` | jobs and reminders |
//! | `work.rs` | todo lists, payments, changes of self.md |
//! | `mcp.rs` | tools of MCP servers |
//! | `search_accounts.rs` | search providers that the tenant has keys for |
//! | `session_skills.rs` | skills that agents find and install |
//! | `channel_messages.rs` | messages that the tool `message` sends |
//! | `media_providers.rs` | providers for vision, images and speech |
//! | `connections.rs`, `nodes.rs` | connections and nodes that a conversation may use |
//! | `canvas.rs`, `gateway_methods.rs` | canvas; methods of the gateway |

pub(crate) mod canvas;
pub(crate) mod chains;
pub(crate) mod channel_messages;
pub(crate) mod connections;
pub(crate) mod files;
mod gateway_methods;
pub(crate) mod lost_state;
pub(crate) mod mcp;
pub(crate) mod media_providers;
pub(crate) mod memory;
pub(crate) mod memory_subject;
pub(crate) mod mesh;
pub(crate) mod nodes;
pub(crate) mod patches;
pub(crate) mod policies;
pub(crate) mod schedules;
pub(crate) mod search_accounts;
pub(crate) mod session_skills;
pub(crate) mod shell;
pub(crate) mod subagents;
pub(crate) mod tool_context;
pub(crate) mod tool_set;
pub(crate) mod tool_usage;
pub(crate) mod work;
