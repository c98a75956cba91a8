//! Operations on proposals. Transactions begin and end here.

use holdfast_directory::Directory;
use holdfast_pg::{Pools, TenantTx};
use holdfast_types::{AgentId, Fault as _, ProposalId, ProposalKind, TenantId};
use holdfast_work::{Place, ProposalRecord, record_proposal};
use holdfast_workspace::Workspaces;
use similar::TextDiff;
use tracing::warn;

use crate::{
    Decider, Error, NewProposal, Proposal, ProposalFilter, ProposalState,
    store::{self, Decision},
    target::Targets,
};

/// Proposals of an agent that wait for a decision.
const MAX_OPEN: i64 = 50;

/// Lines of a diff.
const MAX_DIFF_LINES: usize = 1_000;

#[derive(Debug, Clone)]
pub struct Proposals {
    pools: Pools,
    targets: Targets,
}

impl Proposals {
    #[must_use]
    pub const fn new(pools: Pools, directory: Directory, workspaces: Workspaces) -> Self {
        Self { pools, targets: Targets { directory, workspaces } }
    }

    /// Returns the text in effect of what a proposal would change; empty if there is none.
    pub async fn current(
        &self,
        of: (TenantId, AgentId),
        kind: ProposalKind,
        target: &str,
    ) -> Result<String, Error> {
        Ok(self.targets.read(of, kind, target.trim()).await?.in_effect)
    }

    /// Stores a proposal, once for its key. It changes nothing else.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the text is not one of its kind, [`Error::TooMany`] at the limit.
    pub async fn propose(&self, tenant: TenantId, new: &NewProposal) -> Result<Proposal, Error> {
        let target = new.check()?;
        let mut tx = self.pools.tenant(tenant).await?;
        if let Some(known) = store::by_key(&mut tx, &new.key).await? {
            tx.finish_reading();
            return Ok(known);
        }
        let open = store::count_open(&mut tx, new.place.agent).await?;
        tx.finish_reading();
        if open >= MAX_OPEN {
            return Err(Error::TooMany(MAX_OPEN));
        }
        let current = self.targets.read((tenant, new.place.agent), new.kind, &target).await?;
        if current.text.as_deref() == Some(&new.content) {
            return Err(Error::Invalid(format!("`{target}` has this text already")));
        }
        let diff = unified_diff(&current.in_effect, &new.content);
        let mut tx = self.pools.tenant(tenant).await?;
        let made = store::insert(&mut tx, new, (&target, &current, &diff)).await?;
        let Some(made) = made else {
            // The same call was made at the same time.
            let known = store::by_key(&mut tx, &new.key).await?;
            tx.finish_reading();
            return known.ok_or(Error::Corrupt("key of a proposal"));
        };
        record(&mut tx, &new.place, &made).await?;
        tx.commit().await?;
        Ok(made)
    }

    pub async fn get(&self, tenant: TenantId, id: ProposalId) -> Result<Proposal, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let found = store::get(&mut tx, id).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// Number of a tenant's proposals that nobody has decided about; at most 1000.
    pub async fn count_open(&self, tenant: TenantId) -> Result<u32, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let count = store::count_all_open(&mut tx).await?;
        tx.finish_reading();
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Returns proposals, newest first.
    pub async fn list(
        &self,
        tenant: TenantId,
        filter: ProposalFilter,
    ) -> Result<Vec<Proposal>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let found = store::list(&mut tx, filter).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// Approves a proposal and applies it, once. One that was applied is returned as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if it was decided otherwise. If its base is stale, too; then it has failed.
    pub async fn approve(
        &self,
        tenant: TenantId,
        id: ProposalId,
        by: Decider,
    ) -> Result<Proposal, Error> {
        let (from, to) = (ProposalState::Proposed, ProposalState::Approved);
        let approval = Decision { from, to, by: by.0, reason: "", version: None };
        let proposal = match self.decide(tenant, id, &approval).await? {
            Some(approved) => approved,
            None => {
                let found = self.get(tenant, id).await?;
                match found.state {
                    // The process that applied it may have died.
                    ProposalState::Approved => found,
                    ProposalState::Applied => return Ok(found),
                    _ => return Err(wrong_state(&found, "approved")),
                }
            }
        };
        let from = ProposalState::Approved;
        let version = match self.targets.apply(tenant, &proposal, by).await {
            Ok(version) => version,
            Err(error) if error.kind().is_transient() => return Err(error),
            Err(error) => {
                let reason = error.to_string();
                let failure = Decision {
                    from,
                    to: ProposalState::Failed,
                    by: by.0,
                    reason: &reason,
                    version: None,
                };
                self.decide(tenant, id, &failure).await?;
                return Err(error);
            }
        };
        let to = ProposalState::Applied;
        let applied = Decision { from, to, by: by.0, reason: "", version: Some(&version) };
        match self.decide(tenant, id, &applied).await? {
            Some(applied) => Ok(applied),
            None => self.get(tenant, id).await,
        }
    }

    /// # Errors
    ///
    /// [`Error::Conflict`] if it was decided already.
    pub async fn reject(
        &self,
        tenant: TenantId,
        id: ProposalId,
        (by, reason): (Decider, &str),
    ) -> Result<Proposal, Error> {
        let (from, to) = (ProposalState::Proposed, ProposalState::Rejected);
        let reason: String = reason.chars().take(2_000).collect();
        let rejection = Decision { from, to, by: by.0, reason: &reason, version: None };
        match self.decide(tenant, id, &rejection).await? {
            Some(rejected) => Ok(rejected),
            None => Err(wrong_state(&self.get(tenant, id).await?, "rejected")),
        }
    }

    /// Takes an applied proposal back: the text from before is a new version.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if it is not applied, or something was changed since.
    pub async fn roll_back(
        &self,
        tenant: TenantId,
        id: ProposalId,
        by: Decider,
    ) -> Result<Proposal, Error> {
        let proposal = self.get(tenant, id).await?;
        if proposal.state != ProposalState::Applied {
            return Err(wrong_state(&proposal, "rolled back"));
        }
        self.targets.roll_back(tenant, &proposal, by).await?;
        let (from, to) = (ProposalState::Applied, ProposalState::RolledBack);
        let taken_back = Decision { from, to, by: by.0, reason: "", version: None };
        match self.decide(tenant, id, &taken_back).await? {
            Some(taken_back) => Ok(taken_back),
            None => self.get(tenant, id).await,
        }
    }

    /// Changes the state, and tells it in the worklog. A session that was deleted has none.
    async fn decide(
        &self,
        tenant: TenantId,
        id: ProposalId,
        decision: &Decision<'_>,
    ) -> Result<Option<Proposal>, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let decided = store::decide(&mut tx, id, decision).await?;
        if let Some(proposal) = &decided {
            let place = Place {
                session: proposal.session,
                has_outside_text: proposal.outside,
                ..Place::outside(proposal.list, proposal.agent)
            };
            record(&mut tx, &place, proposal).await?;
        }
        tx.commit().await?;
        if let Some(proposal) = decided.as_ref().filter(|one| one.state == ProposalState::Failed) {
            warn!(proposal.id = %proposal.id, "a proposal could not be applied");
        }
        Ok(decided)
    }
}

async fn record(tx: &mut TenantTx, place: &Place, proposal: &Proposal) -> Result<(), Error> {
    let record = ProposalRecord {
        id: proposal.id.to_string(),
        state: proposal.state.as_str(),
        kind: proposal.kind.as_str(),
        target: &proposal.target,
        goal: &proposal.goal,
        risk: &proposal.risk,
        benefit: &proposal.benefit,
        diff: &proposal.diff,
        applied_as: proposal.applied_as.as_deref(),
        reason: &proposal.reason,
        by: proposal.decided_by.as_deref(),
    };
    Ok(record_proposal(tx, place, &record).await?)
}

fn wrong_state(proposal: &Proposal, wanted: &str) -> Error {
    Error::Conflict(format!(
        "the proposal `{}` is {} and cannot be {wanted}",
        proposal.id, proposal.state
    ))
}

fn unified_diff(before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after).unified_diff().context_radius(3).to_string();
    let lines = diff.lines().count();
    if lines <= MAX_DIFF_LINES {
        return diff;
    }
    let shown: String = diff.split_inclusive('\n').take(MAX_DIFF_LINES).collect();
    format!("{shown}[{} more lines]\n", lines - MAX_DIFF_LINES)
}
