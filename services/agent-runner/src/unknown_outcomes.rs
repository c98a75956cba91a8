//! Unknown outcomes: a call whose runner crashed is not repeated, but its tool may know how it
//! ended.

use holdfast_agent::UNKNOWN_OUTCOME;
use holdfast_types::{Entry, ToolCall};
use tokio::time::{Instant, timeout_at};

use crate::{agents::AgentSnapshot, error::Error, turn::Turn};

impl Turn<'_> {
    /// Result of a call that was begun and whose end is unknown.
    pub(crate) async fn recover_result(
        &self,
        brief: &AgentSnapshot,
        call: &ToolCall,
    ) -> Result<Entry, Error> {
        let registry = self.tools.registry();
        let context = self.call_context(brief, call);
        let limit = registry.timeout(&call.tool).unwrap_or(self.worker.config.tool_timeout);
        let until = (Instant::now() + limit).min(self.deadline);
        let asked = timeout_at(until, registry.find_outcome(&context, &call.tool, &call.input));
        let found = tokio::select! {
            found = asked => found.ok().flatten(),
            () = self.hold.lost.cancelled() => return Err(Error::Lost),
            () = self.worker.giving_up.cancelled() => return Err(Error::ReleaseRequested),
        };
        Ok(match found {
            Some(output) => Entry::returned(&call.id, output.for_llm, false),
            None => Entry::returned(&call.id, UNKNOWN_OUTCOME.to_owned(), true),
        })
    }
}
