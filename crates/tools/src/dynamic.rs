//! Tools that are known only while the mesh runs: an MCP server's.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use holdfast_types::{Effect, ToolSpec};
use serde_json::Value;

use crate::{Call, Output, ToolError};

/// What a dynamic tool's call comes to.
pub type Made<'a> = Pin<Box<dyn Future<Output = Result<Output, ToolError>> + Send + 'a>>;

/// A tool that is known only while the mesh runs. What was written in its specification and what
/// it answers is a stranger's: whoever implements this marks it.
pub trait Dynamic: Send + Sync + 'static {
    /// What the model is told of it.
    fn spec(&self) -> ToolSpec;

    /// What a call may change.
    fn effect(&self) -> Effect;

    /// How long a call may take, if that is not as long as any other.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Does it. The input is JSON, and not checked.
    fn call(&self, call: Call, input: Value) -> Made<'_>;
}

/// Some dynamic tools, and those that should be there and are not.
#[derive(Clone, Default)]
pub struct Brought {
    /// The tools.
    pub tools: Vec<Arc<dyn Dynamic>>,
    /// Who brings none now, and why.
    pub away: Vec<Away>,
    /// There may be more than this: nobody has looked yet.
    pub unseen: bool,
}

/// Someone who should bring tools and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// What the names of its tools begin with.
    pub prefix: String,
    /// Who, and why, in words for the model.
    pub why: String,
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brought")
            .field("tools", &self.tools.len())
            .field("away", &self.away)
            .field("unseen", &self.unseen)
            .finish()
    }
}
