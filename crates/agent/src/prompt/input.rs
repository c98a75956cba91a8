//! All that a prompt is made of, in two halves.
//!
//! A [`Setting`] holds while the agent's documents, tools and settings do; a
//! [`Moment`] is this turn's. The stable part of a prompt is made of the
//! setting alone, so no moment can change a byte of it.

use holdfast_types::{Entry, SessionKind, ToolSpec};

use crate::{
    bootstrap::{Audience, BootstrapFile, BootstrapName, is_shown},
    history::Picture,
    subagent::SubagentTask,
};

/// The capability of a channel whose messages may have buttons.
pub const INLINE_BUTTONS: &str = "inlineButtons";

/// The capability of a channel on which a reply may quote a message, by a tag in its text.
pub const REPLY_TAGS: &str = "replyTags";

/// How much of the prompt there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PromptMode {
    /// All sections.
    #[default]
    Full,
    /// Those that a subagent needs.
    Minimal,
    /// Who it is and whom it believes, the time and which session this is: the least that an
    /// agent can work with (spec CTX-001). Its tools are on offer and not described.
    Lite,
    /// The line that says what it is, and nothing else.
    None,
}

impl PromptMode {
    /// The mode of a kind of session where nothing else is said: minimal for subagents.
    #[must_use]
    pub const fn of(kind: SessionKind) -> Self {
        match kind {
            SessionKind::Subagent => Self::Minimal,
            SessionKind::Main
            | SessionKind::Dm
            | SessionKind::Group
            | SessionKind::Topic
            | SessionKind::Cron
            | SessionKind::Heartbeat
            | SessionKind::Work
            | SessionKind::Api
            | SessionKind::Global => Self::Full,
        }
    }
}

/// All that [`build`](super::build) needs.
#[derive(Debug, Clone, Copy)]
pub struct PromptInput<'a> {
    /// What holds for longer than a turn.
    pub setting: Setting<'a>,
    /// What is this turn's.
    pub moment: Moment<'a>,
    /// The session's journal.
    pub journal: &'a [Entry],
    /// How many tokens all of it may be; [`CONTEXT_LIMIT`](crate::CONTEXT_LIMIT) if nothing else
    /// is known.
    pub context_limit: usize,
}

/// What the stable part is made of.
///
/// Made by [`Setting::of`], which asks for what decides who reads what; the
/// rest begins empty.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// How much of the prompt there is.
    pub mode: PromptMode,
    /// What kind of conversation it is.
    pub kind: SessionKind,
    /// Who reads what is said.
    pub audience: Audience,
    /// The agent's name; the file `IDENTITY.md` may give it another.
    pub agent_name: &'a str,
    /// What its owner tells it to be and to do.
    pub instructions: &'a str,
    /// What it runs in.
    pub product: Product<'a>,
    /// Who its owner is, by the id that messages carry.
    pub owner: Option<&'a str>,
    /// The time zone's name.
    pub zone: &'a str,
    /// The tools on offer; none in a step that must do without.
    pub tools: &'a [ToolSpec],
    /// The names of the tools that it has besides, and may look up.
    pub more_tools: &'a [String],
    /// What it is told of how to speak of its calls, in place of the usual.
    pub tool_call_style: Option<&'a str>,
    /// The skills that it may read.
    pub skills: &'a [Skill<'a>],
    /// The files of its workspace, as far as it has one; those that the session may not see are
    /// not shown.
    pub files: &'a [BootstrapFile],
    /// Whether what it remembers is part of the prompt (spec CTX-002, `IncludeMemory`); if
    /// nothing is said, it is in the full one.
    pub memory: Option<bool>,
    /// Where its files are, as its tools name the place: never a path of the host.
    pub workspace: Option<&'a str>,
    /// The sandbox that its tools run in.
    pub sandbox: Option<Sandbox<'a>>,
    /// How to write what will be spoken aloud.
    pub voice: Option<&'a str>,
    /// Short names of models.
    pub aliases: &'a [ModelAlias<'a>],
    /// What a heartbeat asks; [`HEARTBEAT_PROMPT`](super::HEARTBEAT_PROMPT) if nothing is said.
    pub heartbeat_prompt: Option<&'a str>,
    /// Whether its model reasons in its text and must mark what is its answer.
    pub marks_reasoning: bool,
}

impl<'a> Setting<'a> {
    /// An agent of this name in a session of this kind, and nothing else yet.
    #[must_use]
    pub const fn of(agent_name: &'a str, kind: SessionKind, audience: Audience) -> Self {
        Self {
            mode: PromptMode::of(kind),
            kind,
            audience,
            agent_name,
            instructions: "",
            product: Product::HOLDFAST,
            owner: None,
            zone: "UTC",
            tools: &[],
            more_tools: &[],
            tool_call_style: None,
            skills: &[],
            files: &[],
            memory: None,
            workspace: None,
            sandbox: None,
            voice: None,
            aliases: &[],
            heartbeat_prompt: None,
            marks_reasoning: false,
        }
    }

    pub(super) const fn is_full(&self) -> bool {
        matches!(self.mode, PromptMode::Full)
    }

    pub(super) fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
            || self.more_tools.iter().any(|tool| tool == name)
    }

    /// A file, if it was given and both its mode and its session let the prompt show it.
    pub(super) fn file(&self, name: BootstrapName) -> Option<&'a BootstrapFile> {
        let found = self.files.iter().find(|file| file.name == name)?;
        let has_place = match self.mode {
            PromptMode::Full | PromptMode::Minimal => true,
            PromptMode::Lite => name == BootstrapName::Memory,
            PromptMode::None => false,
        };
        (has_place && is_shown(self.kind, self.audience, name)).then_some(found)
    }

    /// What is in a file, if there is one, it says anything and the prompt may show it.
    pub(super) fn text_of(&self, name: BootstrapName) -> Option<&'a str> {
        self.file(name).and_then(BootstrapFile::text)
    }
}

/// What the agent runs in: a white label names its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Product<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where its documentation is.
    pub docs: Option<&'a str>,
    /// Commands for people with a terminal, each with what it does.
    pub commands: &'a [(&'a str, &'a str)],
}

impl Product<'_> {
    /// Holdfast, as it is shipped.
    pub const HOLDFAST: Self = Self {
        name: "Holdfast",
        docs: None,
        commands: &[("holdfast chat", "talk to an agent"), ("holdfast --help", "all commands")],
    };
}

/// A skill that the agent may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Skill<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is for; empty tells of it by its name alone.
    pub description: &'a str,
    /// Where its text is, as the `read` tool takes it: `skills/<name>/SKILL.md`.
    pub location: &'a str,
}

/// The sandbox that tools run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Sandbox<'a> {
    /// What it is called: a logical name, never a host's.
    pub container: Option<&'a str>,
    /// What is not possible in it.
    pub restrictions: Option<&'a str>,
    /// What its commands may do with the workspace.
    pub access: Option<WorkspaceAccess>,
}

/// What a sandbox may do with the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkspaceAccess {
    /// Nothing: it is not there.
    None,
    /// Read.
    ReadOnly,
    /// Read and write.
    ReadWrite,
}

/// A short name of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelAlias<'a> {
    /// The short name.
    pub alias: &'a str,
    /// The model's id: `provider:model`.
    pub model: &'a str,
}

/// What the dynamic part is made of, besides the setting.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// Date and time, for the model to read: `Tuesday, 2026-12-01 14:05`.
    pub now: &'a str,
    /// Names of skills that seem to fit what was said last.
    pub skills: &'a [&'a str],
    /// The skill that the last message calls by its name: `/name …`.
    pub called: Option<Called<'a>>,
    /// The channel that the conversation is held on, if it is.
    pub channel: Option<Channel<'a>>,
    /// How freely it may react to messages there, if it may.
    pub reactions: Option<Reactions>,
    /// What runs it; left out of the prompt if nothing is said (spec CTX-002, `IncludeRuntime`).
    pub runtime: Option<Runtime<'a>>,
    /// What a subagent was made for.
    pub task: Option<SubagentTask<'a>>,
    /// What a model has written for this message, where one chose the agent for it; empty is nothing.
    pub routed: Option<&'a str>,
    /// Pictures of the conversation that were loaded, so that the model sees them.
    pub pictures: &'a [Picture],
    /// What is remembered that fits what was said last, best first.
    pub memories: &'a [Remembered],
    /// What the agent noted in the last days, newest first; shown where `MEMORY.md` may be.
    pub notes: &'a [DailyNote],
    /// How many tokens the two may be together (spec MEM-015).
    pub memory_limit: usize,
}

impl<'a> Moment<'a> {
    /// This moment, and nothing else yet.
    #[must_use]
    pub const fn at(now: &'a str) -> Self {
        Self {
            now,
            skills: &[],
            called: None,
            channel: None,
            reactions: None,
            runtime: None,
            task: None,
            routed: None,
            pictures: &[],
            memories: &[],
            notes: &[],
            memory_limit: MEMORY_LIMIT,
        }
    }
}

/// How many tokens memories and notes may be in a prompt where nothing else is said.
pub const MEMORY_LIMIT: usize = 1_500;

/// Something that is remembered of whoever is spoken with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// What it is, in a word: `preference`, `fact`, `note`.
    pub what: String,
    /// When it was said or written, as `2026-12-01`; empty if nobody knows.
    pub when: String,
    /// What it says.
    pub text: String,
}

/// What the agent noted on a day.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DailyNote {
    /// Where it stands: `memory/202612/20261201.md`.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// A skill that somebody called by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Called<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where its text is, as the `read` tool takes it.
    pub location: &'a str,
}

/// The channel that a conversation is held on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel<'a> {
    /// Its kind: `telegram`.
    pub name: &'a str,
    /// What the `message` tool can do there: `send`, `react`, `poll`.
    pub actions: &'a [&'a str],
    /// What it is capable of: [`INLINE_BUTTONS`], [`REPLY_TAGS`] and others.
    pub capabilities: &'a [&'a str],
}

impl Channel<'_> {
    pub(super) fn can(&self, capability: &str) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// How freely an agent reacts to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reactions {
    /// At most once in five to ten exchanges.
    Minimal,
    /// Whenever it seems natural.
    Extensive,
}

/// What runs the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime<'a> {
    /// A logical name of the place, never a machine's.
    pub host: &'a str,
    /// The operating system.
    pub os: &'a str,
    /// The processor's architecture.
    pub arch: &'a str,
    /// The runtime's version.
    pub version: &'a str,
    /// The model's id: `provider:model`.
    pub model: &'a str,
    /// How hard the model thinks: `off`, `low`, `medium`, `high`.
    pub thinking: &'a str,
    /// What becomes of commands that need approval, where somebody said so: `off`, `ask`, `full`
    /// (spec SYS-012).
    pub elevated: Option<&'a str>,
}
