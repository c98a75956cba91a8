//! Client of the memory service. Each call is signed for one tenant.
//!
//! Calls are not retried here; the caller that has a deadline retries. A request that changes state
//! may be repeated where its contract says so (`request_id`, a turn's `ref`, a document's path).

use std::{error::Error as _, time::Duration};

use holdfast_proto::memory::v1 as pb;
use holdfast_types::{Fault, Kind, TenantId};
use tonic::Status;

use crate::{InvalidUrl, Mesh, SignedChannel, kind, retry_after};

/// Timeout of one call. A search takes milliseconds, a large document some seconds.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of one message, in bytes: a document of 4 MiB and its metadata.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// Error of a call to the memory service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct MemoryCallError {
    /// [`Kind::Unavailable`] if the service cannot be reached.
    pub kind: Kind,
    pub message: String,
    /// Delay before a retry, if the service named one.
    pub retry_after: Option<Duration>,
}

impl Fault for MemoryCallError {
    fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<Status> for MemoryCallError {
    fn from(status: Status) -> Self {
        // A status with a source was made by the transport on this side: the connection failed.
        if status.source().is_some() {
            let message = "the memory service cannot be reached now".to_owned();
            return Self { kind: Kind::Unavailable, message, retry_after: None };
        }
        let message = status.message().to_owned();
        Self { kind: kind(&status), message, retry_after: retry_after(&status) }
    }
}

/// Client of the memory service. Clones share the connection.
#[derive(Debug, Clone)]
pub struct MemoryClient {
    memory: pb::memory_client::MemoryClient<SignedChannel>,
    knowledge: pb::knowledge_client::KnowledgeClient<SignedChannel>,
    mesh: Mesh,
}

impl MemoryClient {
    /// Connects lazily to `url` (`mesh.memory_url`).
    ///
    /// # Errors
    ///
    /// If `url` cannot be parsed.
    pub fn new(url: &str, mesh: Mesh) -> Result<Self, InvalidUrl> {
        let channel = mesh.connect(url, "memory-service", CALL_TIMEOUT)?;
        Ok(Self {
            memory: pb::memory_client::MemoryClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            knowledge: pb::knowledge_client::KnowledgeClient::new(channel)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES),
            mesh,
        })
    }
}

impl MemoryClient {
    /// Searches with a deadline that is sent to the service. If the query's embedding would take
    /// too long, the service searches by keywords alone.
    ///
    /// # Errors
    ///
    /// As `search`; [`Kind::Unavailable`] if the deadline passes.
    pub async fn search_within(
        &self,
        tenant: TenantId,
        request: pb::SearchRequest,
        limit: Duration,
    ) -> Result<pb::SearchResponse, MemoryCallError> {
        let request = self.mesh.request(tenant, request, limit);
        Ok(self.memory.clone().search(request).await?.into_inner())
    }
}

macro_rules! calls {
    ($($(#[$doc:meta])* $client:ident $name:ident = $call:ident($request:ident) -> $answer:ident;)*) => {
        impl MemoryClient {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// As `memory.proto` says; [`Kind::Unavailable`] if the service cannot be reached.
                pub async fn $name(
                    &self,
                    tenant: TenantId,
                    request: pb::$request,
                ) -> Result<pb::$answer, MemoryCallError> {
                    let request = self.mesh.request(tenant, request, CALL_TIMEOUT);
                    Ok(self.$client.clone().$call(request).await?.into_inner())
                }
            )*
        }
    };
}

calls! {
    memory put_items = put_items(PutItemsRequest) -> PutItemsResponse;
    memory get_item = get_item(GetItemRequest) -> Item;
    /// Lists items, newest first.
    memory list_items = list_items(ListItemsRequest) -> ListItemsResponse;
    /// Hides an item from search, or shows it again.
    memory set_item_active = set_item_active(SetItemActiveRequest) -> Item;
    /// Stores conversation turns.
    memory add_turns = add_turns(AddTurnsRequest) -> AddTurnsResponse;
    memory index_document = index_document(IndexDocumentRequest) -> IndexDocumentResponse;
    memory list_documents = list_documents(ListDocumentsRequest) -> ListDocumentsResponse;
    /// Removes a document from the index.
    memory remove_document = remove_document(RemoveDocumentRequest) -> RemoveDocumentResponse;
    memory search = search(SearchRequest) -> SearchResponse;
    /// Erases, and returns counts of what was erased and what is left.
    memory forget = forget(ForgetRequest) -> ForgetResponse;
    /// Gives everything of one user to another.
    memory move_user = move_user(MoveUserRequest) -> MoveUserResponse;
    /// Returns vectors of texts.
    memory embed = embed(EmbedRequest) -> EmbedResponse;
    /// Returns the number of stored rows, and the state of the embeddings.
    memory status = get_status(GetStatusRequest) -> GetStatusResponse;
    /// Lists the erasures of deleted sessions and agents.
    memory erasures = list_erasures(ListErasuresRequest) -> ListErasuresResponse;
    knowledge kb_ingest = ingest(IngestRequest) -> Article;
    knowledge kb_update = update(UpdateRequest) -> Article;
    knowledge kb_get = get(GetRequest) -> Article;
    /// Lists articles, newest first.
    knowledge kb_list = list(ListRequest) -> ListResponse;
    knowledge kb_versions = versions(VersionsRequest) -> VersionsResponse;
    knowledge kb_remove = remove(RemoveRequest) -> RemoveResponse;
    /// Lists proposed changes of articles.
    knowledge kb_proposals = proposals(ProposalsRequest) -> ProposalsResponse;
    knowledge kb_proposal = get_proposal(GetProposalRequest) -> Proposal;
    /// Accepts or declines a proposed change.
    knowledge kb_decide = decide(DecideRequest) -> Proposal;
}

#[cfg(test)]
mod tests {
    use holdfast_kit::config;

    use super::*;
    use crate::Signer;

    #[tokio::test]
    async fn a_service_that_is_away_is_said_to_be_away() {
        let secret = "0123456789abcdef".into();
        let signer = Signer::new(&config::Mesh { secret, ..config::Mesh::default() }).unwrap();
        let mesh = Mesh::new(signer, "gateway");
        let memory = MemoryClient::new("http://127.0.0.1:1", mesh).unwrap();

        let refused =
            memory.status(TenantId::generate(), pb::GetStatusRequest::default()).await.unwrap_err();

        assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
    }

    #[test]
    fn what_it_says_reaches_whoever_asked() {
        let refused = MemoryCallError::from(Status::not_found("there is no item `itm_1`"));

        assert_eq!(refused.kind(), Kind::NotFound);
        assert_eq!(refused.to_string(), "there is no item `itm_1`");
    }
}
