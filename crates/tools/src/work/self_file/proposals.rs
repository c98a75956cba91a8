//! Proposals of the `self` tool: changes that wait for a person.

use std::future::Future;

use holdfast_types::ProposalKind;

use crate::{Approval, Call};

/// A change that an agent asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSelfProposal {
    pub kind: ProposalKind,
    /// Name of the behaviour or skill; empty for `self.md`.
    pub name: String,
    /// The whole new text.
    pub content: String,
    pub goal: String,
    pub risk: String,
    pub benefit: String,
}

/// Access of the tool to proposals. An error is an internal failure: the turn ends and may be retried.
/// An inner error is a reason for the model.
pub trait SelfProposals: Send + Sync + 'static {
    /// Returns the text in effect of a behaviour or skill.
    fn read(
        &self,
        call: &Call,
        kind: ProposalKind,
        name: &str,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;

    /// Stores a proposal, once for the same `call.key`.
    fn propose(
        &self,
        call: &Call,
        proposal: NewSelfProposal,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;

    /// Lists the agent's newest proposals.
    fn list(&self, call: &Call) -> impl Future<Output = anyhow::Result<String>> + Send;

    /// Asks a person about a proposal, with all of it.
    fn approval(
        &self,
        call: &Call,
        proposal: &str,
    ) -> impl Future<Output = anyhow::Result<Approval>> + Send;

    /// Applies a proposal that a person has approved, once.
    fn apply(
        &self,
        call: &Call,
        proposal: &str,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>> + Send;
}
