//! What a step is shown: what is new, and the memory of the agent and its session.

use holdfast_agent::{
    behavior::{
        Behavior, BehaviorInput, BehaviorSkill, Bucket, BucketKind, Composed, IncludedFile,
        RoleTexts, StepEntries, StepPosition, ToolFilter, compose,
    },
    bootstrap::{BootstrapName, is_shown, trimmed},
    recently_used_tools,
};
use holdfast_types::{BehaviorRole, ChatMessage, Fault as _, SessionKind, ToolSpec, TreePath};
use holdfast_work::TodoCounts;
use tracing::warn;

use super::{effects, handover, run::BehaviorRun, workspace};
use crate::{
    agents::snapshots::AgentSnapshot,
    error::Error,
    turn::{
        calls, context::memory_prefetch, skills::invocation, state::TurnState,
        think::is_tool_lookup, time_zone,
    },
};

/// Budgets of the worklog and the todo list, in tokens; a behaviour's memory may have less.
const WORKLOG_TOKENS: usize = 4_000;
const TODO_TOKENS: usize = 1_600;

/// Told to the first step after a turn was cut off or has yielded.
const GOES_ON: &str = "this work was interrupted and goes on now: look at the files before you trust \
                       the worklog";

/// Skills of a todo that are loaded for it.
const MAX_TODO_SKILLS: usize = 8;

/// Files that say who the agent is, besides what it says of itself.
const ROLE_FILES: [BootstrapName; 4] =
    [BootstrapName::Role, BootstrapName::Soul, BootstrapName::Identity, BootstrapName::User];

/// What a step is shown, besides the agent's snapshot.
#[derive(Debug, Default)]
pub(super) struct StepMaterial {
    /// The step routes what a person has written to the agent alone.
    pub(super) awaits_reply: bool,
    /// The current todo waits for a subagent that works on another one, and nothing is new.
    waits_for_subagent: bool,
    messages: Vec<String>,
    events: Vec<String>,
    rounds: Vec<ChatMessage>,
    history: Vec<String>,
    /// Summary of what was said before the history; at most one.
    summaries: Vec<String>,
    memories: Vec<String>,
    todo: Option<String>,
    next_todo: Option<String>,
    todos: String,
    pub(super) counts: TodoCounts,
    worklog: String,
    /// Sessions for work that this conversation has opened, a line for each.
    sessions: String,
    /// What the local workspace is; empty if there is none.
    workspace: String,
    /// Workspaces that the session can be bound to, a line for each.
    workspaces: String,
    /// Path and text of each included file.
    files: Vec<(String, String)>,
    /// Name and text of each skill that the behaviour loads.
    skills: Vec<(String, String)>,
    now: String,
    role: String,
    /// What the agent says of itself.
    self_text: String,
    /// Todos, worklog or titles of sessions may repeat text from outside.
    has_outside_text: bool,
}

/// Loads what the current step is shown.
pub(super) async fn load(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    behavior: &Behavior,
) -> Result<StepMaterial, Error> {
    memory_prefetch::await_prefetch(turn).await;
    let Some(run) = &turn.behavior else { return Ok(StepMaterial::default()) };
    let entries = StepEntries::of(turn.journal.entries(), run.state.forwards);
    let mut events = entries.events(turn.kind);
    if !run.state.observation.is_empty() {
        events.push(format!("about the step before: {}", run.state.observation));
    }
    let messages = entries.messages(turn.kind);
    let has_input = run.state.continues || !messages.is_empty() || !events.is_empty();
    if run.was_interrupted() && has_input {
        events.push(GOES_ON.to_owned());
    }
    let (now, zone) = time_zone::local_time(turn, snapshot);
    let mut material = StepMaterial {
        awaits_reply: behavior.role == BehaviorRole::Route
            && !messages.is_empty()
            && matches!(turn.kind, SessionKind::Main | SessionKind::Dm | SessionKind::Api),
        messages,
        events,
        rounds: entries.rounds(turn.kind),
        history: entries.history(turn.kind),
        summaries: entries.summary(turn.kind).into_iter().collect(),
        memories: memories(turn, snapshot),
        files: load_files(turn, snapshot, behavior).await?,
        now: format!("{now} ({zone})"),
        role: role_text(turn, snapshot),
        self_text: file_texts(turn, snapshot, &[BootstrapName::SelfFile]),
        workspace: turn.workspace.as_ref().map(workspace::summary).unwrap_or_default(),
        workspaces: match behavior.role {
            BehaviorRole::Route | BehaviorRole::Plan => workspace::list(turn, snapshot).await?,
            BehaviorRole::Do | BehaviorRole::Check | BehaviorRole::Adjust | BehaviorRole::Other => {
                String::new()
            }
        },
        ..StepMaterial::default()
    };
    let todo = load_rows(turn, run, (snapshot, behavior.role), &mut material).await?;
    if material.has_outside_text {
        turn.journal.mark_prompt_outside();
    }
    material.skills = load_skills(turn, snapshot, (behavior, &todo.skills)).await?;
    let has_news = !material.messages.is_empty() || !material.events.is_empty();
    if behavior.role == BehaviorRole::Do && !has_news && !todo.subagents.is_empty() {
        material.waits_for_subagent = is_working(turn, &todo.subagents).await?;
    }
    Ok(material)
}

/// What the current todo needs besides its text.
struct TodoNeeds {
    skills: Vec<String>,
    /// Subagents that its todo waits for.
    subagents: Vec<String>,
}

/// Whether one of these subagents still works. Its end wakes the session (spec SUB-020).
async fn is_working(turn: &TurnState<'_>, labels: &[String]) -> Result<bool, Error> {
    let claim = &turn.lease.claim;
    let subagents = turn.worker.sessions.subagents();
    let children = subagents.children(claim.tenant, claim.session).await?;
    let is_awaited = |label: &String| labels.contains(label);
    Ok(children.iter().any(|child| child.outcome.is_none() && is_awaited(&child.label)))
}

/// Loads todos, worklog and sessions in one transaction. Returns what the current todo needs.
async fn load_rows(
    turn: &TurnState<'_>,
    run: &BehaviorRun,
    (snapshot, role): (&AgentSnapshot, BehaviorRole),
    material: &mut StepMaterial,
) -> Result<TodoNeeds, Error> {
    let mut tx = turn.worker.sessions.behaviors().read(turn.lease.claim.tenant).await?;
    let list = run.list;
    let view = holdfast_work::todo_view(&mut tx, list).await.map_err(effects::session_error)?;
    let worklog = holdfast_work::worklog_text(&mut tx, list, WORKLOG_TOKENS).await;
    let worklog = worklog.map_err(effects::session_error)?;
    material.worklog = worklog.text;
    material.has_outside_text = worklog.has_outside_text || view.has_outside_text();
    if role == BehaviorRole::Route {
        let prefix = handover::key_prefix(turn, snapshot);
        let found = holdfast_session::work_sessions(&mut tx, &prefix).await?;
        material.has_outside_text |= found.iter().any(|session| session.has_outside_text);
        let lines = found.iter().map(|session| format!("- {}: {}", session.key, session.title));
        material.sessions = lines.collect::<Vec<_>>().join("\n");
    }
    tx.finish_reading();
    let named = run.state.behavior.params().get("todo").map(String::as_str);
    material.todo = named.and_then(|code| view.details(code));
    material.next_todo = view.next_ready().and_then(|code| view.details(code));
    material.todos = view.render(TODO_TOKENS);
    material.counts = view.counts;
    let current = named.or_else(|| view.next_ready()).unwrap_or_default();
    let skills: &[String] = if role == BehaviorRole::Route { &[] } else { view.skills(current) };
    let subagents = view.awaited_subagents(current).into_iter().map(str::to_owned);
    Ok(TodoNeeds { skills: skills.to_vec(), subagents: subagents.collect() })
}

/// The agent's definition, as far as the conversation's participants may read it.
fn role_text(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> String {
    let files = file_texts(turn, snapshot, &ROLE_FILES);
    let all = [snapshot.instructions.trim(), &files];
    all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Texts of files as far as the conversation's participants may read them, each cut to what a prompt
/// shows of a file.
fn file_texts(turn: &TurnState<'_>, snapshot: &AgentSnapshot, names: &[BootstrapName]) -> String {
    let audience = turn.access(snapshot).audience;
    let files = snapshot
        .files
        .iter()
        .filter(|file| names.contains(&file.name) && is_shown(turn.kind, audience, file.name));
    let texts = files.filter_map(|file| Some(trimmed(file.name, file.content.as_deref()?.trim())));
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// The agent's long-term notes, and memories that fit the messages.
fn memories(turn: &TurnState<'_>, snapshot: &AgentSnapshot) -> Vec<String> {
    let shown = is_shown(turn.kind, turn.access(snapshot).audience, BootstrapName::Memory);
    let notes = snapshot.files.iter().filter(|file| file.name == BootstrapName::Memory && shown);
    let notes = notes.filter_map(|file| file.content.clone());
    let recalled = turn.prefetch.memories.iter().map(|memory| memory.text.clone());
    notes.chain(recalled).filter(|text| !text.trim().is_empty()).collect()
}

/// Files that the behaviour's texts include, as the conversation sees them. Text from outside is
/// never part of instructions.
async fn load_files(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    behavior: &Behavior,
) -> Result<Vec<(String, String)>, Error> {
    let (tenant, view) = (turn.lease.claim.tenant, turn.access(snapshot).file_view());
    let mut files = Vec::new();
    for path in behavior.included_files() {
        for seen in included_paths(turn, path) {
            let Ok(stored) = view.tree_path(&seen) else { continue };
            if view.view_path(&stored).is_none() {
                continue;
            }
            match turn.worker.workspaces.read(tenant, snapshot.agent, &stored, None).await {
                Ok(file) => {
                    let own = file.filter(|file| !file.outside);
                    if let Some(text) = own.and_then(|file| file.text().map(str::to_owned)) {
                        files.push((path.to_owned(), text));
                        break;
                    }
                }
                Err(error) if error.kind().is_transient() => return Err(error.into()),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "an included file cannot be read");
                }
            }
        }
    }
    Ok(files)
}

/// Where an included file can be: in the local workspace, else in the agent's files.
fn included_paths(turn: &TurnState<'_>, path: &str) -> Vec<TreePath> {
    let workspace = turn.workspace.as_ref();
    let local = workspace.and_then(|local| format!("{}/{path}", local.seen).parse().ok());
    local.into_iter().chain(path.parse().ok()).collect()
}

/// Skills whose text is in the prompt: those that the behaviour loads, and those that the current
/// todo names and the behaviour may use.
async fn load_skills(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    (behavior, of_todo): (&Behavior, &[String]),
) -> Result<Vec<(String, String)>, Error> {
    let of = (turn.lease.claim.tenant, snapshot.agent);
    let mut names = behavior.toolbox.load_skills.clone();
    let of_todo = of_todo.iter().filter(|name| behavior.toolbox.has_skill(name));
    names.extend(of_todo.take(MAX_TODO_SKILLS).cloned());
    names.sort_unstable();
    names.dedup();
    turn.worker.agents.skill_texts(of, &snapshot.skills, &names).await
}

/// Composes the request of the current step.
pub(super) fn compose_chat(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    behavior: &Behavior,
    material: &StepMaterial,
    (with_tools, budget): (bool, usize),
) -> Composed {
    let tools = if with_tools { offered_tools(turn, snapshot, behavior) } else { Vec::new() };
    let listed = invocation::prompt_skills(snapshot, (&tools, &[]));
    let skills: Vec<BehaviorSkill<'_>> = listed
        .iter()
        .map(|skill| {
            let loaded = material.skills.iter().find(|(name, _)| name == skill.name);
            let rules = loaded.map_or("", |(_, text)| text);
            BehaviorSkill { name: skill.name, introduce: skill.description, rules }
        })
        .collect();
    let files: Vec<IncludedFile<'_>> =
        material.files.iter().map(|(path, text)| IncludedFile { path, text }).collect();
    let role = RoleTexts {
        agent: snapshot.name.as_str(),
        role: &material.role,
        self_text: &material.self_text,
        skills: &skills,
        files: &files,
    };
    let (todos, worklog) = ([material.todos.clone()], [material.worklog.clone()]);
    let workspace = [material.workspace.clone()];
    let buckets = [
        Bucket { kind: BucketKind::AgentMemory, items: &material.memories },
        Bucket { kind: BucketKind::SessionSummaries, items: &material.summaries },
        Bucket { kind: BucketKind::HistoryMessages, items: &material.history },
        Bucket { kind: BucketKind::WorkspaceSummary, items: &workspace },
        Bucket { kind: BucketKind::WorkspaceTodo, items: &todos },
        Bucket { kind: BucketKind::WorkspaceWorklog, items: &worklog },
    ];
    let Some(run) = &turn.behavior else {
        return Composed { chat: holdfast_types::Chat::default(), is_empty_input: true };
    };
    let position = StepPosition { name: &run.state.behavior, step: run.state.step };
    let has_news = !material.messages.is_empty() || !material.events.is_empty();
    let input = BehaviorInput {
        messages: &material.messages,
        events: &material.events,
        todo: material.todo.as_deref(),
        next_todo: material.next_todo.as_deref(),
        last_step: Some(&*run.state.last_step).filter(|text| !text.is_empty()),
        continues: run.state.continues || has_news,
        buckets: &buckets,
        session_list: Some(&*material.sessions).filter(|list| !list.is_empty()),
        workspace_list: Some(&*material.workspaces).filter(|list| !list.is_empty()),
        rounds: &material.rounds,
        ..BehaviorInput::at(position, &material.now)
    };
    let mut composed = compose(behavior, &role, &input, &tools, budget);
    composed.is_empty_input |= material.waits_for_subagent;
    composed
}

/// Tools of the step: those that its toolbox and the policy allow.
fn offered_tools(
    turn: &TurnState<'_>,
    snapshot: &AgentSnapshot,
    behavior: &Behavior,
) -> Vec<ToolSpec> {
    let (registry, allowed) = (turn.tools.registry(), calls::allowed_tools(turn, snapshot));
    let mut tools = match &behavior.toolbox.tools {
        ToolFilter::List(_) => registry.specs(),
        ToolFilter::All => {
            let used = recently_used_tools(turn.journal.entries());
            let loaded = used.iter().chain(&behavior.toolbox.loaded_tools);
            let named: Vec<&str> = loaded.map(String::as_str).collect();
            registry.offered(&allowed, &named).tools
        }
    };
    tools.retain(|tool| is_tool_lookup(&tool.name) || allowed.allows(&tool.name));
    tools
}
