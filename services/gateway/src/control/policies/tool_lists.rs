//! Warnings about lists of tools that are stored outside of policies.

use holdfast_agent::policy::{Catalog, CompiledPolicy, Defaults, Settings, Tool, Warning};

use super::super::State;
use crate::Error;

/// Beginnings of entries for tools that come and go with their servers.
const MCP_PREFIXES: [&str; 2] = ["mcp_", "group:mcp:"];

/// Names the entries of a list that cover no tool; `at` names the list. Runners skip such entries.
/// Nothing is known, and there are no warnings, before a runner has announced its tools.
pub async fn list_warnings(state: &State, at: &str, list: &[String]) -> Result<Vec<String>, Error> {
    let known = state.directory.policies().known_tools().await?;
    if known.is_empty() || list.is_empty() {
        return Ok(Vec::new());
    }
    let (catalog, _) = Catalog::new(known.iter().map(|tool| Tool::native(&tool.name)));
    let is_of_server = |entry: &str| MCP_PREFIXES.iter().any(|prefix| entry.starts_with(prefix));
    let listed = list.iter().filter(|entry| !is_of_server(entry)).cloned();
    let settings = Settings { tools: Some(listed.collect()), ..Settings::default() };
    let own = Settings::default();
    let compiled = CompiledPolicy::new(catalog.into(), &Defaults::default(), &settings, &own);
    Ok(match compiled {
        Ok(compiled) => {
            let warnings = compiled.warnings().iter();
            let unknown = warnings.filter_map(|warning| match warning {
                Warning::Unknown { entry, .. } => {
                    Some(Warning::Unknown { at: at.to_owned(), entry: entry.clone() }.to_string())
                }
                Warning::CoreKept { .. } | Warning::Unnameable { .. } | Warning::Clash { .. } => {
                    None
                }
            });
            unknown.collect()
        }
        // An entry that no tool could have as its name.
        Err(error) => vec![error.to_string()],
    })
}
