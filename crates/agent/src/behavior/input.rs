//! Input of a step (spec PRM-004).

use holdfast_types::{BehaviorName, ChatMessage};

use super::{
    compose::RoleTexts,
    definition::Behavior,
    marker::without_markers,
    memory::Bucket,
    template::{MAX_INCLUDE_BYTES, Placeholder, Rendered, shortened_bytes},
};
use crate::text::{fenced, line};

/// Maximum length of a parameter, title or time, in characters.
const MAX_LINE_CHARS: usize = 200;

/// Maximum number of new messages and of new events in an input. Of more, the newest are shown.
pub(super) const MAX_NEW_ITEMS: usize = 32;

/// Place of a step in its behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepPosition<'a> {
    /// Behaviour with its parameters.
    pub name: &'a BehaviorName,
    /// From 0.
    pub step: u32,
}

/// What a step is told. All texts are untrusted.
#[derive(Debug, Clone, Copy)]
pub struct BehaviorInput<'a> {
    pub position: StepPosition<'a>,
    /// Date and time, for the model to read.
    pub now: &'a str,
    /// New messages, oldest first, with their senders' names where several people write.
    pub messages: &'a [String],
    /// New events, oldest first.
    pub events: &'a [String],
    /// Details of the todo that the behaviour is run for.
    pub todo: Option<&'a str>,
    /// Details of the todo that could be done next.
    pub next_todo: Option<&'a str>,
    /// Summary of the step before. It is input only if `continues` is true: after a wait, it alone
    /// is no reason to ask a model.
    pub last_step: Option<&'a str>,
    /// Whether the step follows another one without a wait between.
    pub continues: bool,
    /// Mistake of the step before that this one must know; input as `last_step` is.
    pub observation: Option<&'a str>,
    pub buckets: &'a [Bucket<'a>],
    /// Sessions that a message can be routed to.
    pub session_list: Option<&'a str>,
    pub workspace_list: Option<&'a str>,
    pub session_title: Option<&'a str>,
    /// Native tool calls of this step and their results.
    pub rounds: &'a [ChatMessage],
}

impl<'a> BehaviorInput<'a> {
    /// Creates an input without anything else.
    #[must_use]
    pub const fn at(position: StepPosition<'a>, now: &'a str) -> Self {
        Self {
            position,
            now,
            messages: &[],
            events: &[],
            todo: None,
            next_todo: None,
            last_step: None,
            continues: false,
            observation: None,
            buckets: &[],
            session_list: None,
            workspace_list: None,
            session_title: None,
            rounds: &[],
        }
    }
}

/// Texts of an input, which can be shortened one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct InputTexts {
    pub(super) messages: Vec<String>,
    pub(super) events: Vec<String>,
    pub(super) todo: String,
    pub(super) next_todo: String,
    pub(super) last_step: String,
    /// Shown whatever the template says.
    pub(super) observation: String,
}

impl InputTexts {
    pub(super) fn of(input: &BehaviorInput<'_>) -> Self {
        let newest = |items: &[String]| items[items.len().saturating_sub(MAX_NEW_ITEMS)..].to_vec();
        let after_step =
            |text: Option<&str>| text.filter(|_| input.continues).unwrap_or_default().to_owned();
        Self {
            messages: newest(input.messages),
            events: newest(input.events),
            todo: input.todo.unwrap_or_default().to_owned(),
            next_todo: input.next_todo.unwrap_or_default().to_owned(),
            last_step: after_step(input.last_step),
            observation: after_step(input.observation),
        }
    }

    /// Returns the longest text.
    pub(super) fn longest(&mut self) -> Option<&mut String> {
        let single =
            [&mut self.todo, &mut self.next_todo, &mut self.last_step, &mut self.observation];
        let all = self.messages.iter_mut().chain(&mut self.events).chain(single);
        all.max_by_key(|text| text.len())
    }
}

/// Renders the input template, with the observation after it.
pub(super) fn render_input(
    behavior: &Behavior,
    role: &RoleTexts<'_>,
    input: &BehaviorInput<'_>,
    texts: &InputTexts,
) -> Rendered {
    let mut rendered = behavior.input.render(|placeholder| match placeholder {
        Placeholder::NewMessages => tagged("message", &texts.messages),
        Placeholder::NewEvents => tagged("event", &texts.events),
        Placeholder::CurrentTodo => tagged("current_todo", std::slice::from_ref(&texts.todo)),
        Placeholder::NextTodo => tagged("next_ready_todo", std::slice::from_ref(&texts.next_todo)),
        Placeholder::LastStep => tagged("last_step", std::slice::from_ref(&texts.last_step)),
        Placeholder::SessionList => input.session_list.map(|text| one("sessions", text)),
        Placeholder::WorkspaceList => input.workspace_list.map(|text| one("workspaces", text)),
        placeholder => common_value(behavior, role, input, placeholder),
    });
    if let Some(observation) = tagged("observation", std::slice::from_ref(&texts.observation)) {
        rendered.has_input = true;
        rendered.text.push('\n');
        rendered.text.push_str(&without_markers(&observation));
    }
    rendered
}

/// Value of a placeholder that is allowed in several texts.
pub(super) fn common_value(
    behavior: &Behavior,
    role: &RoleTexts<'_>,
    input: &BehaviorInput<'_>,
    placeholder: &Placeholder,
) -> Option<String> {
    match placeholder {
        Placeholder::StepIndex => Some(input.position.step.to_string()),
        Placeholder::StepLimit => Some(step_limit(behavior)),
        Placeholder::Behavior => Some(line(&input.position.name.to_string(), MAX_LINE_CHARS)),
        Placeholder::Agent => Some(line(role.agent, MAX_LINE_CHARS)),
        Placeholder::Now => Some(line(input.now, MAX_LINE_CHARS)),
        Placeholder::SessionTitle => input.session_title.map(|title| line(title, MAX_LINE_CHARS)),
        Placeholder::Param(name) => {
            input.position.name.params().get(name).map(|value| line(value, MAX_LINE_CHARS))
        }
        Placeholder::Include(path) => {
            let file = role.files.iter().find(|file| file.path == path);
            file.map(|file| shortened_bytes(file.text.trim_end(), MAX_INCLUDE_BYTES))
        }
        Placeholder::NewMessages
        | Placeholder::NewEvents
        | Placeholder::CurrentTodo
        | Placeholder::NextTodo
        | Placeholder::LastStep
        | Placeholder::SessionList
        | Placeholder::WorkspaceList
        | Placeholder::Thinking
        | Placeholder::Reply
        | Placeholder::NextBehavior
        | Placeholder::ActionResults
        | Placeholder::Cost => None,
    }
}

/// The limit of steps, for the model to read.
pub(super) fn step_limit(behavior: &Behavior) -> String {
    match behavior.step_limit {
        0 => "none".to_owned(),
        limit => limit.to_string(),
    }
}

fn tagged(tag: &str, texts: &[String]) -> Option<String> {
    let mut out = String::new();
    for text in texts.iter().filter(|text| !text.trim().is_empty()) {
        fenced(&mut out, tag, "", text);
    }
    out.truncate(out.trim_end().len());
    Some(out).filter(|out| !out.is_empty())
}

fn one(tag: &str, text: &str) -> String {
    let mut out = String::new();
    if !text.trim().is_empty() {
        fenced(&mut out, tag, "", text);
    }
    out.truncate(out.trim_end().len());
    out
}
