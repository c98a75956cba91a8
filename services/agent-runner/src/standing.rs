//! Who speaks in a turn, what they may have done, and what is refused to them.

use std::sync::Arc;

use holdfast_agent::{
    bootstrap::Audience,
    policy::{self, Decision, LocalTime, Place, Subject, Who},
};
use holdfast_tools::{NOT_YOURS, ToolError};
use holdfast_types::{Author, DmScope, Entry, ToolCall};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::Value;
use tracing::{info, warn};

use crate::{agents::Brief, shell::Judge, think::is_meta, turn::Turn};

impl Turn<'_> {
    /// Takes in what the tenant and the agent say about tools by now.
    pub(crate) async fn look_up_policy(&mut self) -> Result<(), crate::error::Error> {
        let found = self.worker.policies.find(&self.tools, self.hold.claim.tenant, self.agent);
        self.policy = found.await?;
        Ok(())
    }

    /// What the policy says of this turn's commands.
    pub(crate) fn judge(&self, brief: &Brief) -> Judge {
        Judge::new(Arc::clone(&self.policy), self.subject(brief)).with(self.elevated())
    }

    /// Who reads along.
    pub(crate) fn audience(&self, brief: &Brief) -> Audience {
        self.audience_in(brief.dm_scope)
    }

    /// The same, where direct messages are led so.
    pub(crate) fn audience_in(&self, scope: DmScope) -> Audience {
        let always = self.policy.who(speakers(self.journal.entries()));
        policy::audience(self.kind, scope, &self.who(), &always)
    }

    /// Who speaks in this turn.
    pub(crate) fn who(&self) -> Who {
        self.policy.who(speakers(self.journal.turn()))
    }

    /// The facts of this turn that the policy may depend on.
    pub(crate) fn subject(&self, brief: &Brief) -> Subject {
        let who = self.who();
        // Where nobody's name is known, the session says whose it is.
        let is_owner = match who.roles.is_empty() {
            true => self.audience(brief) == Audience::Owner,
            false => who.is_owner(),
        };
        let mut messages = self.journal.narrowed();
        messages.extend(self.bounds(brief));
        let desk = self.hold.desk();
        let place = desk.place.as_ref();
        Subject {
            is_owner,
            roles: who.roles,
            user: who.user,
            channel: place.map(|place| place.channel.clone()),
            chat: place.map(|place| place.chat.clone()),
            model: Some(brief.model_id.clone()),
            tools: brief.tools.clone(),
            bundle: self.task.as_ref().and_then(|task| task.given.tools.clone()),
            messages,
            now: local_time(Timestamp::now(), &brief.zone),
            ..Subject::new(self.kind)
        }
    }

    /// What the policy says of a call: of its tool, and of what it is asked to do.
    pub(crate) fn decide(&self, brief: &Brief, call: &ToolCall) -> Decision {
        let input = serde_json::from_str(&call.input).unwrap_or(Value::Null);
        self.policy.view(&self.subject(brief)).decide_call(&call.tool, &input)
    }

    /// Refuses a call that the policy denies, on record: the model may name what it was not
    /// offered (spec POL-014).
    pub(crate) async fn check(&self, brief: &Brief, call: &ToolCall) -> Result<(), ToolError> {
        // A name that no tool has is answered by the registry.
        let Some(tool) = self.tools.known(&call.tool).filter(|tool| !is_meta(tool)) else {
            return Ok(());
        };
        let (layer, rule) = match self.decide(brief, call) {
            // Who is to be asked is asked where calls are made.
            Decision::Allow | Decision::NeedApproval { .. } => return Ok(()),
            Decision::Deny { layer, rule } => (layer, rule),
        };
        metrics::counter!(
            "holdfast_runner_policy_denied_total",
            "layer" => layer.as_str(),
            "tool" => self.tools.label(&call.tool),
        )
        .increment(1);
        info!(gen_ai.tool.name = tool, layer = layer.as_str(), "a call was refused by the policy");
        let why = format!("{tool}: {}: {rule}", layer.as_str());
        let (claim, directory) = (&self.hold.claim, &self.worker.directory);
        let recorded = directory.record_refusal(claim.tenant, brief.agent, self.run, &why).await;
        if let Err(error) = recorded {
            // The journal has the refusal, too.
            warn!(error = &error as &dyn std::error::Error, "a refusal is not in the audit log");
        }
        Err(ToolError::Tell(match layer {
            Place::Action | Place::Exec => format!("this call is refused: {rule}"),
            // What is denied elsewhere is not for whoever speaks to know.
            Place::Layer(_) | Place::Visibility | Place::Catalog => NOT_YOURS.to_owned(),
        }))
    }
}

/// Who asked for something: not who is only quoted, nor the mesh itself.
pub(crate) fn speakers(entries: &[Entry]) -> impl Iterator<Item = &Author> {
    entries.iter().filter_map(|entry| match entry {
        Entry::Heard { body, .. } if !body.silent => body.author.as_ref(),
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    })
}

/// A moment on the agent's clock.
fn local_time(at: Timestamp, zone: &TimeZone) -> Option<LocalTime> {
    let there = at.to_zoned(zone.clone());
    LocalTime::of(there.weekday().to_monday_zero_offset(), there.hour(), there.minute())
}

#[cfg(test)]
mod tests {
    use holdfast_agent::policy::Weekday;
    use holdfast_types::Body;

    use super::*;

    #[test]
    fn the_time_is_that_of_the_agents_clock() {
        let at: Timestamp = "2026-01-04T23:30:00Z".parse().unwrap();
        let zone = TimeZone::get("Europe/Oslo").unwrap();

        let moment = |weekday, minute| Some(LocalTime { weekday, minute });
        assert_eq!(local_time(at, &TimeZone::UTC), moment(Weekday::Sun, 1_410));
        assert_eq!(local_time(at, &zone), moment(Weekday::Mon, 30));
    }

    #[test]
    fn whoever_is_only_quoted_does_not_speak() {
        let heard = |id: Option<&str>, silent| {
            let author = id.map(|id| Author { id: id.to_owned(), roles: Vec::new() });
            Entry::Heard { seq: 1, body: Body { author, silent, ..Body::text("x") } }
        };
        let entries = [heard(Some("a:1"), false), heard(Some("a:2"), true), heard(None, false)];

        let ids: Vec<&str> = speakers(&entries).map(|author| author.id.as_str()).collect();

        assert_eq!(ids, ["a:1"]);
    }
}
