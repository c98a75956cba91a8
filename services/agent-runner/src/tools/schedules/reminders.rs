//! Tools `scheduler_…`: reminders of the user.

use holdfast_agent::person::id_of;
use holdfast_schedule::reminder::{Locale, ReminderItem};
use holdfast_schedule::store::NewReminder;
use holdfast_tools::{Call, ReminderRequest, Reminders};
use holdfast_types::{SessionKey, SessionKind, Target};

use super::{Requester, ScheduleTools, job_id};
use crate::tools::tool_context::ToolContext;

impl Reminders for ScheduleTools {
    async fn add(
        &self,
        call: &Call,
        wanted: ReminderRequest,
    ) -> anyhow::Result<Result<String, String>> {
        let asked = self.requester(call)?;
        let locale = match Locale::detect(&wanted.content) {
            Locale::Zh => Locale::Zh,
            Locale::En => asked.locale,
        };
        let Some(user) = asked.user.as_deref() else { return Ok(Err(no_user_error(locale))) };
        let (session, target) = self.job_session(call)?;
        let remind = NewReminder {
            id: job_id(&call.key),
            agent: call.agent,
            user,
            session: &session,
            target,
            content: &wanted.content,
            time: &wanted.time,
            zone: &asked.zone,
            locale,
            auto_continue: wanted.auto_continue,
            author: asked.author.clone(),
            renewal: asked.renewal,
            // A person has approved one that acts.
            outside: !wanted.auto_continue && ToolContext::of(call)?.repeats_outside_text(),
        };
        let set = self.jobs.set_reminder(call.tenant, remind, self.rules.reminders()).await?;
        Ok(match set {
            Ok(set) => {
                self.mesh.bus.wake_schedule();
                let item = ReminderItem {
                    id: &set.job.external_id,
                    auto_continue: set.what.auto_continue,
                    at: set.at,
                    content: &set.what.content,
                };
                Ok(locale.added(item, &asked.zone))
            }
            Err(why) => Err(why.user_message(locale)),
        })
    }

    async fn list(&self, call: &Call) -> anyhow::Result<Result<String, String>> {
        let asked = self.requester(call)?;
        let Some(user) = asked.user.as_deref() else { return Ok(Err(no_user_error(asked.locale))) };
        let own = self.jobs.reminders(call.tenant, user).await?;
        if own.iter().any(|one| one.what.outside) {
            ToolContext::of(call)?.note_outside_text();
        }
        let items: Vec<ReminderItem<'_>> = own
            .iter()
            .map(|one| ReminderItem {
                id: &one.job.external_id,
                auto_continue: one.what.auto_continue,
                at: one.at,
                content: &one.what.content,
            })
            .collect();
        Ok(Ok(asked.locale.list(user, &items, &asked.zone)))
    }

    async fn cancel(&self, call: &Call, id: &str) -> anyhow::Result<Result<String, String>> {
        let asked = self.requester(call)?;
        let Some(user) = asked.user.as_deref() else { return Ok(Err(no_user_error(asked.locale))) };
        let shown: String = id.chars().take(80).collect();
        let cancelled = self.jobs.cancel_reminder(call.tenant, user, id).await?;
        Ok(match cancelled {
            Ok(id) => Ok(asked.locale.cancelled(&id)),
            Err(named) => Err(asked.locale.no_single_match(named, &shown).unwrap_or_default()),
        })
    }
}

impl ScheduleTools {
    fn requester(&self, call: &Call) -> anyhow::Result<Requester> {
        Ok(ToolContext::of(call)?.requester.clone())
    }

    /// Session and target of a job's text: this conversation, or if this one has no user, the main
    /// one of the owner or of the person who made the job that runs.
    pub(super) fn job_session(&self, call: &Call) -> anyhow::Result<(SessionKey, Option<Target>)> {
        let context = ToolContext::of(call)?;
        let (key, place) = (&context.key, context.target.clone());
        let person = context.requester.user.as_deref().and_then(id_of);
        let main = match person {
            Some(person) => SessionKey::main_of_person(&call.agent_name, person)?,
            None => SessionKey::main(&call.agent_name),
        };
        Ok(match context.kind {
            SessionKind::Main
            | SessionKind::Dm
            | SessionKind::Group
            | SessionKind::Topic
            | SessionKind::Api => {
                (key.parse()?, place.map(|place| Target { reply_to: None, ..place }))
            }
            SessionKind::Subagent
            | SessionKind::Cron
            | SessionKind::Heartbeat
            | SessionKind::Work
            | SessionKind::Global => (main, None),
        })
    }
}

fn no_user_error(locale: Locale) -> String {
    match locale {
        Locale::En => {
            "Error: it is not clear whose reminders are meant: ask in a direct conversation"
        }
        Locale::Zh => "错误: 无法确定是谁的提醒，请在单独的会话中设置",
    }
    .to_owned()
}
