//! Targets of the answers of isolated turns (spec CRN-002, CRN-010, C-48).
//!
//! | `channel` | `to` | target |
//! |---|---|---|
//! | `last` | | where the person who made the job last wrote to the agent on a channel; for the agent's own jobs and those of owners otherwise the last place of the agent's main conversation on a channel, or its only direct conversation, if that is with an owner; otherwise none |
//! | a channel | a chat | that chat, by the tenant's account on that channel |
//! | a channel | | the place where the agent was last spoken to, if it is on this channel |

use holdfast_agent::{person, policy};
use holdfast_schedule::AgentTurn;
use holdfast_schedule::store::Job;
use holdfast_session::ChannelConversation as Spoken;
use holdfast_types::{AgentId, Author, SessionKey, SessionKind, Target, TenantId};

use crate::context::Ctx;

#[derive(Debug, PartialEq, Eq)]
pub enum AnswerTarget {
    /// The target, or `None` if the answer is not delivered.
    Known(Option<Target>),
    /// No target can be determined, for this reason.
    Unknown(&'static str),
}

pub async fn find_target(ctx: &Ctx, job: &Job, turn: &AgentTurn) -> anyhow::Result<AnswerTarget> {
    if !turn.deliver {
        return Ok(AnswerTarget::Known(None));
    }
    let last = ctx.last_place_of_maker(job).await?;
    if turn.channel == AgentTurn::LAST_CHANNEL {
        let last = last.map(|last| match &turn.to {
            Some(chat) => Target { chat: chat.clone(), thread: None, ..last },
            None => last,
        });
        return Ok(AnswerTarget::Known(last));
    }
    let here = last.filter(|last| last.channel == turn.channel);
    let accounts = ctx.directory.accounts().list(job.tenant, Some(&turn.channel)).await?;
    let enabled: Vec<_> = accounts.iter().filter(|account| account.enabled).collect();
    let account = match (&here, enabled.as_slice()) {
        (_, []) => return Ok(AnswerTarget::Unknown("no_account")),
        (Some(here), all) if all.iter().any(|account| account.id == here.account) => here.account,
        (_, [only]) => only.id,
        (_, _) => return Ok(AnswerTarget::Unknown("several_accounts")),
    };
    Ok(match (&turn.to, here) {
        (Some(chat), _) => AnswerTarget::Known(Some(Target {
            channel: turn.channel.clone(),
            account,
            chat: chat.clone(),
            thread: None,
            reply_to: None,
        })),
        (None, Some(here)) => AnswerTarget::Known(Some(here)),
        (None, None) => AnswerTarget::Unknown("no_recipient"),
    })
}

impl Ctx {
    /// Returns the place where who made the job last wrote to its agent on a channel. What somebody
    /// else's job says is not sent to the owner.
    async fn last_place_of_maker(&self, job: &Job) -> anyhow::Result<Option<Target>> {
        let author = job.author.as_ref();
        let person = author.and_then(|author| person::id_of(&author.id));
        if let (Some(author), Some(person)) = (author, person) {
            let views = self.sessions.views();
            let found = views.conversation_with_person(job.tenant, job.agent, person).await?;
            let authors = std::slice::from_ref(author);
            if found.is_some() || !self.are_owners(job.tenant, job.agent, authors).await? {
                return Ok(found.map(|(_, target)| target));
            }
        }
        Ok(self.last_owner_place(job.tenant, job.agent).await?.map(|last| last.target))
    }

    /// Returns the place where the person of a conversation that is on no channel last wrote to the
    /// agent on one. `None` if the runner finds the conversation's own place, or there is nobody.
    pub async fn find_place_elsewhere(
        &self,
        job: &Job,
        key: &SessionKey,
        author: Option<&Author>,
    ) -> anyhow::Result<Option<Target>> {
        let author = author.map(|author| author.id.as_str());
        let Some(person) = person::who_hears_of(key, author) else { return Ok(None) };
        let views = self.sessions.views();
        if let Some(session) = views.find(job.tenant, key).await?
            && views.session(job.tenant, session).await?.last_target.is_some()
        {
            return Ok(None);
        }
        let found = views.conversation_with_person(job.tenant, job.agent, person).await?;
        Ok(found.map(|(_, target)| target))
    }

    /// Returns the place where an owner last spoke to the agent: in its main session, or else in
    /// its only direct conversation, if its speakers own the agent.
    ///
    /// The speakers are checked because a stranger who writes first also has the agent's only
    /// direct conversation.
    pub async fn last_owner_place(
        &self,
        tenant: TenantId,
        agent: AgentId,
    ) -> anyhow::Result<Option<Spoken>> {
        let Some(place) = self.sessions.views().last_conversation(tenant, agent).await? else {
            return Ok(None);
        };
        if place.key.kind() == SessionKind::Main {
            return Ok(Some(place));
        }
        let are = self.are_owners(tenant, agent, &place.speakers).await?;
        Ok(are.then_some(place))
    }

    /// Whether all authors own the agent; `false` if there are none.
    pub async fn are_owners(
        &self,
        tenant: TenantId,
        agent: AgentId,
        authors: &[Author],
    ) -> anyhow::Result<bool> {
        let says = self.directory.policies().for_agent(tenant, agent).await?;
        let (of_tenant, of_agent) = (&says.tenant.document, &says.agent.document);
        // An unreadable policy names no owners.
        Ok(policy::are_owners(of_tenant, of_agent, authors).unwrap_or(false))
    }
}
