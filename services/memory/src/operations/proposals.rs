//! Proposed changes of articles, which wait for a maintainer's decision.
//!
//! A proposal is an event item of the agent that made it. The decision is another event item of the
//! same agent, user and session, and supersedes the proposal. So both are listed and erased with
//! their owner.

use std::collections::HashMap;

use holdfast_types::TenantId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use uuid::Uuid;

use super::{MemoryService, Revision};
use crate::{
    Error,
    store::{
        items::{self, Item, ItemFilter, to_column},
        units,
    },
    unit::kind,
    validation::{self, Provenance, prefixed_id},
    viewer::Viewer,
};

/// Item types of the two events.
const PROPOSAL: &str = "kb_proposal";
const DECISION: &str = "kb_decision";

#[derive(Debug, Clone)]
pub struct Proposal {
    /// Stored event with owner, provenance and time.
    pub item: Item,
    pub change: Change,
    pub decision: Option<Decision>,
}

/// Content of a proposal event.
#[derive(Debug, Clone, Deserialize)]
pub struct Change {
    /// Article id, `doc_…`.
    pub article: String,
    /// Version that the proposal changes; 0 means the newest when it was made.
    #[serde(default)]
    pub version: u32,
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub text: String,
    #[serde(default)]
    pub author: String,
}

/// Content of a decision event.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Decision {
    /// Proposal id, `itm_…`.
    pub proposal: String,
    /// Article id, `doc_…`.
    pub article: String,
    pub verdict: Verdict,
    pub by: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Version of the article that was written; `None` if declined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Accepted,
    Declined,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Declined => "declined",
        }
    }
}

impl MemoryService {
    /// Lists proposals, newest first. `which` gives the page and whether decided ones are included.
    pub async fn proposals(
        &self,
        tenant: TenantId,
        who: &Viewer,
        which: &ItemFilter,
    ) -> Result<Vec<Proposal>, Error> {
        let which =
            ItemFilter { kinds: vec![kind::EVENT], of_type: PROPOSAL.to_owned(), ..which.clone() };
        let mut tx = self.pools.tenant(tenant).await?;
        let items = items::list(&mut tx, who, &which).await?;
        let decisions: Vec<Uuid> = items.iter().filter_map(|item| item.superseded_by).collect();
        let decisions = items::contents(&mut tx, &decisions).await?;
        tx.finish_reading();
        let decisions: HashMap<Uuid, String> = decisions.into_iter().collect();
        let read = |item: Item| {
            let decision = item.superseded_by.and_then(|by| decisions.get(&by).cloned());
            proposal(item, decision.as_deref())
        };
        items.into_iter().map(read).collect()
    }

    pub async fn proposal(
        &self,
        tenant: TenantId,
        who: &Viewer,
        id: Uuid,
    ) -> Result<Proposal, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let found = visible_proposal(&mut tx, who, id).await;
        tx.finish_reading();
        found
    }

    /// Accepts or declines a proposal. Repeating a decision changes nothing; the opposite decision
    /// is an error.
    pub async fn decide(
        &self,
        tenant: TenantId,
        who: &Viewer,
        id: Uuid,
        (verdict, by, reason): (Verdict, &str, &str),
    ) -> Result<Proposal, Error> {
        if !who.maintainer {
            return Err(Error::NotMaintainer);
        }
        let mut tx = self.pools.tenant(tenant).await?;
        items::lock(&mut tx, id).await?;
        let proposal = visible_proposal(&mut tx, who, id).await?;
        if let Some(decision) = &proposal.decision {
            tx.finish_reading();
            return match decision.verdict == verdict {
                true => Ok(proposal),
                false => Err(Error::Decided(decision.verdict.word())),
            };
        }
        let Proposal { item, change, .. } = proposal;
        let made = match verdict {
            Verdict::Declined => None,
            Verdict::Accepted => {
                let article = validation::id("article", "doc", &change.article)?;
                let there = self.lock_article(&mut tx, who, article).await?;
                let is_same = match change.version {
                    0 => there.updated_at.to_jiff() <= item.created_at.to_jiff(),
                    version => i64::from(there.version) == i64::from(version),
                };
                if !is_same {
                    return Err(Error::Stale { have: there.version });
                }
                let text = Some(change.text.clone()).filter(|text| !text.is_empty());
                let revision = revision(&item, &change, by);
                let revised = self.revise(&mut tx, there, &revision, text).await?;
                Some(revised.version.version)
            }
        };
        let decision = Decision {
            proposal: prefixed_id("itm", id),
            article: change.article.clone(),
            verdict,
            by: by.to_owned(),
            reason: reason.to_owned(),
            made,
        };
        let kept = decision_item(&item, &decision)?;
        items::insert(&mut tx, &kept, None).await?;
        items::supersede(&mut tx, id, kept.item_id).await?;
        units::remove_of(&mut tx, id).await?;
        let proposal = visible_proposal(&mut tx, who, id).await?;
        tx.commit().await?;
        self.waiting.notify_one();
        Ok(proposal)
    }
}

/// Returns a proposal that `who` may see.
async fn visible_proposal(
    tx: &mut holdfast_pg::TenantTx,
    who: &Viewer,
    id: Uuid,
) -> Result<Proposal, Error> {
    let item = items::get(tx, who, id).await?;
    let item = item.filter(|item| item.kind == kind::EVENT && item.of_type == PROPOSAL);
    let item = item.ok_or_else(|| Error::not_found("proposal", &prefixed_id("itm", id)))?;
    let decisions = match item.superseded_by {
        Some(by) => items::contents(tx, &[by]).await?,
        None => Vec::new(),
    };
    proposal(item, decisions.first().map(|(_, content)| content.as_str()))
}

fn proposal(item: Item, decision: Option<&str>) -> Result<Proposal, Error> {
    let change = serde_json::from_str(&item.content).map_err(|_| Error::Corrupt("proposal"))?;
    let decision = decision.map(serde_json::from_str).transpose();
    let decision = decision.map_err(|_| Error::Corrupt("decision"))?;
    Ok(Proposal { item, change, decision })
}

/// Returns the change with the proposer's provenance and the principal who accepted it.
fn revision(item: &Item, change: &Change, by: &str) -> Revision {
    let provenance = Provenance { accepted_by: by.to_owned(), ..item.provenance.0.clone() };
    let author = match change.author.as_str() {
        "" => provenance.name.chars().take(200).collect(),
        author => author.to_owned(),
    };
    Revision {
        content: Vec::new(),
        media_type: String::new(),
        title: change.title.clone(),
        tags: None,
        provenance,
        author,
        confidence: None,
        version: change.version,
        session: item.session.clone(),
        user: item.user_id.clone(),
    }
}

/// Returns the decision as an event item with the proposal's owner.
fn decision_item(proposal: &Item, decision: &Decision) -> Result<Item, Error> {
    let now = Timestamp::now();
    let by = Provenance {
        kind: "user".to_owned(),
        name: decision.by.clone(),
        locator: decision.proposal.clone(),
        retrieved_at: now,
        accepted_by: String::new(),
        outside: false,
    };
    Ok(Item {
        item_id: Uuid::now_v7(),
        of_type: DECISION.to_owned(),
        content: serde_json::to_string(decision).map_err(|_| Error::Corrupt("decision"))?,
        at: to_column(now),
        created_at: to_column(now),
        provenance: Json(by),
        ..proposal.clone()
    })
}
