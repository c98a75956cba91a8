//! Text form of a page: its accessibility tree, one line per node.
//!
//! ```text
//! - heading "Sign in"
//!   - textbox "Name" [ref=e12]: Anna
//!   - button "Go" [ref=e14] (disabled)
//! ```
//!
//! A `ref` is the DOM node id: it stays valid until the node is removed.

use std::{collections::HashMap, fmt::Write as _};

use serde_json::Value;

/// Maximum depth that is shown.
const MAX_DEPTH: usize = 200;

/// Roles of elements that can be acted on; they get a `ref`.
const INTERACTIVE_ROLES: [&str; 17] = [
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "checkbox",
    "radio",
    "switch",
    "slider",
    "spinbutton",
    "listbox",
    "option",
    "menuitem",
    "menuitemcheckbox",
    "menuitemradio",
    "tab",
    "treeitem",
];

/// Roles of containers, which get no line of their own.
const CONTAINER_ROLES: [&str; 9] = [
    "generic",
    "none",
    "presentation",
    "InlineTextBox",
    "LineBreak",
    "RootWebArea",
    "LayoutTable",
    "Section",
    "Iframe",
];

/// Properties that are shown behind the name.
const SHOWN_STATES: [&str; 6] =
    ["checked", "disabled", "expanded", "focused", "required", "selected"];

/// Formats a tree as returned by `Accessibility.getFullAXTree`.
pub(crate) fn format_tree(tree: &Value) -> String {
    let nodes: Vec<&Value> = tree["nodes"].as_array().into_iter().flatten().collect();
    let by_id: HashMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["nodeId"].as_str()?, *node))).collect();
    let mut out = String::new();
    if let Some(root) = nodes.iter().find(|node| node["parentId"].is_null()) {
        walk(&by_id, root, 0, 0, "", &mut out);
    }
    out
}

fn walk(
    by_id: &HashMap<&str, &Value>,
    node: &Value,
    indent: usize,
    deep: usize,
    above: &str,
    out: &mut String,
) {
    if deep > MAX_DEPTH {
        return;
    }
    let shown = format_node(node, above);
    let name = text(&node["name"]);
    let (indent, above) = match &shown {
        Some(line) => {
            // Writing to a `String` cannot fail.
            let _ = writeln!(out, "{}- {line}", "  ".repeat(indent));
            (indent + 1, name.as_str())
        }
        None => (indent, above),
    };
    for child in node["childIds"].as_array().into_iter().flatten() {
        if let Some(child) = child.as_str().and_then(|id| by_id.get(id)) {
            walk(by_id, child, indent, deep + 1, above, out);
        }
    }
}

/// Formats one node; returns `None` if it gets no line of its own.
fn format_node(node: &Value, above: &str) -> Option<String> {
    let role = text(&node["role"]);
    let name = text(&node["name"]);
    if node["ignored"] == true || CONTAINER_ROLES.contains(&role.as_str()) {
        return None;
    }
    if role == "StaticText" {
        // The text inside a button repeats the button's name.
        return (!name.is_empty() && name != above).then(|| format!("text: {name}"));
    }
    let is_used = INTERACTIVE_ROLES.contains(&role.as_str());
    if !is_used && name.is_empty() && role != "list" && role != "listitem" {
        return None;
    }
    let mut line = role;
    if !name.is_empty() {
        // Writing to a `String` cannot fail.
        let _ = write!(line, " {name:?}");
    }
    if let Some(id) = node["backendDOMNodeId"].as_i64().filter(|_| is_used) {
        let _ = write!(line, " [ref=e{id}]");
    }
    let states: Vec<String> = node["properties"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|property| {
            let name = property["name"].as_str().filter(|name| SHOWN_STATES.contains(name))?;
            match &property["value"]["value"] {
                Value::Bool(true) => Some(name.to_owned()),
                Value::String(value) if value != "false" => Some(format!("{name}: {value}")),
                _ => None,
            }
        })
        .collect();
    if !states.is_empty() {
        let _ = write!(line, " ({})", states.join(", "));
    }
    let value = text(&node["value"]);
    if !value.is_empty() && value != name {
        let _ = write!(line, ": {value}");
    }
    Some(line)
}

/// Value of a property, on one line.
fn text(value: &Value) -> String {
    let text = match &value["value"] {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(id: &str, parent: Option<&str>, role: &str, name: &str, children: &[&str]) -> Value {
        json!({
            "nodeId": id, "parentId": parent, "ignored": false, "role": { "value": role },
            "name": { "value": name }, "childIds": children,
            "backendDOMNodeId": id.parse::<i64>().unwrap() + 10,
        })
    }

    #[test]
    fn a_tree_is_shown_by_roles_and_what_can_be_used_has_a_ref() {
        let mut input = node("4", Some("2"), "textbox", "Name", &[]);
        input["value"] = json!({ "value": "Anna" });
        input["properties"] = json!([
            { "name": "required", "value": { "value": true } },
            { "name": "disabled", "value": { "value": false } },
        ]);
        let nodes = vec![
            node("1", None, "RootWebArea", "Page", &["2"]),
            node("2", Some("1"), "generic", "", &["3", "4", "5"]),
            node("3", Some("2"), "heading", "Sign  in", &["7"]),
            input,
            node("5", Some("2"), "button", "Go", &["6"]),
            node("6", Some("5"), "StaticText", "Go", &[]),
            node("7", Some("3"), "StaticText", "Sign in", &[]),
        ];

        let lines = format_tree(&json!({ "nodes": nodes }));

        assert_eq!(
            lines,
            "- heading \"Sign in\"\n- textbox \"Name\" [ref=e14] (required): Anna\n\
             - button \"Go\" [ref=e15]\n"
        );
    }

    #[test]
    fn a_tree_that_goes_round_ends() {
        let nodes =
            [node("1", None, "main", "a", &["2"]), node("2", Some("1"), "list", "b", &["1"])];

        assert!(format_tree(&json!({ "nodes": nodes })).lines().count() <= MAX_DEPTH + 1);
        assert_eq!(format_tree(&json!({})), "");
    }
}
