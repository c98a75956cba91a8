//! Input of a prompt, in two halves.
//!
//! [`PromptSettings`] are constant while the agent's files, tools and settings are; a
//! [`TurnContext`] belongs to one turn. The stable part depends on the settings only, so no turn can
//! change it.

use holdfast_types::{Entry, Reactions, SessionKind, ToolSpec};

use crate::{
    bootstrap::{Audience, BootstrapFile, BootstrapName, is_shown},
    history::Picture,
    subagent::SubagentTask,
};

/// Capability of a channel on which a tag in a reply quotes a message.
pub const REPLY_TAGS: &str = "replyTags";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PromptMode {
    #[default]
    Full,
    /// Sections that a subagent needs.
    Minimal,
    /// Identity, safety, time and session: the least that an agent can work with (spec CTX-001).
    /// The request has its tools, but the prompt does not describe them.
    Lite,
    /// The agent's own instructions, and memories (spec AGT-023).
    Simple,
    /// The identity line only: for programs that bring instructions of their own.
    None,
}

impl PromptMode {
    /// Default mode of a kind of session: minimal for subagents.
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

#[derive(Debug, Clone, Copy)]
pub struct PromptInput<'a> {
    pub setting: PromptSettings<'a>,
    pub moment: TurnContext<'a>,
    pub journal: &'a [Entry],
    /// Size limit in tokens; [`CONTEXT_LIMIT`](crate::CONTEXT_LIMIT) by default.
    pub context_limit: usize,
}

/// Input of the stable part.
///
/// [`PromptSettings::of`] takes the fields that decide who reads what; the others start empty.
#[derive(Debug, Clone, Copy)]
pub struct PromptSettings<'a> {
    pub mode: PromptMode,
    pub kind: SessionKind,
    pub audience: Audience,
    /// May be replaced by the one in `IDENTITY.md`.
    pub agent_name: &'a str,
    pub instructions: &'a str,
    pub product: Product<'a>,
    /// Ids of the agent's owners, such as `telegram:12345`.
    pub owner: Option<&'a str>,
    /// Name of the time zone.
    pub zone: &'a str,
    /// Tools of the request; empty in a step without tools.
    pub tools: &'a [ToolSpec],
    /// Names of further tools that the agent can look up.
    pub more_tools: &'a [String],
    /// Replacement for the text of section 3.
    pub tool_call_style: Option<&'a str>,
    /// Skills that the agent may read.
    pub skills: &'a [Skill<'a>],
    /// Bootstrap files of the workspace. Those that the session may not see are not shown.
    pub files: &'a [BootstrapFile],
    /// Whether memory is part of the prompt (spec CTX-002, `IncludeMemory`); `None` is yes in the
    /// modes full and simple.
    pub memory: Option<bool>,
    /// Working directory as the tools name it, never a path of the host.
    pub workspace: Option<&'a str>,
    /// Files that the tools reach; `None` is not described.
    pub file_access: Option<FileAccess>,
    /// Sandbox of the agent's commands; `None` if it has no commands, or none is isolated.
    pub sandbox: Option<Sandbox<'a>>,
    /// Whether the answer's speech tags are spoken.
    pub speaks: bool,
    /// Whether an operator runs the product for others: then no agent may change it.
    pub is_hosted: bool,
    pub aliases: &'a [ModelAlias<'a>],
    /// `None` is [`HEARTBEAT_PROMPT`](super::HEARTBEAT_PROMPT).
    pub heartbeat_prompt: Option<&'a str>,
    /// Whether the model reasons in its text and must mark its answer.
    pub marks_reasoning: bool,
}

impl<'a> PromptSettings<'a> {
    /// Creates a setting without anything else.
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
            file_access: None,
            sandbox: None,
            speaks: false,
            is_hosted: false,
            aliases: &[],
            heartbeat_prompt: None,
            marks_reasoning: false,
        }
    }

    pub(super) const fn is_full(&self) -> bool {
        matches!(self.mode, PromptMode::Full)
    }

    /// Whether memory is part of the prompt.
    pub(super) fn has_memory(&self) -> bool {
        let is_usual = matches!(self.mode, PromptMode::Full | PromptMode::Simple);
        self.memory.unwrap_or(is_usual)
    }

    pub(super) fn has_tool(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
            || self.more_tools.iter().any(|tool| tool == name)
    }

    /// Returns a file that both the mode and the session let the prompt show.
    pub(super) fn file(&self, name: BootstrapName) -> Option<&'a BootstrapFile> {
        let found = self.files.iter().find(|file| file.name == name)?;
        let has_place = match self.mode {
            PromptMode::Full | PromptMode::Minimal => true,
            PromptMode::Lite | PromptMode::Simple => name == BootstrapName::Memory,
            PromptMode::None => false,
        };
        (has_place && is_shown(self.kind, self.audience, name)).then_some(found)
    }

    /// Returns the text of a file that the prompt may show; `None` if it is empty.
    pub(super) fn text_of(&self, name: BootstrapName) -> Option<&'a str> {
        self.file(name).and_then(BootstrapFile::text)
    }
}

/// Files that the tools of a conversation reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileAccess {
    /// The agent's whole tree.
    Whole,
    /// The folder of one person or group, and what is shared.
    Own,
}

/// Product that the agent runs in; a white label has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Product<'a> {
    pub name: &'a str,
    pub docs: Option<&'a str>,
    /// Commands for people with a terminal, with their descriptions.
    pub commands: &'a [(&'a str, &'a str)],
}

impl Product<'_> {
    pub const HOLDFAST: Self = Self {
        name: "Holdfast",
        docs: None,
        commands: &[("holdfast chat", "talk to an agent"), ("holdfast --help", "all commands")],
    };
}

/// Skill that the agent may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Skill<'a> {
    pub name: &'a str,
    /// If empty, the prompt lists the skill by its name alone.
    pub description: &'a str,
    /// Path for the `read` tool: `skills/<name>/SKILL.md`.
    pub location: &'a str,
}

/// Sandbox of commands. They can read and write the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sandbox<'a> {
    /// Logical name, never a host's.
    pub container: &'a str,
    pub restrictions: &'a str,
}

/// Short name of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModelAlias<'a> {
    pub alias: &'a str,
    /// `provider:model`.
    pub model: &'a str,
}

/// Input of the dynamic part, besides the setting.
#[derive(Debug, Clone, Copy)]
pub struct TurnContext<'a> {
    /// Date and time, for the model to read: `Tuesday, 2026-12-01 14:05`.
    pub now: &'a str,
    /// Language tag that the person has chosen.
    pub language: Option<&'a str>,
    /// Names of the skills recommended for the last message.
    pub skills: &'a [&'a str],
    /// Skill that the last message calls: `/name …`.
    pub called: Option<CalledSkill<'a>>,
    /// Channel of the conversation, if any.
    pub channel: Option<Channel<'a>>,
    /// Off if the channel has no reactions.
    pub reactions: Reactions,
    /// Left out of the prompt if absent (spec CTX-002, `IncludeRuntime`).
    pub runtime: Option<Runtime<'a>>,
    pub task: Option<SubagentTask<'a>>,
    /// Note by the model that chose the agent for this message; empty if it wrote none.
    pub routed: Option<&'a str>,
    /// Images of the conversation that were loaded.
    pub pictures: &'a [Picture],
    /// Memories for the last message, best first.
    pub memories: &'a [RecalledMemory],
    /// Notes of the last days, newest first; shown where `MEMORY.md` may be.
    pub notes: &'a [DailyNote],
    /// Limit for memories and notes together, in tokens (spec MEM-015).
    pub memory_limit: usize,
}

impl<'a> TurnContext<'a> {
    /// Creates a moment without anything else.
    #[must_use]
    pub const fn at(now: &'a str) -> Self {
        Self {
            now,
            language: None,
            skills: &[],
            called: None,
            channel: None,
            reactions: Reactions::Off,
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

/// Default limit for memories and notes together, in tokens.
pub const MEMORY_LIMIT: usize = 1_500;

/// Memory about the person in the conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct RecalledMemory {
    pub what: String,
    /// Date such as `2026-12-01`; empty if unknown.
    pub when: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DailyNote {
    pub path: String,
    pub text: String,
}

/// Skill that the user called by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CalledSkill<'a> {
    pub name: &'a str,
    /// Path for the `read` tool.
    pub location: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel<'a> {
    pub name: &'a str,
    /// Actions of the `message` tool there: `send`, `react`, `poll`.
    pub actions: &'a [&'a str],
    pub capabilities: &'a [&'a str],
}

impl Channel<'_> {
    pub(super) fn can(&self, capability: &str) -> bool {
        self.capabilities.contains(&capability)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime<'a> {
    /// Logical name, never a machine's.
    pub host: &'a str,
    pub os: &'a str,
    pub arch: &'a str,
    pub version: &'a str,
    /// `provider:model`.
    pub model: &'a str,
    /// `off`, `low`, `medium` or `high`.
    pub thinking: &'a str,
    /// Set if the user chose the treatment of commands that need an approval: `off`, `ask`, `full`
    /// (spec SYS-012).
    pub elevated: Option<&'a str>,
}
