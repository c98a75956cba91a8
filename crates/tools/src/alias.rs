//! Aliases of tools.
//!
//! Prompts written for other assistants, and models trained on them, use other names for tools and
//! arguments. Policies, limits and effects belong to the tool, whatever it is called: an alias is
//! resolved before anything else is checked (decision C-05).

use serde_json::{Map, Value, json};

/// Input, as the model wrote it.
type Input = Map<String, Value>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Alias {
    pub(crate) name: &'static str,
    /// Name of the tool itself.
    pub(crate) tool: &'static str,
    /// Converts the alias's arguments to the tool's.
    map: fn(Input) -> Input,
}

impl Alias {
    /// Finds the alias with this name.
    pub(crate) fn find(name: &str) -> Option<Self> {
        ALIASES.iter().copied().find(|alias| alias.name == name)
    }

    /// Converts an input for the alias to one for the tool.
    pub(crate) fn input(self, input: Value) -> Value {
        match input {
            Value::Object(input) => Value::Object((self.map)(input)),
            other => other,
        }
    }
}

const fn alias(name: &'static str, of: &'static str, map: fn(Input) -> Input) -> Alias {
    Alias { name, tool: of, map }
}

/// All aliases. Those of a tool that is not registered have no effect.
pub(crate) const ALIASES: &[Alias] = &[
    alias("read_file", "read", map_read),
    alias("create_file", "write", map_write),
    alias("write_file", "write", map_write),
    alias("edit_file", "edit", map_edit),
    alias("apply-patch", "apply_patch", map_apply_patch),
    alias("list_dir", "list_files", map_list_files),
    alias("remove_file", "delete_file", |input| renamed(input, PATH_ALIASES)),
    alias("fetch_url", "web_fetch", map_web_fetch),
    alias("search_web", "web_search", map_web_search),
    alias("send_message", "message", map_message),
    alias("send_msg", "message", map_message),
    alias("list_session", "sessions_list", |input| input),
    alias("get_session", "session_status", |input| renamed(input, &[("session_id", "session")])),
    alias("load_memory", "memory_search", |input| {
        renamed(input, &[("q", "query"), ("keyword", "query"), ("text", "query")])
    }),
    alias("automations", "cron", |input| input),
    alias("bash", "exec", map_exec),
    alias("run_command", "exec", map_short_exec),
    alias("spawn", "sessions_spawn", |input| with(input, "wait", json!(false))),
    alias("subagent", "sessions_spawn", |input| with(input, "wait", json!(true))),
    alias("create_sub_agent", "sessions_spawn", map_create_sub_agent),
];

const PATH_ALIASES: &[(&str, &str)] =
    &[("file_path", "path"), ("filename", "path"), ("file", "path")];

fn map_read(mut input: Input) -> Input {
    // A range of lines, as in `10-20`.
    if let Some(range) = input.remove("range") {
        let bounds: Vec<u64> = range
            .as_str()
            .unwrap_or_default()
            .splitn(2, ['-', ':'])
            .filter_map(|bound| bound.trim().parse().ok())
            .collect();
        match bounds[..] {
            [from, to] if from >= 1 && to >= from => {
                input.insert("from".to_owned(), json!(from));
                input.insert("lines".to_owned(), json!(to - from + 1));
            }
            // Put back, so that the tool refuses it.
            _ => drop(input.insert("range".to_owned(), range)),
        }
    }
    renamed(renamed(input, PATH_ALIASES), &[("offset", "from"), ("limit", "lines")])
}

fn map_write(mut input: Input) -> Input {
    if let Some(mode) = input.remove("mode") {
        match mode.as_str() {
            Some("append") => drop(input.insert("append".to_owned(), json!(true))),
            Some("new") => drop(input.insert("new".to_owned(), json!(true))),
            Some("write" | "overwrite") => {}
            _ => drop(input.insert("mode".to_owned(), mode)),
        }
    }
    renamed(renamed(input, PATH_ALIASES), &[("text", "content")])
}

fn map_edit(input: Input) -> Input {
    let names = [
        ("old_text", "old"),
        ("old_string", "old"),
        ("anchor", "old"),
        ("new_text", "new"),
        ("new_string", "new"),
        ("content", "new"),
        ("replace_all", "all_occurrences"),
    ];
    let mut input = renamed(renamed(input, PATH_ALIASES), &names);
    let Some(mode) = input.remove("mode") else { return input };
    let text = |name: &str| input.get(name).and_then(Value::as_str).unwrap_or_default();
    let new = match mode.as_str() {
        Some("after") => format!("{}{}", text("old"), text("new")),
        Some("before") => format!("{}{}", text("new"), text("old")),
        Some("replace") => return input,
        _ => return with(input, "mode", mode),
    };
    with(input, "new", json!(new))
}

fn map_apply_patch(input: Input) -> Input {
    renamed(input, &[("input", "patch"), ("diff", "patch")])
}

fn map_list_files(input: Input) -> Input {
    renamed(input, &[("directory", "path"), ("dir", "path")])
}

fn map_web_fetch(mut input: Input) -> Input {
    // The tool sets this limit. The argument is dropped, not refused.
    input.remove("max_chars");
    input
}

fn map_web_search(input: Input) -> Input {
    renamed(input, &[("q", "query"), ("max_results", "count"), ("num_results", "count")])
}

fn map_message(input: Input) -> Input {
    renamed(input, &[("content", "text"), ("message", "text")])
}

fn map_create_sub_agent(input: Input) -> Input {
    let names = [
        ("name", "label"),
        ("title", "label"),
        ("prompt", "task"),
        ("instructions", "task"),
        ("capability_bundle", "bundle"),
    ];
    renamed(input, &names)
}

fn map_exec(mut input: Input) -> Input {
    // The runner decides where a command runs and who approves it. The arguments are dropped, not
    // refused.
    for settled in ["host", "security", "ask", "pty", "elevated"] {
        input.remove(settled);
    }
    renamed(input, &[("cmd", "command"), ("cwd", "workdir"), ("working_dir", "workdir")])
}

/// Defaults for a command that its caller expects to be short (spec TOL-028).
fn map_short_exec(input: Input) -> Input {
    let mut input = map_exec(input);
    for (name, most) in [("timeout", 30), ("max_output", 2_000)] {
        input.entry(name).or_insert(json!(most));
    }
    input
}

/// Renames arguments, unless the new name is in use already.
fn renamed(mut input: Input, names: &[(&str, &str)]) -> Input {
    for (from, to) in names {
        if !input.contains_key(*to)
            && let Some(value) = input.remove(*from)
        {
            input.insert((*to).to_owned(), value);
        }
    }
    input
}

fn with(mut input: Input, name: &str, value: Value) -> Input {
    input.insert(name.to_owned(), value);
    input
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn mapped(name: &str, input: Value) -> (&'static str, Value) {
        let alias = Alias::find(name).unwrap();
        (alias.tool, alias.input(input))
    }

    #[test]
    fn no_name_means_two_tools_and_none_is_an_alias_of_an_alias() {
        let names: BTreeSet<&str> = ALIASES.iter().map(|alias| alias.name).collect();

        assert_eq!(names.len(), ALIASES.len());
        for alias in ALIASES {
            assert!(!names.contains(alias.tool), "{}", alias.tool);
        }
    }

    #[test]
    fn arguments_are_told_by_the_tools_own_names() {
        for (name, said, of, meant) in [
            (
                "read_file",
                json!({"file_path": "a", "offset": 3}),
                "read",
                json!({"path": "a", "from": 3}),
            ),
            (
                "read_file",
                json!({"path": "a", "range": "5-9"}),
                "read",
                json!({"path": "a", "from": 5, "lines": 5}),
            ),
            (
                "write_file",
                json!({"path": "a", "content": "x", "mode": "append"}),
                "write",
                json!({"path": "a", "content": "x", "append": true}),
            ),
            (
                "edit_file",
                json!({"path": "a", "old_text": "x", "new_text": "y"}),
                "edit",
                json!({"path": "a", "old": "x", "new": "y"}),
            ),
            (
                "edit_file",
                json!({"path": "a", "anchor": "x", "content": "y", "mode": "after"}),
                "edit",
                json!({"path": "a", "old": "x", "new": "xy"}),
            ),
            (
                "run_command",
                json!({"cmd": "ls", "cwd": "src"}),
                "exec",
                json!({"command": "ls", "workdir": "src", "timeout": 30, "max_output": 2_000}),
            ),
            ("load_memory", json!({"q": "tea"}), "memory_search", json!({"query": "tea"})),
            (
                "create_sub_agent",
                json!({"name": "n", "prompt": "t", "capability_bundle": "b"}),
                "sessions_spawn",
                json!({"label": "n", "task": "t", "bundle": "b"}),
            ),
            (
                "subagent",
                json!({"task": "t"}),
                "sessions_spawn",
                json!({"task": "t", "wait": true}),
            ),
        ] {
            assert_eq!(mapped(name, said), (of, meant), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_understood_is_left_for_the_tool_to_refuse() {
        let input = json!({"path": "a", "range": "all"});
        assert_eq!(mapped("read_file", input.clone()), ("read", input));
        let input = json!({"path": "a", "old": "x", "mode": "swap"});
        assert_eq!(mapped("edit_file", input.clone()), ("edit", input));
        assert_eq!(mapped("read_file", json!("a")), ("read", json!("a")));
    }
}
