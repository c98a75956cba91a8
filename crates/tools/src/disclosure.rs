//! Tools that the model looks up instead of getting all schemas at once.
//!
//! Every tool's schema costs tokens on every request. So the model gets a few tools at once, and
//! two tools for finding the others: `tool_search` lists those that match keywords, `tool_describe`
//! shows the schema of one, which may then be called. Both show only tools that the caller may use.
//! called like any other. Both tell only of what the caller may use.

use std::{collections::BTreeSet, fmt::Write as _};

use holdfast_types::ToolSpec;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{AllowedTools, ToolError, alias::ALIASES, tool};

/// Default tools that the model gets from the start.
pub const DEFAULT_DIRECT_TOOLS: &[&str] =
    &["edit", "list_files", "read", "web_fetch", "web_search", "write"];

/// Maximum number of tools that a search returns.
const MAX_SEARCH_RESULTS: usize = 8;

pub(crate) const SEARCH_TOOL: &str = "tool_search";
pub(crate) const DESCRIBE_TOOL: &str = "tool_describe";

/// Find tools that you have but were not shown, by keywords. Open one with `tool_describe`, then
/// call it by its name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchInput {
    /// What it should do, as in `list conversations`.
    query: String,
}

/// Show how a tool is used: what it does and what it takes, as a JSON Schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DescribeInput {
    /// The tool's name.
    pub(crate) name: String,
}

/// Specifications of the two tools.
pub(crate) fn specs() -> [ToolSpec; 2] {
    [tool::spec::<DescribeInput>(DESCRIBE_TOOL), tool::spec::<SearchInput>(SEARCH_TOOL)]
}

/// Searches the tools that may be used; best matches first.
pub(crate) fn search(
    specs: &[&ToolSpec],
    allowed: &AllowedTools,
    input: &SearchInput,
) -> Result<String, ToolError> {
    let wanted = words(&input.query);
    if wanted.is_empty() {
        return Err(ToolError::Tell("`query` is empty: say what the tool should do".to_owned()));
    }
    let mut found: Vec<(usize, &ToolSpec)> = specs
        .iter()
        .filter(|spec| allowed.allows(&spec.name))
        .map(|spec| (score(spec, &wanted), *spec))
        .filter(|(score, _)| *score > 0)
        .collect();
    found.sort_by(|(left, one), (right, other)| right.cmp(left).then(one.name.cmp(&other.name)));
    if found.is_empty() {
        return Ok("No tool of yours fits; try other words.".to_owned());
    }
    let mut text = String::new();
    for (_, spec) in found.iter().take(MAX_SEARCH_RESULTS) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "- {}: {}", spec.name, first_line(&spec.description));
    }
    Ok(text)
}

/// Full description of a tool.
pub(crate) fn describe(spec: &ToolSpec) -> String {
    format!("{}\n{}\n\nInput:\n{}\n", spec.name, spec.description, spec.input)
}

/// Score of a tool for the query: a match in its name counts more than one in its description.
fn score(spec: &ToolSpec, wanted: &BTreeSet<String>) -> usize {
    let others = ALIASES.iter().filter(|alias| alias.tool == spec.name).map(|alias| alias.name);
    let names: BTreeSet<String> = others.chain([spec.name.as_str()]).flat_map(words).collect();
    let said = words(&spec.description);
    wanted
        .iter()
        .map(|word| match () {
            () if names.contains(word) => 4,
            () if names.iter().any(|name| has_common_stem(name, word)) => 3,
            () if said.contains(word) => 2,
            () if said.iter().any(|said| has_common_stem(said, word)) => 1,
            () => 0,
        })
        .sum()
}

/// Whether one word begins with the other, with at least four letters in common.
fn has_common_stem(one: &str, other: &str) -> bool {
    let short = one.len().min(other.len());
    short >= 4 && (one.starts_with(other) || other.starts_with(one))
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|letter: char| !letter.is_alphanumeric())
        .map(str::to_lowercase)
        .filter(|word| word.chars().count() > 1 || !word.is_ascii())
        .filter(|word| !word.is_empty())
        .collect()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Call, Offer, Registry,
        mesh::tests::{said, tell, world},
    };

    fn names(specs: &[ToolSpec]) -> Vec<&str> {
        specs.iter().map(|spec| spec.name.as_str()).collect()
    }

    #[tokio::test]
    async fn what_was_not_shown_is_found_described_and_called() {
        let (call, _, tools) = world();
        let tools = tools.with_direct_tools(["message"]);

        let offered = tools.offered(&AllowedTools::matching(|_| true), &[]);
        let found = tools.call(call.clone(), SEARCH_TOOL, r#"{"query":"list agents"}"#).await;
        let shown = tools.call(call.clone(), DESCRIBE_TOOL, r#"{"name":"agents_list"}"#).await;
        let called = tools.call(call, "agents_list", "{}").await;

        assert_eq!(names(&offered.tools), ["message", DESCRIBE_TOOL, SEARCH_TOOL]);
        assert!(offered.searchable.contains(&"agents_list".to_owned()), "{:?}", offered.searchable);
        let found = said(found);
        assert!(found.starts_with("- agents_list: List the agents"), "{found}");
        assert!(said(shown).contains(r#""additionalProperties":false"#));
        assert!(said(called).starts_with("- coach"));
    }

    #[tokio::test]
    async fn what_may_not_be_used_is_neither_found_nor_described_nor_called() {
        let (call, _, tools) = world();
        let tools = tools.with_direct_tools(["message"]);
        let allowed = AllowedTools::only(["message", "sessions_list"]);
        let call = Call { allowed: allowed.clone(), ..call };

        let ask = |name, input| tools.call(call.clone(), name, input);

        let found = said(ask(SEARCH_TOOL, r#"{"query":"list agents sessions"}"#).await);
        assert!(found.contains("sessions_list") && !found.contains("agents_list"), "{found}");
        let told = tell(ask(DESCRIBE_TOOL, r#"{"name":"agents_list"}"#).await);
        assert!(told.starts_with("there is no tool `agents_list`"), "{told}");
        assert!(tell(ask("agents_list", "{}").await).contains("not one of yours"));
        assert_eq!(
            names(&tools.offered(&allowed, &["agents_list"]).tools),
            ["message", DESCRIBE_TOOL, SEARCH_TOOL]
        );
        // All permitted tools are direct, so the two lookup tools are not offered.
        assert_eq!(names(&tools.offered(&AllowedTools::only(["message"]), &[]).tools), ["message"]);
    }

    #[tokio::test]
    async fn a_tool_is_found_by_its_other_names_and_by_a_stem() {
        let (call, _, tools) = world();
        let tools = tools.with_direct_tools([]);
        let ask = |query: &str| {
            let input = format!(r#"{{"query":"{query}"}}"#);
            let (tools, call) = (&tools, call.clone());
            async move { said(tools.call(call, SEARCH_TOOL, &input).await) }
        };

        assert!(ask("send").await.starts_with("- message"));
        assert!(ask("session").await.contains("sessions_history"));
        assert_eq!(ask("quantum").await, "No tool of yours fits; try other words.");
        let told = tell(tools.call(call.clone(), SEARCH_TOOL, r#"{"query":"?"}"#).await);
        assert!(told.starts_with("`query` is empty"));
    }

    #[test]
    fn what_was_looked_up_is_offered_from_then_on_under_its_own_name() {
        let (_, _, tools) = world();
        let tools = tools.with_direct_tools(["message"]);

        let before = tools.offered(&AllowedTools::matching(|_| true), &[]);
        let after =
            tools.offered(&AllowedTools::matching(|_| true), &["list_session", "no_such_tool"]);

        assert_eq!(names(&before.tools), ["message", DESCRIBE_TOOL, SEARCH_TOOL]);
        assert!(before.searchable.contains(&"sessions_list".to_owned()), "{:?}", before.searchable);
        assert_eq!(names(&after.tools), ["message", "sessions_list", DESCRIBE_TOOL, SEARCH_TOOL]);
        assert!(!after.searchable.contains(&"sessions_list".to_owned()), "{:?}", after.searchable);
    }

    #[test]
    fn without_a_choice_every_tool_is_offered_and_the_two_are_not() {
        let (_, _, tools) = world();

        assert_eq!(tools.offered(&AllowedTools::matching(|_| true), &[]).tools, tools.specs());
        assert!(!names(&tools.specs()).contains(&SEARCH_TOOL));
        assert_eq!(
            Registry::default()
                .with_direct_tools([])
                .offered(&AllowedTools::matching(|_| true), &[]),
            Offer::default()
        );
    }
}
