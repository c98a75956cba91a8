//! Request to the model: its tools, and a prompt made of the agent's snapshot, the conversation and
//! the runner.

pub(crate) mod question;

use std::{env, sync::Arc};

use holdfast_agent::{
    PromptInput, build_on,
    file_view::FileSpace,
    prompt::{
        Channel, FileAccess, MEMORY_LIMIT, ModelAlias, Product, PromptSettings, Runtime, Sandbox,
        TurnContext,
    },
    recently_used_tools,
    subagent::SubagentTask,
};
use holdfast_directory::channel;
use holdfast_llm::{ModelCard, Request, ThinkingForm};
use holdfast_types::{Chat, Reactions, Reasoning, Thinking, ToolSpec};
use tokio::time::Instant;

use crate::{
    agents::snapshots::AgentSnapshot,
    turn::{
        calls,
        client_options::{answer_format, client_tools},
        skills::invocation::{self, InvokedSkill},
        state::TurnState,
        think::is_tool_lookup,
        time_zone,
    },
};

/// The agent's files, as its tools name the folder.
const WORKSPACE_PATH: &str = "/workspace";

/// Tools for which the prompt says whose files there are.
const FILE_TOOLS: [&str; 3] = ["read", "write", "exec"];

/// Aliases of models that a prompt lists.
const MAX_ALIASES: usize = 40;

/// Tools that the model is shown, and names of further ones that it may search for.
struct OfferedTools {
    tools: Vec<ToolSpec>,
    more: Vec<String>,
}

impl OfferedTools {
    fn new(turn: &TurnState<'_>, snapshot: &AgentSnapshot, with_tools: bool) -> Self {
        if !with_tools {
            return Self { tools: Vec::new(), more: Vec::new() };
        }
        let (registry, allowed) = (turn.tools.registry(), calls::allowed_tools(turn, snapshot));
        // Tools that somebody named explicitly are all shown; otherwise the model sees a selection.
        let named = snapshot.tools.as_ref().or(snapshot.context.include_tools.as_ref());
        let named = named.or(turn.given_tools()).or(turn.routed_tools());
        let (mut tools, more) = match named {
            Some(_) => (registry.specs(), Vec::new()),
            None => {
                let used = recently_used_tools(turn.journal.entries());
                let used: Vec<&str> = used.iter().map(String::as_str).collect();
                let offer = registry.offered(&allowed, &used);
                (offer.tools, offer.searchable)
            }
        };
        tools.retain(|tool| is_tool_lookup(&tool.name) || allowed.allows(&tool.name));
        Self { tools, more }
    }

    fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name) || self.more.iter().any(|tool| tool == name)
    }
}

pub(crate) fn model_request(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    with_tools: bool,
) -> Request {
    let offered = OfferedTools::new(turn, snapshot, with_tools);
    let place = turn.conversation_target();
    let actions = place.as_ref().map_or(&[][..], |place| snapshot.tenant.actions_at(place));
    let (now, zone) = time_zone::local_time(turn, snapshot);
    let thinking = turn.thinking_level(snapshot);
    let marks = snapshot.card.thinking.by == ThinkingForm::Marks && thinking != Thinking::Off;
    let skills = invocation::prompt_skills(snapshot, (&offered.tools, &offered.more));
    let owners = turn.policy.owners().collect::<Vec<_>>().join(", ");
    let commands = product_commands(&snapshot.tenant.product);
    let aliases = model_aliases(snapshot);
    let worker = turn.worker;
    let sandbox = worker.sandbox.as_ref().filter(|_| offered.has("exec"));
    let setting = PromptSettings {
        mode: snapshot.prompt_mode(turn.kind),
        instructions: &snapshot.instructions,
        product: product(&snapshot.tenant.product, &commands),
        owner: Some(&*owners).filter(|owners| !owners.is_empty()),
        zone: &zone,
        tools: &offered.tools,
        more_tools: &offered.more,
        tool_call_style: worker.config.prompt.tool_call_style.as_deref(),
        skills: &skills,
        files: &snapshot.files,
        memory: Some(snapshot.has_memory(turn.kind)),
        workspace: Some(WORKSPACE_PATH),
        file_access: file_access(turn, snapshot, &offered),
        sandbox: sandbox
            .map(|one| Sandbox { container: one.container, restrictions: &one.restrictions }),
        speaks: snapshot.speaks && actions.contains(&"media") && offered.has("tts"),
        is_hosted: worker.config.sandbox.hosted,
        aliases: &aliases,
        heartbeat_prompt: snapshot.heartbeat_prompt.as_deref(),
        marks_reasoning: marks,
        ..PromptSettings::of(snapshot.name.as_str(), turn.kind, turn.access(snapshot).audience)
    };
    let channel = place.as_ref().map(|place| Channel {
        name: &place.channel,
        actions,
        capabilities: channel::capabilities(&place.channel),
    });
    let can_react = actions.contains(&"react") && offered.has("message");
    let model = snapshot.model_id.to_string();
    let requester = turn.task.as_ref().map(|task| task.parent.to_string());
    let notes = snapshot.notes.of_last_days(turn.local_date(snapshot));
    let recommended = turn.recommended.as_deref().unwrap_or_default();
    let recommended: Vec<&str> = recommended.iter().map(String::as_str).collect();
    let moment = TurnContext {
        language: turn.preferences.language.as_deref(),
        channel,
        reactions: if can_react { snapshot.reactions } else { Reactions::Off },
        runtime: snapshot.includes_runtime().then(|| runtime(turn, thinking, &model)),
        task: turn.task.as_ref().map(|task| SubagentTask {
            task: Some(&task.task),
            label: Some(&task.label),
            requester: requester.as_deref(),
            session: &turn.key,
        }),
        called: turn.invoked_skill.as_ref().map(InvokedSkill::for_prompt),
        skills: &recommended,
        routed: turn.routing_choice.as_ref().map(|choice| choice.prompt.as_str()),
        pictures: &turn.pictures,
        memories: &turn.prefetch.memories,
        notes: &notes,
        memory_limit: MEMORY_LIMIT.min(turn.context_tokens / 10),
        ..TurnContext::at(&now)
    };
    let stable = worker.prompts.stable_part(snapshot.version, &setting);
    let (journal, context_limit) = (turn.journal.entries(), turn.context_tokens);
    let chat = build_on(stable, PromptInput { setting, moment, journal, context_limit });
    request_with_options(turn, snapshot, chat, with_tools)
}

/// Adds what the client asks of the model for this message.
fn request_with_options(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    mut chat: Chat,
    with_tools: bool,
) -> Request {
    let worker = turn.worker;
    let options = turn.answer_options();
    if with_tools {
        client_tools::offer(options, &mut chat.tools);
    }
    if let Some(format) = options.and_then(|options| options.format.as_ref()) {
        chat.dynamic.push_str(&answer_format::instructions(format));
    }
    let deadline = (Instant::now() + worker.config.model_timeout).min(turn.deadline);
    Request {
        cache_key: options
            .and_then(|options| options.cache_key.clone())
            .or_else(|| Some(snapshot.agent.to_string())),
        card: Some(Arc::clone(&snapshot.card)),
        thinking: turn.thinking_level(snapshot),
        max_output: options
            .and_then(|options| options.max_output)
            .map(|asked| output_limit(asked, &snapshot.card)),
        options: options.cloned().map(Box::new),
        shows_thinking: turn.effective_reasoning() != Reasoning::Off || turn.sends_thinking(),
        failures: turn.failures.clone(),
        ..Request::new(snapshot.model_id.clone(), chat, deadline)
    }
}

/// Output limit that a client asks for, lowered to what the model is known to write: some clients ask
/// for as much as any model writes, and providers refuse that. The limit of a model that is not in the
/// catalogue is a guess.
fn output_limit(asked: u32, card: &ModelCard) -> u32 {
    if *card == ModelCard::default() { asked } else { asked.min(card.max_output) }
}

/// Files that the offered tools reach; `None` without tools for files.
fn file_access(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    offered: &OfferedTools,
) -> Option<FileAccess> {
    let has_file_tools = FILE_TOOLS.iter().any(|tool| offered.has(tool));
    has_file_tools.then(|| match turn.access(snapshot).files {
        FileSpace::Whole => FileAccess::Whole,
        FileSpace::Folder(_) => FileAccess::Own,
    })
}

fn runtime<'a>(turn: &TurnState<'_>, thinking: Thinking, model: &'a str) -> Runtime<'a> {
    Runtime {
        host: "runner",
        os: env::consts::OS,
        arch: env::consts::ARCH,
        version: env!("CARGO_PKG_VERSION"),
        model,
        thinking: thinking.as_str(),
        elevated: turn.dials().elevated.map(|_| turn.effective_elevated().as_str()),
    }
}

/// The tenant's product; what it does not set is Holdfast's.
fn product<'a>(
    own: &'a holdfast_directory::Product,
    commands: &'a [(&'a str, &'a str)],
) -> Product<'a> {
    let is_own = !own.name.is_empty();
    Product {
        name: if is_own { &own.name } else { Product::HOLDFAST.name },
        docs: Some(&*own.docs_url).filter(|docs| !docs.is_empty()),
        commands: if is_own || !commands.is_empty() {
            commands
        } else {
            Product::HOLDFAST.commands
        },
    }
}

fn product_commands(own: &holdfast_directory::Product) -> Vec<(&str, &str)> {
    own.commands.iter().map(|one| (one.command.as_str(), one.description.as_str())).collect()
}

fn model_aliases(snapshot: &AgentSnapshot) -> Vec<ModelAlias<'_>> {
    let aliases = snapshot.tenant.aliases.iter().take(MAX_ALIASES);
    aliases.map(|(alias, model)| ModelAlias { alias, model }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_what_the_model_writes_is_lowered_if_that_is_known() {
        let known = ModelCard { context: 128_000, max_output: 16_384, ..ModelCard::default() };

        assert_eq!(output_limit(64_000, &known), 16_384);
        assert_eq!(output_limit(100, &known), 100);
        assert_eq!(output_limit(64_000, &ModelCard::default()), 64_000);
    }
}
