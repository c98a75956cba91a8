//! System prompt of a model.
//!
//! Providers cache a request's beginning, so the prompt has two parts: the stable part is
//! byte-identical while the agent's files, tools and settings are; everything that changes from
//! turn to turn is in the dynamic part. Each part has the sections in the order of the reference's
//! numbered list (spec SYS-027, C-54):
//!
//! | | section | part | condition |
//! |---|---|---|---|
//! | 1 | identity | stable | always |
//! | | Instructions, Safety | stable | not none |
//! | 2 | Tooling | stable | tools |
//! | 3 | Tool Call Style | stable | not none |
//! | 4 | CLI Quick Reference | stable | commands |
//! | 5 | Skills (mandatory) | stable; those for this message, or that it calls, dynamic | full, skills |
//! | 6 | Memory Recall | stable; memories for this message dynamic | full, a tool of memory or notes |
//! | 7 | User Identity | stable | full, owner |
//! | 8 | Current Date & Time | stable: the zone; dynamic: the clock | not none |
//! | 9 | Workspace | stable | not none |
//! | 10 | Documentation | stable | full, an address |
//! | 11 | Sandbox | stable | sandbox |
//! | 12 | Workspace Files (injected) | stable | not none |
//! | 13 | Reply Tags | dynamic | full, the channel can |
//! | 14 | Messaging | dynamic | full |
//! | 15 | Voice (TTS) | stable | full, answers can be spoken |
//! | 16 | Self-Update | stable | full, the tool `gateway`, not hosted |
//! | 17 | Model Aliases | stable | full, aliases |
//! | 18 | Project Context | stable | files |
//! | 19 | Silent Replies | stable | full |
//! | 20 | Heartbeats | stable | full |
//! | 21 | Runtime | dynamic | a runtime |
//! | 22 | Reactions | dynamic | a level |
//! | 23 | Reasoning Format | stable | the model marks its reasoning |
//! | | For This Message | dynamic | a model chose the agent |
//! | | Subagent or Group Chat Context | dynamic | subagent; group, topic |
//! | | Instructions for this conversation | dynamic | a program gave some |
//!
//! The `Lite` prompt has identity, Instructions, Safety, the clock and the contexts, and memory and
//! runtime if enabled. The `Simple` prompt has the same without identity, and memory unless
//! disabled. Untrusted texts are written so that they cannot pass for the prompt
//! (`write`).

use holdfast_types::{Chat, Entry};

use crate::{bootstrap::MAX_FILE_CHARS, history::history, tokens::tokens};

mod files;
mod identity;
mod input;
mod memory_hits;
mod replies;
mod stable_part;
mod time_and_runtime;
mod tools;
mod write;

pub use input::{
    CalledSkill, Channel, DailyNote, FileAccess, MEMORY_LIMIT, ModelAlias, Product, PromptInput,
    PromptMode, PromptSettings, REPLY_TAGS, RecalledMemory, Runtime, Sandbox, Skill, TurnContext,
};
pub use replies::{HEARTBEAT_OK, HEARTBEAT_PROMPT};
pub use stable_part::StablePart;

/// Separator before the summary, which is the last part of the instructions.
const SEPARATOR: &str = "\n\n---\n\n";

/// Default size limit of a prompt, in tokens.
pub const CONTEXT_LIMIT: usize = 100_000;

/// Writes a section of the stable part, if its condition holds.
type StableSection = fn(&mut String, &PromptSettings<'_>);

/// Writes a section of the dynamic part, if its condition holds.
type DynamicSection = fn(&mut String, &PromptSettings<'_>, &TurnContext<'_>);

/// Stable sections among 1 to 20 and 23.
const STABLE_SECTIONS: [StableSection; 21] = [
    identity::identity,
    identity::instructions,
    identity::safety,
    tools::tooling,
    tools::call_style,
    tools::quick_reference,
    tools::skills,
    files::memory,
    identity::user_identity,
    time_and_runtime::zone,
    files::workspace,
    identity::documentation,
    files::sandbox,
    files::injected_files,
    replies::voice,
    identity::self_update,
    identity::aliases,
    files::project_context,
    replies::silence,
    replies::heartbeats,
    replies::reasoning,
];

/// Stable sections of the lite prompt; memory only if enabled.
const LITE_STABLE_SECTIONS: [StableSection; 4] =
    [identity::identity, identity::instructions, identity::safety, files::memory];

/// Stable sections of the simple prompt; memory unless disabled.
const SIMPLE_STABLE_SECTIONS: [StableSection; 3] =
    [identity::instructions, identity::safety, files::memory];

/// Stable section of the prompt with mode `None`.
const NONE_STABLE_SECTIONS: [StableSection; 1] = [identity::identity];

/// Dynamic sections among 5 to 22, and those without a number.
const DYNAMIC_SECTIONS: [DynamicSection; 9] = [
    time_and_runtime::recommended,
    memory_hits::write_memories,
    time_and_runtime::clock,
    replies::reply_tags,
    replies::messaging,
    time_and_runtime::runtime,
    replies::reactions,
    time_and_runtime::routing_note,
    time_and_runtime::context,
];

/// Dynamic sections of the lite and the simple prompt; the runtime only if given.
const LITE_DYNAMIC_SECTIONS: [DynamicSection; 6] = [
    time_and_runtime::recommended,
    memory_hits::write_memories,
    time_and_runtime::clock,
    time_and_runtime::runtime,
    time_and_runtime::routing_note,
    time_and_runtime::context,
];

/// Builds the request to a model, with a stable part that [`StablePart::of`] made of the same
/// setting.
#[must_use]
pub fn build_on(stable: StablePart, input: PromptInput<'_>) -> Chat {
    let PromptInput { setting, moment, journal, context_limit } = input;
    let mut dynamic = dynamic(&setting, &moment, journal);
    let used = stable.tokens + tokens(&dynamic);
    let history =
        history(journal, setting.kind, moment.pictures, context_limit.saturating_sub(used));
    if let Some(summary) = history.summary {
        dynamic.push_str(SEPARATOR);
        dynamic.push_str(&summary);
    }
    if history.left_out > 0 {
        dynamic.push_str("\nThe beginning of this conversation is left out: it is too long.\n");
    }
    // Provider caches compare the tools too, so their order must not depend on their source.
    let mut tools = setting.tools.to_vec();
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    Chat { stable: stable.text, dynamic, messages: history.messages, tools }
}

/// Returns the stable part: a pure function of the setting.
#[must_use]
pub fn stable(setting: &PromptSettings<'_>) -> String {
    let sections: &[StableSection] = match setting.mode {
        PromptMode::Full | PromptMode::Minimal => &STABLE_SECTIONS,
        PromptMode::Lite => &LITE_STABLE_SECTIONS,
        PromptMode::Simple => &SIMPLE_STABLE_SECTIONS,
        PromptMode::None => &NONE_STABLE_SECTIONS,
    };
    let files = setting.files.iter().filter_map(|file| setting.text_of(file.name));
    let documents: usize = files.map(|text| text.len().min(MAX_FILE_CHARS)).sum();
    let lines = 128 * (setting.tools.len() + setting.skills.len());
    let room = 128 * sections.len() + setting.instructions.len() + documents + lines;
    let mut out = String::with_capacity(room);
    for section in sections {
        section(&mut out, setting);
    }
    out
}

/// Returns the dynamic part. It includes a program's instructions for the conversation in every
/// mode.
#[must_use]
pub fn dynamic(
    setting: &PromptSettings<'_>,
    moment: &TurnContext<'_>,
    journal: &[Entry],
) -> String {
    let sections: &[DynamicSection] = match setting.mode {
        PromptMode::Full | PromptMode::Minimal => &DYNAMIC_SECTIONS,
        PromptMode::Lite | PromptMode::Simple => &LITE_DYNAMIC_SECTIONS,
        PromptMode::None => &[],
    };
    let mut out = String::with_capacity(256 * sections.len());
    for section in sections {
        section(&mut out, setting, moment);
    }
    time_and_runtime::program_instructions(&mut out, journal);
    out
}

#[cfg(test)]
mod tests;
