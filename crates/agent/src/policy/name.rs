//! Tool names: 24 canonical names and their aliases.
//!
//! Policies may use any alias, but decisions use the canonical name (spec C-05), so that no denial
//! is evaded by a synonym.

use std::borrow::Cow;

/// Canonical tools (spec TOL-008, C-06), sorted.
pub const NATIVE: [&str; 24] = [
    "agents_list",
    "apply_patch",
    "browser",
    "canvas",
    "cron",
    "edit",
    "exec",
    "gateway",
    "image",
    "memory_get",
    "memory_search",
    "message",
    "nodes",
    "process",
    "read",
    "session_status",
    "sessions_history",
    "sessions_list",
    "sessions_send",
    "sessions_spawn",
    "tts",
    "web_fetch",
    "web_search",
    "write",
];

/// Companions: tools that do a part of one of the 24, as (tool, principal).
///
/// A group with the principal includes its companions, and a denial of the principal denies them;
/// without this, `deny: [write]` would leave `append_file`. Allowing the principal by name does not
/// allow its companions.
pub const COMPANIONS: &[(&str, &str)] = &[
    ("append_file", "write"),
    ("bind_external_workspace", "write"),
    ("bind_workspace", "write"),
    ("create_workspace", "write"),
    ("delete_file", "write"),
    ("email", "message"),
    ("git", "exec"),
    ("install_skill", "write"),
    ("kb_get", "memory_get"),
    ("kb_ingest", "memory_search"),
    ("kb_search", "memory_search"),
    ("kb_update", "memory_search"),
    ("list_external_workspaces", "read"),
    ("list_files", "read"),
    ("memory_forget", "memory_search"),
    ("memory_save", "memory_search"),
    ("memory_set", "memory_search"),
    ("memory_values", "memory_search"),
    ("scheduler_add", "cron"),
    ("scheduler_cancel", "cron"),
    ("scheduler_list", "cron"),
    ("send_file", "read"),
    ("sessions_merge", "write"),
];

/// Every alias, as (alias, canonical name) (spec TOL-013, TOL-027, TOL-028, TOL-030, TOL-033).
const ALIASES: &[(&str, &str)] = &[
    ("bash", "exec"),
    ("apply-patch", "apply_patch"),
    ("automations", "cron"),
    ("send_message", "message"),
    ("run_command", "exec"),
    ("create_file", "write"),
    ("read_file", "read"),
    ("remove_file", "delete_file"),
    ("search_web", "web_search"),
    ("fetch_url", "web_fetch"),
    ("write_file", "write"),
    ("edit_file", "edit"),
    ("list_dir", "list_files"),
    ("spawn", "sessions_spawn"),
    ("subagent", "sessions_spawn"),
    ("send_msg", "message"),
    ("get_session", "session_status"),
    ("list_session", "sessions_list"),
    ("load_memory", "memory_search"),
    ("create_sub_agent", "sessions_spawn"),
];

/// Returns a tool's canonical name: trimmed, lower case, aliases resolved.
///
/// Hyphens become underscores where that gives a known name. Unknown names are only trimmed and
/// lower-cased.
#[must_use]
pub fn canonical(name: &str) -> Cow<'_, str> {
    let trimmed = name.trim();
    let lower: Cow<'_, str> = if trimmed.chars().any(char::is_uppercase) {
        trimmed.to_lowercase().into()
    } else {
        trimmed.into()
    };
    if let Some(known) = resolve(&lower) {
        return known.into();
    }
    if lower.contains('-')
        && let Some(known) = resolve(&lower.replace('-', "_"))
    {
        return known.into();
    }
    lower
}

/// Returns the canonical name of a lower-case word, if known.
fn resolve(word: &str) -> Option<&'static str> {
    if let Ok(at) = NATIVE.binary_search(&word) {
        return NATIVE.get(at).copied();
    }
    if let Some((_, canonical)) = ALIASES.iter().find(|(alias, _)| *alias == word) {
        return Some(canonical);
    }
    COMPANIONS.iter().map(|(tool, _)| *tool).find(|tool| *tool == word)
}

/// Whether a canonical name is one of the product's own tools.
pub(crate) fn is_known(canonical: &str) -> bool {
    NATIVE.binary_search(&canonical).is_ok()
        || COMPANIONS.iter().any(|(tool, _)| *tool == canonical)
}

/// Returns the aliases of a tool.
pub(crate) fn aliases_of(canonical: &str) -> impl Iterator<Item = &'static str> + '_ {
    ALIASES.iter().filter(move |(_, tool)| *tool == canonical).map(|(alias, _)| *alias)
}

/// Returns the tool that a companion belongs to.
pub(crate) fn principal_of(canonical: &str) -> Option<&'static str> {
    COMPANIONS.iter().find(|(tool, _)| *tool == canonical).map(|(_, principal)| *principal)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_catalogue_is_the_union_of_both_lists() {
        let s0_and_s2 = "exec process read write edit apply_patch sessions_spawn sessions_send \
            sessions_list sessions_history session_status agents_list memory_search memory_get \
            web_search web_fetch message cron gateway image tts nodes browser canvas";
        let mut expected: Vec<&str> = s0_and_s2.split_whitespace().collect();
        expected.sort_unstable();

        assert_eq!(NATIVE.to_vec(), expected);
    }

    #[test]
    fn every_source_s_word_names_the_same_tool() {
        for (word, tool) in [
            ("bash", "exec"),
            (" Bash ", "exec"),
            ("EXEC", "exec"),
            ("run_command", "exec"),
            ("apply-patch", "apply_patch"),
            ("create_file", "write"),
            ("write_file", "write"),
            ("read_file", "read"),
            ("edit_file", "edit"),
            ("fetch_url", "web_fetch"),
            ("spawn", "sessions_spawn"),
            ("subagent", "sessions_spawn"),
            ("create_sub_agent", "sessions_spawn"),
            ("send_msg", "message"),
            ("list_dir", "list_files"),
            ("memory-search", "memory_search"),
        ] {
            assert_eq!(canonical(word), tool, "{word}");
        }
    }

    #[test]
    fn an_alias_is_never_the_name_of_another_tool() {
        for (alias, canonical) in ALIASES {
            assert!(!is_known(alias), "{alias}");
            assert!(is_known(canonical), "{canonical}");
        }
        for (tool, principal) in COMPANIONS {
            assert!(NATIVE.binary_search(tool).is_err(), "{tool}");
            assert!(NATIVE.binary_search(principal).is_ok(), "{principal}");
        }
    }

    proptest! {
        #[test]
        fn a_canonical_name_is_its_own(name in "\\PC{0,40}") {
            let once = canonical(&name).into_owned();

            prop_assert_eq!(canonical(&once).into_owned(), once);
        }
    }
}
