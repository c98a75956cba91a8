//! Reply settings of a turn: directives in its messages, else the conversation's settings (spec
//! UIC-004, decision 0022).
//!
//! | setting | who may change it |
//! |---|---|
//! | think | everybody |
//! | verbose, reasoning | members; in a group only the owner: they show what the agent does internally |
//! | elevated | the owner, never in a group |

use holdfast_types::{Dial, Dials, Elevated, Entry, Reasoning, SessionKind, Thinking, Verbose};

use crate::{error::Error, turn::Turn};

const MEMBER: &str = "member";

const NOT_A_MEMBER: &str =
    "This is not for guests: whoever owns this assistant can name you in the account's list.";
const NOT_THE_OWNER: &str = "Only the owner of this assistant may set this.";

impl Turn<'_> {
    /// Effective settings of the turn.
    pub(crate) fn dials(&self) -> Dials {
        let said = self.journal.turn().iter().filter_map(|entry| match entry {
            Entry::Heard { body, .. } => Some(body.dials()),
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        // The last directive wins.
        said.fold(self.settings.dials(), |before, said| said.over(before))
    }

    pub(crate) fn thinking(&self) -> Thinking {
        self.dials().thinking.unwrap_or_default()
    }

    /// Whether tool calls are shown; off for people who may not see them.
    pub(crate) fn verbose(&self) -> Verbose {
        let wanted = self.dials().verbose.unwrap_or_default();
        if self.may_look() { wanted } else { Verbose::Off }
    }

    /// Whether reasoning is shown; off for people who may not see it.
    pub(crate) fn reasoning(&self) -> Reasoning {
        let wanted = self.dials().reasoning.unwrap_or_default();
        if self.may_look() { wanted } else { Reasoning::Off }
    }

    /// Handling of commands that need an approval.
    pub(crate) fn elevated(&self) -> Elevated {
        match self.dials().elevated.unwrap_or_default() {
            Elevated::Off => Elevated::Off,
            Elevated::On | Elevated::Ask => Elevated::Ask,
            // `full` counts only if the owner alone speaks in the turn.
            Elevated::Full if self.may_elevate() => Elevated::Full,
            Elevated::Full => Elevated::Ask,
        }
    }

    fn may_look(&self) -> bool {
        let who = self.who();
        match is_shared(self.kind) {
            true => who.is_owner(),
            false => who.roles.is_empty() || who.roles.iter().any(|role| role == MEMBER),
        }
    }

    fn may_elevate(&self) -> bool {
        !is_shared(self.kind) && self.who().is_owner()
    }

    /// Changes the conversation's settings and returns them as text.
    pub(crate) async fn turn_dials(&mut self, dials: Dials) -> Result<String, Error> {
        self.look_up_policy().await?;
        if dials.elevated.is_some() && !self.may_elevate() {
            return Ok(NOT_THE_OWNER.to_owned());
        }
        if (dials.verbose.is_some() || dials.reasoning.is_some()) && !self.may_look() {
            return Ok(NOT_A_MEMBER.to_owned());
        }
        if let Some(why) = self.cannot_think(dials.thinking).await? {
            return Ok(why);
        }
        self.settings.turn(dials);
        self.worker.sessions.set_settings(&self.hold.claim, &self.settings).await?;
        let said = [
            dials.thinking.map(|_| Dial::Think),
            dials.verbose.map(|_| Dial::Verbose),
            dials.reasoning.map(|_| Dial::Reasoning),
            dials.elevated.map(|_| Dial::Elevated),
        ];
        let lines: Vec<String> =
            said.into_iter().flatten().map(|dial| self.show_dial(dial)).collect();
        Ok(lines.join("\n"))
    }

    /// One setting of the conversation as text.
    pub(crate) fn show_dial(&self, dial: Dial) -> String {
        let dials = self.settings.dials();
        match dial {
            Dial::Think => format!("Thinking: {}", dials.thinking.unwrap_or_default().as_str()),
            Dial::Verbose => format!("Verbose: {}", dials.verbose.unwrap_or_default()),
            Dial::Reasoning => format!("Reasoning: {}", dials.reasoning.unwrap_or_default()),
            Dial::Elevated => format!("Elevated: {}", dials.elevated.unwrap_or_default()),
        }
    }
}

const fn is_shared(kind: SessionKind) -> bool {
    match kind {
        SessionKind::Group | SessionKind::Topic | SessionKind::Global => true,
        SessionKind::Main
        | SessionKind::Dm
        | SessionKind::Subagent
        | SessionKind::Cron
        | SessionKind::Heartbeat
        | SessionKind::Work
        | SessionKind::Api => false,
    }
}
