//! Where the answer of an isolated turn goes (spec CRN-002, CRN-010, C-48).
//!
//! | `channel` | `to` | goes |
//! |---|---|---|
//! | `last` | | to where the agent's main conversation was last held on a channel, or else its only direct one, if that is with an owner; to nobody if there is none |
//! | a channel | a chat | there, by the tenant's account on that channel |
//! | a channel | | to where the agent was last spoken to, if that was on this channel |

use holdfast_agent::policy;
use holdfast_jobs::Job;
use holdfast_schedule::AgentTurn;
use holdfast_session::Place as Spoken;
use holdfast_types::{AgentId, SessionKind, Target, TenantId};

use super::Ctx;

/// Where an answer goes.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// There, or nowhere.
    Known(Option<Target>),
    /// It cannot be said where, for this reason.
    Unknown(&'static str),
}

/// A failure that may pass.
pub type Passing = anyhow::Error;

pub async fn place(ctx: &Ctx, job: &Job, turn: &AgentTurn) -> Result<Place, Passing> {
    if !turn.deliver {
        return Ok(Place::Known(None));
    }
    let last = ctx.owners_place(job.tenant, job.agent).await?.map(|last| last.target);
    if turn.channel == LAST {
        let last = last.map(|last| match &turn.to {
            Some(chat) => Target { chat: chat.clone(), thread: None, ..last },
            None => last,
        });
        return Ok(Place::Known(last));
    }
    let here = last.filter(|last| last.channel == turn.channel);
    let accounts = ctx.directory.accounts(job.tenant, Some(&turn.channel)).await?;
    let enabled: Vec<_> = accounts.iter().filter(|account| account.enabled).collect();
    let account = match (&here, enabled.as_slice()) {
        (_, []) => return Ok(Place::Unknown("no_account")),
        (Some(here), all) if all.iter().any(|account| account.id == here.account) => here.account,
        (_, [only]) => only.id,
        (_, _) => return Ok(Place::Unknown("several_accounts")),
    };
    Ok(match (&turn.to, here) {
        (Some(chat), _) => Place::Known(Some(Target {
            channel: turn.channel.clone(),
            account,
            chat: chat.clone(),
            thread: None,
            reply_to: None,
        })),
        (None, Some(here)) => Place::Known(Some(here)),
        (None, None) => Place::Unknown("no_recipient"),
    })
}

impl Ctx {
    /// Where an agent was last spoken to by whom it works for: in its main session, or else in its
    /// only direct conversation, if those who speak there own it. The first stranger who writes to
    /// an agent has its only one, too.
    pub async fn owners_place(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> anyhow::Result<Option<Spoken>> {
        let Some(place) = self.sessions.last_place(tenant, agent).await? else { return Ok(None) };
        if place.key.kind() == SessionKind::Main {
            return Ok(Some(place));
        }
        let says = self.directory.policies(tenant, agent).await?;
        let (of_tenant, of_agent) = (&says.tenant.document, &says.agent.document);
        // A policy that cannot be read names nobody.
        let are = policy::are_owners(of_tenant, of_agent, &place.speakers).unwrap_or(false);
        Ok(are.then_some(place))
    }
}

/// The word for where the agent was last spoken to.
const LAST: &str = "last";
