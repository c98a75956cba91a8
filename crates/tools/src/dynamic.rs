//! Tools that are known only at run time, such as those of an MCP server.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use holdfast_types::{Effect, ToolSpec};
use serde_json::Value;

use crate::{Call, Destination, Output, ToolError};

/// Future of a dynamic tool's call.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Output, ToolError>> + Send + 'a>>;

/// Tool that is known only at run time. Its specification and its results come from outside:
/// implementations must mark them as untrusted.
pub trait DynamicTool: Send + Sync + 'static {
    fn spec(&self) -> ToolSpec;

    fn effect(&self) -> Effect;

    /// Timeout of a call; `None` means the default one.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Where a call sends its input; `None` if the call may be made without an approval also after text
    /// from outside was read.
    fn destination(&self) -> Option<Destination>;

    /// Calls the tool. The input is JSON, and was not checked against the schema.
    fn call(&self, call: Call, input: Value) -> ToolFuture<'_>;
}

/// Dynamic tools, with the sources that are unavailable.
#[derive(Clone, Default)]
pub struct DynamicTools {
    pub tools: Vec<Arc<dyn DynamicTool>>,
    /// Sources whose tools are unavailable now.
    pub unavailable: Vec<UnavailableSource>,
    /// Whether there may be more tools, because a source was not read yet.
    pub is_incomplete: bool,
}

/// Source whose tools are unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnavailableSource {
    /// Prefix of the names of its tools.
    pub prefix: String,
    /// Source and reason, as text for the model.
    pub reason: String,
}

impl fmt::Debug for DynamicTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brought")
            .field("tools", &self.tools.len())
            .field("away", &self.unavailable)
            .field("unseen", &self.is_incomplete)
            .finish()
    }
}
