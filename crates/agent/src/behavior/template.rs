//! Templates: texts with placeholders such as `{{new_msg}}` and `{{workspace/to_agent.md}}` (spec PRM-005).
//!
//! A placeholder is a name or a file, and nothing else: templates run no code, and what is inserted is not
//! expanded again. `\{{` is a literal `{{`. A line with placeholders of which none has a value is left out.
//! The renderer neutralises markers in what it inserts.

use super::marker::without_markers;

/// Maximum size of an included file, in bytes.
pub(super) const MAX_INCLUDE_BYTES: usize = 64 << 10;

/// Maximum size of a rendered text, in bytes.
pub(super) const MAX_RENDERED_BYTES: usize = 256 << 10;

/// Mark after a text that was cut.
pub(super) const TRUNCATED: &str = "[TRUNCATED]";

/// Files that are private to an agent's owner, and their folders: a behaviour also runs in
/// conversations with others.
const PRIVATE_PATHS: [&str; 4] = ["MEMORY.md", "BOOTSTRAP.md", "memory/", "people/"];

/// What a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Placeholder {
    NewMessages,
    NewEvents,
    CurrentTodo,
    NextTodo,
    LastStep,
    SessionList,
    WorkspaceList,
    SessionTitle,
    StepIndex,
    StepLimit,
    Behavior,
    Agent,
    Now,
    Param(String),
    /// Path in the agent's workspace.
    Include(String),
    Thinking,
    Reply,
    NextBehavior,
    ActionResults,
    Cost,
}

/// Text in which a template is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// `process_rule` and `policy`: instructions, in which nothing from outside is inserted.
    Rules,
    Input,
    /// `first_prompt` and `last_prompt` of the memory section.
    Memory,
    Summary,
}

const NAMES: [(&str, Placeholder); 21] = [
    ("new_msg", Placeholder::NewMessages),
    ("new_event", Placeholder::NewEvents),
    ("current_todo", Placeholder::CurrentTodo),
    ("workspace.todolist.current_todo", Placeholder::CurrentTodo),
    ("next_ready_todo", Placeholder::NextTodo),
    ("workspace.todolist.next_ready_todo", Placeholder::NextTodo),
    ("last_step_summary", Placeholder::LastStep),
    ("session_list", Placeholder::SessionList),
    ("local_workspace_list", Placeholder::WorkspaceList),
    ("session_title", Placeholder::SessionTitle),
    ("step_index", Placeholder::StepIndex),
    ("step_limit", Placeholder::StepLimit),
    ("behavior", Placeholder::Behavior),
    ("agent", Placeholder::Agent),
    ("now", Placeholder::Now),
    ("llm_result.thinking", Placeholder::Thinking),
    ("llm_result.reply", Placeholder::Reply),
    ("llm_result.next_behavior", Placeholder::NextBehavior),
    ("action_results", Placeholder::ActionResults),
    ("cost", Placeholder::Cost),
    ("workspace.todolist.__OPENDAN_ENV(params.todo)__", Placeholder::CurrentTodo),
];

impl Placeholder {
    /// Whether a value of the placeholder is input: without any, a step asks no model.
    const fn is_input(&self) -> bool {
        matches!(
            self,
            Self::NewMessages
                | Self::NewEvents
                | Self::CurrentTodo
                | Self::NextTodo
                | Self::LastStep
        )
    }

    fn is_allowed(&self, place: Place) -> bool {
        match self {
            Self::Include(_)
            | Self::StepIndex
            | Self::StepLimit
            | Self::Behavior
            | Self::Agent
            | Self::Now => true,
            Self::Param(_) | Self::SessionTitle => place != Place::Rules,
            Self::NewMessages
            | Self::NewEvents
            | Self::CurrentTodo
            | Self::NextTodo
            | Self::LastStep
            | Self::SessionList
            | Self::WorkspaceList => place == Place::Input,
            Self::Thinking
            | Self::Reply
            | Self::NextBehavior
            | Self::ActionResults
            | Self::Cost => place == Place::Summary,
        }
    }

    fn parse(name: &str) -> Result<Self, String> {
        if let Some((_, placeholder)) = NAMES.iter().find(|(known, _)| *known == name) {
            return Ok(placeholder.clone());
        }
        let param = name.strip_prefix("params.").or_else(|| {
            name.strip_prefix("__OPENDAN_ENV(params.").and_then(|rest| rest.strip_suffix(")__"))
        });
        if let Some(param) = param.filter(|param| is_word(param)) {
            return Ok(Self::Param(param.to_owned()));
        }
        let file = name.strip_prefix("workspace/").or_else(|| name.strip_prefix("cwd/"));
        match file {
            Some(path) => check_path(path).map(|()| Self::Include(path.to_owned())),
            None => Err(format!(
                "`{{{{{}}}}}` is not known: write a name such as `new_msg`, `params.todo`, or a \
                 file such as `workspace/to_agent.md`",
                name.chars().take(80).collect::<String>()
            )),
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Checks the path of an include: relative, inside the workspace, and not private.
fn check_path(path: &str) -> Result<(), String> {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_plain = |c: char| !c.is_control() && !matches!(c, '\\' | '{' | '}');
    if path.len() > 200 || !path.chars().all(is_plain) || !path.split('/').all(is_part) {
        return Err(format!(
            "`{}` is no file of the workspace",
            path.chars().take(80).collect::<String>()
        ));
    }
    let lower = path.to_ascii_lowercase();
    let is_private = PRIVATE_PATHS.iter().any(|private| {
        let private = private.to_ascii_lowercase();
        if private.ends_with('/') { lower.starts_with(&private) } else { lower == private }
    });
    if is_private {
        return Err(format!(
            "`{path}` is private to the owner, and the behaviour also runs for others: include \
             another file"
        ));
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Placeholder(Placeholder),
}

/// Parsed template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

impl Template {
    /// # Errors
    ///
    /// A sentence that says what to change.
    pub(super) fn parse(text: &str, place: Place) -> Result<Self, String> {
        let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some((before, after)) = rest.split_once("{{") {
            if let Some(before) = before.strip_suffix('\\') {
                literal.push_str(before);
                literal.push_str("{{");
                rest = after;
                continue;
            }
            literal.push_str(before);
            let (name, after) = after.split_once("}}").ok_or_else(|| {
                "a `{{` has no `}}`: close it, or write `\\{{` for two braces".to_owned()
            })?;
            let placeholder = Placeholder::parse(name.trim())?;
            if !placeholder.is_allowed(place) {
                return Err(format!("`{{{{{}}}}}` cannot be used here", name.trim()));
            }
            parts.push(Part::Text(std::mem::take(&mut literal)));
            parts.push(Part::Placeholder(placeholder));
            rest = after;
        }
        literal.push_str(rest);
        parts.push(Part::Text(literal));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Self(parts))
    }

    pub(super) fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|part| match part {
            Part::Placeholder(placeholder) => Some(placeholder),
            Part::Text(_) => None,
        })
    }

    /// Whether any placeholder can be filled with input.
    pub(super) fn has_input(&self) -> bool {
        self.placeholders().any(Placeholder::is_input)
    }

    /// Renders the template; `value` returns what a placeholder stands for, or nothing.
    pub(super) fn render(&self, mut value: impl FnMut(&Placeholder) -> Option<String>) -> Rendered {
        let mut lines = Lines::default();
        let mut has_input = false;
        let mut included: Vec<&Placeholder> = Vec::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => lines.push_text(text),
                Part::Placeholder(placeholder) => {
                    // Workspace and working directory may be the same folder.
                    let is_repeated = included.contains(&placeholder);
                    if matches!(placeholder, Placeholder::Include(_)) {
                        included.push(placeholder);
                    }
                    let found = Some(placeholder).filter(|_| !is_repeated).and_then(&mut value);
                    let found = found.filter(|text| !text.trim().is_empty());
                    has_input |= placeholder.is_input() && found.is_some();
                    lines.push_value(found.as_deref());
                }
            }
        }
        Rendered { text: shortened_bytes(&lines.finish(), MAX_RENDERED_BYTES), has_input }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) text: String,
    /// Whether any placeholder for input had a value.
    pub(super) has_input: bool,
}

/// Writer that leaves out lines with placeholders of which none has a value.
#[derive(Debug, Default)]
struct Lines {
    done: String,
    line: String,
    /// Whether a placeholder of the line had no value.
    has_null: bool,
    /// Whether a placeholder of the line had a value.
    has_value: bool,
}

impl Lines {
    fn push_text(&mut self, text: &str) {
        let mut parts = text.split('\n');
        self.line.push_str(parts.next().unwrap_or_default());
        for part in parts {
            self.end_line();
            self.line.push_str(part);
        }
    }

    fn push_value(&mut self, value: Option<&str>) {
        match value {
            Some(value) => {
                self.line.push_str(&without_markers(value));
                self.has_value = true;
            }
            None => self.has_null = true,
        }
    }

    fn end_line(&mut self) {
        if self.has_value || !self.has_null {
            self.done.push_str(&self.line);
            self.done.push('\n');
        }
        self.line.clear();
        (self.has_null, self.has_value) = (false, false);
    }

    fn finish(mut self) -> String {
        self.end_line();
        self.done.truncate(self.done.trim_end().len());
        self.done
    }
}

/// Cuts a text to a number of bytes, at a character, with a mark.
pub(super) fn shortened_bytes(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit.saturating_sub(TRUNCATED.len() + 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}\n{TRUNCATED}", &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn render(text: &str, values: &[(Placeholder, &str)]) -> Rendered {
        let template = Template::parse(text, Place::Input).unwrap();
        template.render(|placeholder| {
            values
                .iter()
                .find(|(known, _)| known == placeholder)
                .map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn placeholders_are_filled_once_and_lines_without_a_value_are_left_out() {
        let values =
            [(Placeholder::NewMessages, "hi {{now}} <<role>>"), (Placeholder::StepIndex, "2")];

        let is = render("{{new_event}}\n\n{{ new_msg }}\nStep {{step_index}}{{now}}", &values);

        assert_eq!(is.text, "\nhi {{now}} <\\<role>>\nStep 2");
        assert!(is.has_input);
    }

    #[test]
    fn only_messages_events_todos_and_the_last_step_are_input() {
        for (placeholder, has_input) in [
            (Placeholder::NewMessages, true),
            (Placeholder::NewEvents, true),
            (Placeholder::CurrentTodo, true),
            (Placeholder::NextTodo, true),
            (Placeholder::LastStep, true),
            (Placeholder::StepIndex, false),
            (Placeholder::Param("x".into()), false),
            (Placeholder::SessionList, false),
            (Placeholder::Include("a.md".into()), false),
        ] {
            let text = "{{new_msg}}{{new_event}}{{current_todo}}{{next_ready_todo}}\
                        {{last_step_summary}}{{step_index}}{{params.x}}{{session_list}}\
                        {{workspace/a.md}}";
            assert_eq!(
                render(text, &[(placeholder.clone(), "x")]).has_input,
                has_input,
                "{placeholder:?}"
            );
            assert!(!render(text, &[(placeholder, " \n\t")]).has_input);
        }
    }

    #[test]
    fn names_of_the_reference_are_known_and_braces_can_be_written() {
        let text = "workspace.todolist.__OPENDAN_ENV(params.todo)__";
        assert_eq!(Placeholder::parse(text), Ok(Placeholder::CurrentTodo));
        assert_eq!(
            Placeholder::parse("__OPENDAN_ENV(params.x)__"),
            Ok(Placeholder::Param("x".into()))
        );
        assert_eq!(
            Placeholder::parse("cwd/to_agent.md"),
            Ok(Placeholder::Include("to_agent.md".into()))
        );
        assert_eq!(render("a \\{{new_msg}} b", &[]).text, "a {{new_msg}} b");
        let file = [(Placeholder::Include("a.md".into()), "text")];
        assert_eq!(render("{{workspace/a.md}}\n{{cwd/a.md}}", &file).text, "text");
    }

    #[test]
    fn what_cannot_be_filled_is_refused_with_what_to_write() {
        for (text, place, says) in [
            ("{{new_message}}", Place::Input, "`{{new_message}}` is not known"),
            ("{{new_msg", Place::Input, "has no `}}`"),
            ("{{new_msg}}", Place::Rules, "cannot be used here"),
            ("{{params.todo}}", Place::Rules, "cannot be used here"),
            ("{{llm_result.reply}}", Place::Input, "cannot be used here"),
            ("{{workspace/../x}}", Place::Rules, "is no file of the workspace"),
            ("{{workspace//x}}", Place::Rules, "is no file of the workspace"),
            ("{{cwd/memory.MD}}", Place::Rules, "is private to the owner"),
            ("{{workspace/people/a/x.md}}", Place::Rules, "is private to the owner"),
        ] {
            let error = Template::parse(text, place).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn a_rendered_text_has_a_limit() {
        let long = "ä".repeat(MAX_RENDERED_BYTES);

        let text = render("{{new_msg}}", &[(Placeholder::NewMessages, &long)]).text;

        assert!(text.len() <= MAX_RENDERED_BYTES && text.ends_with(TRUNCATED));
    }

    proptest! {
        #[test]
        fn any_text_is_a_template_or_an_error(text in "(\\{\\{|\\}\\}|\\\\|new_msg|workspace/|\\.\\.| |\n|x|é){0,20}") {
            if let Ok(template) = Template::parse(&text, Place::Input) {
                let rendered = template.render(|_| Some("v".to_owned()));
                prop_assert!(rendered.text.len() <= text.len());
            }
        }
    }
}
