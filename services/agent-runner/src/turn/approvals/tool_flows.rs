//! Table of tools: the text from outside that each brings into a conversation, and what its calls carry
//! out of it.
//!
//! The table is the only list of tools by which text from outside is recognised ([`Source`]) and by which
//! calls after such text are judged ([`Sink`]). A test fails if the runner registers a tool that is not
//! in it. Tools of MCP servers are no rows: their results are fenced, and their sink is
//! [`Sink::Server`].

use holdfast_tools::Registry;

/// Whether the result of a tool brings text from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Only the agent's own words, names and numbers.
    Own,
    /// Texts from outside are fenced by `holdfast_tools::untrusted`.
    Fenced,
    /// As [`Fenced`](Self::Fenced), and the text is the web's: addresses in it were chosen by others.
    Web,
    /// Any result may have text from outside.
    Always,
    /// The tool notes whether what it read is marked: `ToolContext::note_outside_text`.
    Noted,
    /// Descriptions by MCP servers are recognised by the names of their tools.
    Described,
}

/// Place that the input of a call reaches, and the judgement of the call after text from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sink {
    /// Nothing that outlives the call.
    Nothing,
    /// The conversation itself: the input is shown, or sent with the answer.
    OwnConversation,
    /// A record with the mark. The conversation that reads it is marked.
    KeepsMark,
    /// May change instructions: `outside_text::changes_instructions` decides.
    Instructions,
    /// The tool itself decides, with and without such text.
    OwnRules,
    /// A payment is asked about.
    Payment,
    /// Goes to a provider that the tenant or the operator has chosen.
    Provider,
    /// As [`Provider`](Self::Provider), and asked about if the call makes something that costs money.
    Paid,
    /// Asked about if it is for another chat.
    Chat,
    /// Asked about if another conversation is to answer on its channel; else the message keeps the
    /// mark.
    Session,
    /// Asked about if it changes something at a connected service.
    Service,
    /// Asked about if the address was not given to the conversation.
    Address,
    /// As [`Address`](Self::Address) if the call names one; the tool names the site of actions.
    Browser,
    /// A tool of an MCP server, which names its destination.
    Server,
}

impl Sink {
    /// Whether the input goes to somebody else, without a person who sees it.
    const fn sends_input(self) -> bool {
        match self {
            Self::Provider
            | Self::Paid
            | Self::Service
            | Self::Address
            | Self::Browser
            | Self::Server => true,
            Self::Nothing
            | Self::OwnConversation
            | Self::KeepsMark
            | Self::Instructions
            | Self::OwnRules
            | Self::Payment
            | Self::Chat
            | Self::Session => false,
        }
    }
}

type Flow = (&'static str, Source, Sink);

/// All built-in tools, by name.
const FLOWS: [Flow; 52] = [
    ("agents_list", Source::Own, Sink::Nothing),
    ("append_file", Source::Own, Sink::Instructions),
    ("apply_patch", Source::Own, Sink::Instructions),
    // A picture of a page is not fenced.
    ("browser", Source::Always, Sink::Browser),
    ("calendar", Source::Fenced, Sink::Service),
    ("canvas", Source::Own, Sink::OwnConversation),
    ("chain_run", Source::Own, Sink::KeepsMark),
    ("cron", Source::Own, Sink::Instructions),
    ("delete_file", Source::Own, Sink::Instructions),
    ("edit", Source::Own, Sink::Instructions),
    ("email", Source::Own, Sink::OwnRules),
    ("exec", Source::Always, Sink::OwnRules),
    ("find_skills", Source::Fenced, Sink::Provider),
    ("gateway", Source::Always, Sink::Nothing),
    ("image", Source::Fenced, Sink::Paid),
    ("install_skill", Source::Own, Sink::Instructions),
    ("kb_get", Source::Fenced, Sink::Nothing),
    ("kb_ingest", Source::Own, Sink::KeepsMark),
    ("kb_search", Source::Fenced, Sink::Nothing),
    ("kb_update", Source::Own, Sink::KeepsMark),
    ("list_files", Source::Own, Sink::Nothing),
    ("memory_forget", Source::Own, Sink::KeepsMark),
    ("memory_get", Source::Fenced, Sink::Nothing),
    ("memory_save", Source::Own, Sink::KeepsMark),
    ("memory_search", Source::Fenced, Sink::Nothing),
    ("memory_set", Source::Own, Sink::KeepsMark),
    ("memory_values", Source::Fenced, Sink::Nothing),
    ("message", Source::Own, Sink::Chat),
    ("nodes", Source::Fenced, Sink::OwnRules),
    ("notion", Source::Fenced, Sink::Service),
    ("process", Source::Always, Sink::OwnRules),
    ("read", Source::Noted, Sink::Nothing),
    ("scheduler_add", Source::Own, Sink::Instructions),
    ("scheduler_cancel", Source::Own, Sink::Nothing),
    ("scheduler_list", Source::Noted, Sink::Nothing),
    ("self", Source::Noted, Sink::Instructions),
    ("send_file", Source::Own, Sink::OwnConversation),
    ("session_status", Source::Own, Sink::Nothing),
    ("sessions_history", Source::Always, Sink::Nothing),
    ("sessions_list", Source::Own, Sink::Nothing),
    ("sessions_merge", Source::Fenced, Sink::OwnRules),
    ("sessions_send", Source::Own, Sink::Session),
    ("sessions_spawn", Source::Fenced, Sink::KeepsMark),
    ("subagents", Source::Own, Sink::Nothing),
    ("todo", Source::Noted, Sink::KeepsMark),
    ("tool_describe", Source::Described, Sink::Nothing),
    ("tool_search", Source::Described, Sink::Nothing),
    ("tts", Source::Own, Sink::Paid),
    ("wallet", Source::Own, Sink::Payment),
    ("web_fetch", Source::Web, Sink::Address),
    ("web_search", Source::Web, Sink::Provider),
    ("write", Source::Own, Sink::Instructions),
];

fn find(tool: &str) -> Option<Flow> {
    let at = FLOWS.binary_search_by_key(&tool, |(name, ..)| *name).ok()?;
    FLOWS.get(at).copied()
}

/// Source of a tool, by its canonical name. Fenced text marks the result of any tool.
pub(super) fn source_of(tool: &str) -> Source {
    find(tool).map_or(Source::Fenced, |(_, source, _)| source)
}

/// Sink of a tool, by its canonical name.
pub(super) fn sink_of(registry: &Registry, tool: &str) -> Sink {
    if registry.is_brought(tool) {
        return Sink::Server;
    }
    find(tool).map_or(Sink::Nothing, |(_, _, sink)| sink)
}

/// Whether a call sends its input to somebody else, so that it must have no secret.
pub(super) fn sends_input(registry: &Registry, tool: &str) -> bool {
    sink_of(registry, tool).sends_input()
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    use serde_json::json;

    use super::*;
    use crate::{App, Config, turn::approvals::outside_text};

    #[test]
    fn rows_are_in_order_so_that_they_are_found() {
        assert!(FLOWS.is_sorted_by(|(one, ..), (next, ..)| one < next));
    }

    #[test]
    fn only_tools_whose_calls_are_judged_as_instructions_may_change_them() {
        for (tool, _, sink) in FLOWS {
            let input = json!({ "action": "add", "path": "AGENTS.md", "auto_continue": true });
            let changes = outside_text::changes_instructions(tool, &input);
            assert_eq!(changes, sink == Sink::Instructions, "{tool}");
        }
    }

    /// No backend is reached: they are connected later.
    #[tokio::test]
    async fn every_registered_tool_is_in_the_table() -> anyhow::Result<()> {
        let mut config = Config::default();
        config.secrets.kek = BASE64_STANDARD.encode([7_u8; 32]).into();
        config.mesh.secret = "the secret of a mesh of tests".into();
        config.nats.url = "nats://127.0.0.1:9".into();
        config.runner.listen = "127.0.0.1:0".parse()?;
        config.runner.browser.path = Some("/nowhere/chromium".into());
        config.runner.sandbox.backend = holdfast_sandbox::BackendChoice::None;
        let app = App::connect(config).await?;

        let registered: Vec<String> = app.tools().specs().into_iter().map(|one| one.name).collect();

        // Without a sandbox there are no commands.
        for name in registered.iter().map(String::as_str).chain(["exec", "process"]) {
            assert!(find(name).is_some(), "`{name}` is in no row of `FLOWS`");
        }
        for (name, source, _) in FLOWS {
            let is_here = registered.iter().any(|one| one == name)
                || ["exec", "process"].contains(&name)
                || source == Source::Described;
            assert!(is_here, "`{name}` is no tool");
        }
        Ok(())
    }
}
