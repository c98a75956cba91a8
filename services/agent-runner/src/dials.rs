//! How a turn is answered: by its messages' directives, else as the conversation is set (spec
//! UIC-004, decision 0022).
//!
//! | dial | whose word counts |
//! |---|---|
//! | think | everybody's |
//! | verbose, reasoning | a member's; in a group its owner's: they show what the agent keeps to itself |
//! | elevated | the owner's, and never in a group |

use holdfast_types::{Dial, Dials, Elevated, Entry, Reasoning, SessionKind, Thinking, Verbose};

use crate::{error::Error, turn::Turn};

const MEMBER: &str = "member";

const NOT_A_MEMBER: &str =
    "This is not for guests: whoever owns this assistant can name you in the account's list.";
const NOT_THE_OWNER: &str = "Only the owner of this assistant may set this.";

impl Turn<'_> {
    /// How the turn's dials stand.
    pub(crate) fn dials(&self) -> Dials {
        let said = self.journal.turn().iter().filter_map(|entry| match entry {
            Entry::Heard { body, .. } => Some(body.dials()),
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        // What was said last counts.
        said.fold(self.settings.dials(), |before, said| said.over(before))
    }

    /// How much its model thinks.
    pub(crate) fn thinking(&self) -> Thinking {
        self.dials().thinking.unwrap_or_default()
    }

    /// Whether its calls are told.
    pub(crate) fn verbose(&self) -> Verbose {
        let wanted = self.dials().verbose.unwrap_or_default();
        if self.may_look() { wanted } else { Verbose::Off }
    }

    /// Whether its thinking is shown.
    pub(crate) fn reasoning(&self) -> Reasoning {
        let wanted = self.dials().reasoning.unwrap_or_default();
        if self.may_look() { wanted } else { Reasoning::Off }
    }

    /// What becomes of commands that need a word.
    pub(crate) fn elevated(&self) -> Elevated {
        match self.dials().elevated.unwrap_or_default() {
            Elevated::Off => Elevated::Off,
            Elevated::On | Elevated::Ask => Elevated::Ask,
            // Whoever else speaks in the turn, and the mesh itself, has given no word.
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

    /// Sets the conversation's dials, and says how they stand.
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

    /// How one dial of the conversation stands.
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
