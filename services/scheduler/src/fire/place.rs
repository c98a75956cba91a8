//! Where the answer of an isolated turn goes (spec CRN-002, CRN-010, C-48).
//!
//! | `channel` | `to` | goes |
//! |---|---|---|
//! | `last` | | to where the agent's main conversation was last held on a channel, or else its only direct one; to nobody if there is none |
//! | a channel | a chat | there, by the tenant's account on that channel |
//! | a channel | | to where the agent was last spoken to, if that was on this channel |

use holdfast_jobs::Job;
use holdfast_schedule::AgentTurn;
use holdfast_types::{AgentName, SessionKey, Target};

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

pub async fn place(
    ctx: &Ctx,
    job: &Job,
    agent: &AgentName,
    turn: &AgentTurn,
) -> Result<Place, Passing> {
    if !turn.deliver {
        return Ok(Place::Known(None));
    }
    let main = SessionKey::main(agent);
    let last = ctx.sessions.last_target(job.tenant, &main, job.agent).await?;
    let last = last.map(|last| Target { reply_to: None, ..last });
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

/// The word for where the agent was last spoken to.
const LAST: &str = "last";
