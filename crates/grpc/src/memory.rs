//! The memory service, for the other services: each call in a tenant's name, with a signed context.
//!
//! Nothing is tried again here: whoever has a deadline does. What changes something may be sent
//! again where its request says so (`request_id`, a turn's `ref`, a document's path).

use std::{error::Error as _, time::Duration};

use holdfast_proto::memory::v1 as pb;
use holdfast_types::{Fault, Kind, TenantId};
use tonic::{Status, transport::Channel};

use crate::{InvalidUrl, Mesh, channel, kind, retry_after};

/// How long one call may take. A search takes milliseconds; a large document some seconds.
const CALL: Duration = Duration::from_secs(30);

/// The most that one call carries: a document of 4 MiB, and what is said about it.
const MOST: usize = 8 * 1024 * 1024;

/// Why the memory service has not done what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// What to do about it. [`Kind::Unavailable`] if it is away.
    pub kind: Kind,
    /// Why, for whoever asked.
    pub message: String,
    /// When to ask again, if it says so.
    pub retry_after: Option<Duration>,
}

impl Fault for Refused {
    fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        // What has a source was made on this side: the connection broke.
        if status.source().is_some() {
            let message = "the memory service cannot be reached now".to_owned();
            return Self { kind: Kind::Unavailable, message, retry_after: None };
        }
        let message = status.message().to_owned();
        Self { kind: kind(&status), message, retry_after: retry_after(&status) }
    }
}

/// The memory service. Cloning shares the connection.
#[derive(Debug, Clone)]
pub struct Memory {
    memory: pb::memory_client::MemoryClient<Channel>,
    knowledge: pb::knowledge_client::KnowledgeClient<Channel>,
    mesh: Mesh,
}

impl Memory {
    /// The memory service at `url` (`mesh.memory_url`), which need not be there yet.
    ///
    /// # Errors
    ///
    /// If the URL is none.
    pub fn new(url: &str, mesh: Mesh) -> Result<Self, InvalidUrl> {
        let channel = channel(url, CALL)?;
        Ok(Self {
            memory: pb::memory_client::MemoryClient::new(channel.clone())
                .max_decoding_message_size(MOST)
                .max_encoding_message_size(MOST),
            knowledge: pb::knowledge_client::KnowledgeClient::new(channel)
                .max_decoding_message_size(MOST)
                .max_encoding_message_size(MOST),
            mesh,
        })
    }
}

impl Memory {
    /// Finds within so long, which the service is told: it does without the meaning of a question
    /// that would come too late.
    ///
    /// # Errors
    ///
    /// As [`Memory::search`]; [`Kind::Unavailable`] if it took longer.
    pub async fn search_within(
        &self,
        tenant: TenantId,
        request: pb::SearchRequest,
        limit: Duration,
    ) -> Result<pb::SearchResponse, Refused> {
        let mut request = self.mesh.request(tenant, request);
        request.set_timeout(limit);
        Ok(self.memory.clone().search(request).await?.into_inner())
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $client:ident $name:ident = $call:ident($request:ident) -> $answer:ident;)*) => {
        impl Memory {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// As the contract says (`memory.proto`), or if the service is away.
                pub async fn $name(
                    &self,
                    tenant: TenantId,
                    request: pb::$request,
                ) -> Result<pb::$answer, Refused> {
                    let request = self.mesh.request(tenant, request);
                    Ok(self.$client.clone().$call(request).await?.into_inner())
                }
            )*
        }
    };
}

calls! {
    /// Keeps things.
    memory put_items = put_items(PutItemsRequest) -> PutItemsResponse;
    /// One thing.
    memory get_item = get_item(GetItemRequest) -> Item;
    /// Things, newest first.
    memory list_items = list_items(ListItemsRequest) -> ListItemsResponse;
    /// Takes a thing out of what is found, or puts it back.
    memory set_item_active = set_item_active(SetItemActiveRequest) -> Item;
    /// Keeps what was said.
    memory add_turns = add_turns(AddTurnsRequest) -> AddTurnsResponse;
    /// Indexes a document.
    memory index_document = index_document(IndexDocumentRequest) -> IndexDocumentResponse;
    /// Documents that are indexed.
    memory list_documents = list_documents(ListDocumentsRequest) -> ListDocumentsResponse;
    /// Takes a document out.
    memory remove_document = remove_document(RemoveDocumentRequest) -> RemoveDocumentResponse;
    /// Finds.
    memory search = search(SearchRequest) -> SearchResponse;
    /// Erases, and proves it.
    memory forget = forget(ForgetRequest) -> ForgetResponse;
    /// What is kept and what waits.
    memory status = get_status(GetStatusRequest) -> GetStatusResponse;
    /// What was erased of sessions and agents that were deleted.
    memory erasures = list_erasures(ListErasuresRequest) -> ListErasuresResponse;
    /// Adds an article to the knowledge base.
    knowledge kb_ingest = ingest(IngestRequest) -> Article;
    /// Changes an article.
    knowledge kb_update = update(UpdateRequest) -> Article;
    /// One article.
    knowledge kb_get = get(GetRequest) -> Article;
    /// Articles, newest first.
    knowledge kb_list = list(ListRequest) -> ListResponse;
    /// The versions of an article.
    knowledge kb_versions = versions(VersionsRequest) -> VersionsResponse;
    /// Removes an article.
    knowledge kb_remove = remove(RemoveRequest) -> RemoveResponse;
    /// Changes that were proposed.
    knowledge kb_proposals = proposals(ProposalsRequest) -> ProposalsResponse;
    /// One of them.
    knowledge kb_proposal = get_proposal(GetProposalRequest) -> Proposal;
    /// Makes a change that was proposed, or declines it.
    knowledge kb_decide = decide(DecideRequest) -> Proposal;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signer;

    #[tokio::test]
    async fn a_service_that_is_away_is_said_to_be_away() {
        let mesh = Mesh::new(Signer::new(&"0123456789abcdef".into()).unwrap(), "gateway");
        let memory = Memory::new("http://127.0.0.1:1", mesh).unwrap();

        let refused =
            memory.status(TenantId::generate(), pb::GetStatusRequest::default()).await.unwrap_err();

        assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
    }

    #[test]
    fn what_it_says_reaches_whoever_asked() {
        let refused = Refused::from(Status::not_found("there is no item `itm_1`"));

        assert_eq!(refused.kind(), Kind::NotFound);
        assert_eq!(refused.to_string(), "there is no item `itm_1`");
    }
}
