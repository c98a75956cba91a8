//! Behaviours of an agent, compiled from the documents of its layers.
//!
//! A document that this version cannot read is left out with a warning, and the layer below counts:
//! an older runner must not stop because of a field that it does not know.

use std::sync::Arc;

use holdfast_agent::behavior::{Behavior, BehaviorSet};
use holdfast_directory::{Agent, BehaviorLayer, Directory};
use holdfast_types::TenantId;
use tracing::warn;

use crate::error::Error;

/// Layer, name and version of a document.
type DocumentVersion = (BehaviorLayer, String, i64);

/// Compiled behaviours, with what they were compiled from.
#[derive(Debug, Clone)]
pub(crate) struct AgentBehaviors {
    documents: Vec<DocumentVersion>,
    default: String,
    pub(crate) set: Arc<BehaviorSet>,
}

/// Loads the behaviours of an agent, or returns `before` if nothing has changed. `None` if the agent
/// works without behaviours.
pub(super) async fn load_behaviors(
    directory: &Directory,
    tenant: TenantId,
    agent: &Agent,
    before: Option<&AgentBehaviors>,
) -> Result<Option<AgentBehaviors>, Error> {
    let Some(settings) = &agent.settings.behaviors else { return Ok(None) };
    let stored = directory.behaviors().list(tenant, Some(agent.id)).await;
    let stored = stored.map_err(Error::directory)?;
    let documents: Vec<DocumentVersion> =
        stored.iter().map(|one| (one.layer, one.name.clone(), one.version)).collect();
    let is_same = |before: &&AgentBehaviors| {
        before.documents == documents && before.default == settings.default
    };
    if let Some(before) = before.filter(is_same) {
        return Ok(Some(before.clone()));
    }
    let mut set = BehaviorSet::built_in(Some(&settings.default));
    // Those of the agent come last, and replace the tenant's.
    for document in &stored {
        match Behavior::parse(&document.source, &document.name) {
            Ok(behavior) => set.add(Arc::new(behavior)),
            Err(error) => warn!(
                agent.id = %agent.id,
                behavior = document.name,
                version = document.version,
                error = &error as &dyn std::error::Error,
                "a behavior cannot be read and is left out"
            ),
        }
    }
    Ok(Some(AgentBehaviors { documents, default: settings.default.clone(), set: Arc::new(set) }))
}
