//! What clients do besides sending: they cancel, pause, resume and delete, and decide approvals.

use holdfast_proto::gateway::v1::approvals_client::ApprovalsClient;
use holdfast_proto::gateway::v1::messages_client::MessagesClient;
use holdfast_proto::gateway::v1::sessions_client::SessionsClient;
use holdfast_proto::gateway::v1::{
    CancelRequest, Decision, DeleteSessionRequest, ListApprovalsRequest, PauseSessionRequest,
    ResolveApprovalRequest, ResumeSessionRequest,
};
use std::sync::PoisonError;
use tonic::{Code, Request, Response, Status, transport::Channel};

use super::{CALL_TIMEOUT, Conversation, MessageRetention, Senders, SentMessage};
use crate::history::{EventKind, MessageId};

impl Senders<'_> {
    /// Asks for the end of the conversation's turn.
    pub async fn cancel(&self, conversation: &Conversation) -> anyhow::Result<()> {
        let Some(session) = self.session(conversation) else { return Ok(()) };
        self.mesh.fakes.history.client(conversation.client(), EventKind::Cancelling);
        let cancel = CancelRequest { session, agent: String::new() };
        self.call(conversation.tenant, cancel, async |channel, request| {
            MessagesClient::new(channel).cancel(request).await
        })
        .await?;
        Ok(())
    }

    /// Pauses the conversation's session.
    pub async fn pause(&self, conversation: &Conversation) -> anyhow::Result<()> {
        let Some(session) = self.session(conversation) else { return Ok(()) };
        self.call(
            conversation.tenant,
            PauseSessionRequest { session },
            async |channel, request| SessionsClient::new(channel).pause_session(request).await,
        )
        .await?;
        self.mesh.fakes.history.client(conversation.client(), EventKind::Paused);
        Ok(())
    }

    /// Lets the conversation's session go on.
    pub async fn resume(&self, conversation: &Conversation) -> anyhow::Result<()> {
        let Some(session) = self.session(conversation) else { return Ok(()) };
        self.mesh.fakes.history.client(conversation.client(), EventKind::Resuming);
        self.call(
            conversation.tenant,
            ResumeSessionRequest { session },
            async |channel, request| SessionsClient::new(channel).resume_session(request).await,
        )
        .await?;
        Ok(())
    }

    /// Deletes the conversation's session; the next message begins another.
    pub async fn delete(&self, conversation: &Conversation) -> anyhow::Result<()> {
        let Some(session) = self.session(conversation) else { return Ok(()) };
        let client = conversation.client();
        self.mesh.fakes.history.client(client, EventKind::Deleting);
        self.expect_removed(conversation);
        let deleted = self
            .call(
                conversation.tenant,
                DeleteSessionRequest { session },
                async |channel, request| SessionsClient::new(channel).delete_session(request).await,
            )
            .await;
        // An earlier try may have deleted it, and its answer was lost.
        let is_gone = |error: &anyhow::Error| {
            error.downcast_ref::<Status>().is_some_and(|status| status.code() == Code::NotFound)
        };
        if let Err(error) = deleted
            && !is_gone(&error)
        {
            return Err(error);
        }
        self.mesh.fakes.history.client(client, EventKind::Deleted);
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&client);
        Ok(())
    }

    /// From now on the conversation's messages so far may be missing in the tables.
    pub fn expect_removed(&self, conversation: &Conversation) {
        let client = conversation.client();
        for message in self.ledger().iter_mut() {
            if message.conversation().client() == client {
                message.retention = MessageRetention::Removed;
            }
        }
    }

    /// Its message may be gone from now on.
    pub fn expect_pruned(&self, said: &SentMessage) {
        for message in self.ledger().iter_mut().filter(|message| message.id == said.id) {
            message.retention = MessageRetention::Removed;
        }
    }

    /// Decides about the actions that wait for it in the conversation.
    pub async fn decide(
        &self,
        conversation: &Conversation,
        allows: impl Fn(MessageId) -> bool,
    ) -> anyhow::Result<()> {
        let Some(session_id) = self.session(conversation) else { return Ok(()) };
        let list = ListApprovalsRequest {
            state: "pending".to_owned(),
            session_id,
            limit: 10,
            ..Default::default()
        };
        let listed = self.call(conversation.tenant, list, async |channel, request| {
            ApprovalsClient::new(channel).list_approvals(request).await
        });
        for approval in listed.await?.approvals {
            let about = MessageId::all_in(&approval.subject);
            let Some(message) = about.into_iter().next() else { continue };
            let allow = allows(message);
            let decision = if allow { Decision::AllowOnce } else { Decision::Deny };
            let deciding = EventKind::Deciding { message, allow };
            self.mesh.fakes.history.client(conversation.client(), deciding);
            let resolve = ResolveApprovalRequest {
                approval: approval.id,
                decision: decision.into(),
                ..Default::default()
            };
            let resolved = self
                .call(conversation.tenant, resolve, async |channel, request| {
                    ApprovalsClient::new(channel).resolve_approval(request).await
                })
                .await;
            // It may have been closed meanwhile, with its turn.
            if let Err(error) = resolved
                && error.downcast_ref::<Status>().is_none()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    async fn call<T: Clone, R>(
        &self,
        tenant: usize,
        message: T,
        call: impl AsyncFn(Channel, Request<T>) -> Result<Response<R>, Status>,
    ) -> anyhow::Result<R> {
        let call = &call;
        self.retry_call(std::any::type_name::<T>(), 0, |gateway| {
            let request = self.authorized(tenant, message.clone(), CALL_TIMEOUT);
            let channel = self.gateways[gateway].clone();
            async move { Ok::<_, Status>(call(channel, request?).await?.into_inner()) }
        })
        .await
    }

    pub(super) fn remember_session(&self, conversation: &Conversation, session: String) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(conversation.client(), session);
    }

    fn session(&self, conversation: &Conversation) -> Option<String> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.get(&conversation.client()).cloned()
    }
}
