//! Reply settings of a turn: directives in its messages, else the conversation's settings (spec
//! UIC-004, decision 0022), else the agent's thinking level (spec AGT-002).
//!
//! | setting | who may change it |
//! |---|---|
//! | think | everybody |
//! | verbose, reasoning | members; in a group only the owner: they show what the agent does internally |
//! | elevated | the owner, never in a group |

use holdfast_types::{
    AnswerOptions, Directive, Directives, Effort, Elevated, Entry, Reasoning, SessionKind,
    Thinking, Verbose,
};

use crate::{
    agents::snapshots::{AgentLookup, AgentSnapshot},
    error::Error,
    turn::{commands, participants, state::TurnState},
};

const MEMBER: &str = "member";

const NOT_A_MEMBER: &str =
    "This is not for guests: whoever owns this assistant can name you in the account's list.";
const NOT_THE_OWNER: &str = "Only the owner of this assistant may set this.";

impl TurnState<'_> {
    /// What the client asks of the model, with the newest message of the turn.
    pub(crate) fn answer_options(&self) -> Option<&AnswerOptions> {
        let newest = self.journal.turn().iter().rev().find_map(|entry| match entry {
            Entry::Heard { body, .. } if !body.silent => Some(body),
            Entry::Heard { .. }
            | Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        newest?.answer_options.as_deref()
    }

    /// Whether the turn answers housekeeping of a front end: without tools, prompt and memory.
    pub(crate) fn is_housekeeping(&self) -> bool {
        self.answer_options().is_some_and(|options| options.is_housekeeping)
    }

    /// Effective settings of the turn.
    pub(crate) fn dials(&self) -> Directives {
        let said = self.journal.turn().iter().filter_map(|entry| match entry {
            Entry::Heard { body, .. } => Some(body.directives()),
            Entry::Thought { .. }
            | Entry::Called { .. }
            | Entry::Returned { .. }
            | Entry::Noted { .. } => None,
        });
        // The last directive wins.
        said.fold(self.settings.directives(), |before, said| said.or(before))
    }

    /// Thinking level with the model of this snapshot.
    pub(crate) fn thinking_level(&self, snapshot: &AgentSnapshot) -> Thinking {
        let asked = self
            .answer_options()
            .and_then(|options| options.effort.map(Effort::thinking).or(options.thinking));
        let set = asked.or(self.dials().thinking);
        set.unwrap_or_else(|| snapshot.default_thinking())
    }

    /// Whether tool calls are shown; off for people who may not see them.
    pub(crate) fn effective_verbose(&self) -> Verbose {
        let wanted = self.dials().verbose.unwrap_or_default();
        if self.may_see_internals() { wanted } else { Verbose::Off }
    }

    /// Whether reasoning is shown; off for people who may not see it.
    pub(crate) fn effective_reasoning(&self) -> Reasoning {
        let is_asked = self.answer_options().is_some_and(|options| options.shows_thinking);
        let wanted = match self.dials().reasoning.unwrap_or_default() {
            Reasoning::Off if is_asked => Reasoning::Stream,
            reasoning => reasoning,
        };
        if self.may_see_internals() { wanted } else { Reasoning::Off }
    }

    /// Handling of commands that need an approval.
    pub(crate) fn effective_elevated(&self) -> Elevated {
        match self.dials().elevated.unwrap_or_default() {
            Elevated::Off => Elevated::Off,
            Elevated::On | Elevated::Ask => Elevated::Ask,
            // `full` counts only if the owner alone speaks in the turn.
            Elevated::Full if self.may_elevate() => Elevated::Full,
            Elevated::Full => Elevated::Ask,
        }
    }

    fn may_see_internals(&self) -> bool {
        let who = self.participants();
        match is_shared(self.kind) {
            true => who.is_owner(),
            false => who.roles.is_empty() || who.roles.iter().any(|role| role == MEMBER),
        }
    }

    fn may_elevate(&self) -> bool {
        !is_shared(self.kind) && self.participants().is_owner()
    }
}

/// Changes the conversation's settings and returns them as text.
pub(crate) async fn set_dials(
    turn: &mut TurnState<'_>,
    dials: Directives,
) -> Result<String, Error> {
    participants::load_policy(turn).await?;
    if dials.elevated.is_some() && !turn.may_elevate() {
        return Ok(NOT_THE_OWNER.to_owned());
    }
    if (dials.verbose.is_some() || dials.reasoning.is_some()) && !turn.may_see_internals() {
        return Ok(NOT_A_MEMBER.to_owned());
    }
    if let Some(why) = commands::unsupported_thinking(turn, dials.thinking).await? {
        return Ok(why);
    }
    turn.settings.set_directives(dials);
    turn.worker.sessions.settings().set(&turn.lease.claim, &turn.settings).await?;
    let said = [
        dials.thinking.map(|_| Directive::Think),
        dials.verbose.map(|_| Directive::Verbose),
        dials.reasoning.map(|_| Directive::Reasoning),
        dials.elevated.map(|_| Directive::Elevated),
    ];
    let said: Vec<Directive> = said.into_iter().flatten().collect();
    show_dials(turn, &said).await
}

/// Settings of the conversation as text, each on a line.
pub(crate) async fn show_dials(turn: &TurnState<'_>, dials: &[Directive]) -> Result<String, Error> {
    let mut lines = Vec::new();
    for dial in dials {
        lines.push(show_dial(turn, *dial).await?);
    }
    Ok(lines.join("\n"))
}

async fn show_dial(turn: &TurnState<'_>, dial: Directive) -> Result<String, Error> {
    let dials = turn.settings.directives();
    Ok(match dial {
        Directive::Think => match dials.thinking {
            Some(level) => format!("Thinking: {}", level.as_str()),
            None => match default_thinking(turn).await? {
                Thinking::Off => "Thinking: off".to_owned(),
                level => format!("Thinking: {} (the assistant's)", level.as_str()),
            },
        },
        Directive::Verbose => format!("Verbose: {}", dials.verbose.unwrap_or_default()),
        Directive::Reasoning => format!("Reasoning: {}", dials.reasoning.unwrap_or_default()),
        Directive::Elevated => format!("Elevated: {}", dials.elevated.unwrap_or_default()),
    })
}

/// Thinking level of the conversation's agent with the conversation's model.
async fn default_thinking(turn: &TurnState<'_>) -> Result<Thinking, Error> {
    let (tenant, model) = (turn.lease.claim.tenant, turn.settings.model.clone());
    Ok(match turn.worker.agents.find(tenant, turn.agent, model).await? {
        AgentLookup::Ready(snapshot) => snapshot.default_thinking(),
        AgentLookup::NoAgent | AgentLookup::NoModel(_) => Thinking::Off,
    })
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
