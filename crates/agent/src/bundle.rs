//! Tool bundles: named sets of tools for subagents (spec SUB-018).
//!
//! A subagent gets the tools of its bundle and its list, less those that policy denies: a bundle
//! never gives more than the agent itself has. An agent's own bundles take precedence over these.

/// Shipped bundles: name and tools.
pub const BUNDLES: [(&str, &[&str]); 5] = [
    ("none", &[]),
    ("read", &["list_files", "read"]),
    (
        "files",
        &["append_file", "apply_patch", "delete_file", "edit", "list_files", "read", "write"],
    ),
    ("research", &["list_files", "read", "web_fetch", "web_search"]),
    (
        "code",
        &[
            "append_file",
            "apply_patch",
            "delete_file",
            "edit",
            "exec",
            "list_files",
            "process",
            "read",
            "write",
        ],
    ),
];

/// Tools that can reach all files of an agent, so a subagent with a file scope does not get them.
pub const UNSCOPED_TOOLS: [&str; 2] = ["exec", "process"];

#[must_use]
pub fn bundle(name: &str) -> Option<&'static [&'static str]> {
    BUNDLES.iter().find(|(known, _)| *known == name).map(|(_, tools)| *tools)
}

/// Returns the union of a bundle and a list; `None` is all tools. If only one is given, the other
/// adds nothing.
#[must_use]
pub fn granted_tools(set: Option<&[String]>, list: Option<&[String]>) -> Option<Vec<String>> {
    if set.is_none() && list.is_none() {
        return None;
    }
    let all = set.unwrap_or_default().iter().chain(list.unwrap_or_default());
    let mut tools: Vec<String> = all.cloned().collect();
    tools.sort_unstable();
    tools.dedup();
    Some(tools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_and_a_list_are_taken_together_and_neither_is_everything() {
        let (set, list) = (["b".to_owned(), "a".to_owned()], ["c".to_owned(), "a".to_owned()]);

        assert_eq!(granted_tools(None, None), None);
        assert_eq!(granted_tools(Some(&set), None).unwrap(), ["a", "b"]);
        assert_eq!(granted_tools(Some(&set), Some(&list)).unwrap(), ["a", "b", "c"]);
        assert_eq!(granted_tools(None, Some(&[])), Some(Vec::new()));
    }

    #[test]
    fn a_set_is_known_by_its_name() {
        assert_eq!(bundle("none"), Some(&[][..]));
        assert!(bundle("code").is_some_and(|tools| tools.contains(&"exec")));
        assert_eq!(bundle("Code"), None);
    }
}
