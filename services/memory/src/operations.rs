//! Operations on items, turns, documents and articles; each is one transaction.

mod articles;
mod documents;
mod forget;
mod items;
mod policy;
mod proposals;
mod reading;
mod sources;
mod turns;

use std::sync::Arc;

use holdfast_documents::DocumentReader;
use holdfast_pg::Pools;
use tokio::sync::Notify;

pub use articles::{Article, NewArticle, Revision, scope};
pub use documents::NewDocument;
pub use forget::ErasureTarget;
pub use items::NewItem;
pub use policy::Policy;
pub use proposals::{Proposal, Verdict};
pub use sources::{add, erase, erase_articles};
pub use turns::{NewTurn, NewTurns};

use crate::{embedders::Embedders, space::Views};

/// Stores content and queues it for embedding.
#[derive(Debug, Clone)]
pub struct MemoryService {
    pools: Pools,
    embedders: Embedders,
    views: Views,
    policy: Arc<Policy>,
    waiting: Arc<Notify>,
    documents: DocumentReader,
}

impl MemoryService {
    /// Creates the service. `waiting` is notified when units are queued; `documents` reads office files and PDFs.
    pub const fn new(
        pools: Pools,
        embedders: Embedders,
        views: Views,
        policy: Arc<Policy>,
        waiting: Arc<Notify>,
        documents: DocumentReader,
    ) -> Self {
        Self { pools, embedders, views, policy, waiting, documents }
    }
}
