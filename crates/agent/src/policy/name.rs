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

/// Product that an alias comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// OpenClaw and its replicas (S0, S2).
    Claw,
    /// The personal agent hub (S1).
    Hub,
    /// PicoClaw (S3).
    Pico,
    /// OpenDAN (S4).
    Dan,
}

/// Alternative name of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias {
    pub name: &'static str,
    pub canonical: &'static str,
    pub family: Family,
    /// Difference of a call by this name; empty if there is none.
    pub note: &'static str,
}

const fn alias(
    family: Family,
    name: &'static str,
    canonical: &'static str,
    note: &'static str,
) -> Alias {
    Alias { name, canonical, family, note }
}

/// Every alias (spec TOL-013, TOL-027, TOL-028, TOL-030, TOL-033).
pub const ALIASES: &[Alias] = &[
    alias(Family::Claw, "bash", "exec", ""),
    alias(Family::Claw, "apply-patch", "apply_patch", ""),
    alias(Family::Claw, "automations", "cron", ""),
    alias(Family::Claw, "send_message", "message", ""),
    alias(Family::Hub, "run_command", "exec", "timeout 30 s, output 2000 characters, no sudo"),
    alias(Family::Hub, "create_file", "write", "makes the folders above it"),
    alias(Family::Hub, "read_file", "read", ""),
    alias(Family::Hub, "remove_file", "delete_file", ""),
    alias(Family::Hub, "search_web", "web_search", ""),
    alias(Family::Hub, "fetch_url", "web_fetch", "timeout 10 s, 5000 characters, adds https://"),
    alias(Family::Pico, "write_file", "write", ""),
    alias(Family::Pico, "edit_file", "edit", "fails if the old text is missing or not unique"),
    alias(Family::Pico, "list_dir", "list_files", "lines of `DIR:  x` and `FILE: x`"),
    alias(Family::Pico, "spawn", "sessions_spawn", "does not wait for the result"),
    alias(Family::Pico, "subagent", "sessions_spawn", "waits for the result"),
    alias(Family::Dan, "send_msg", "message", "action send"),
    alias(Family::Dan, "get_session", "session_status", ""),
    alias(Family::Dan, "list_session", "sessions_list", ""),
    alias(Family::Dan, "load_memory", "memory_search", ""),
    alias(Family::Dan, "create_sub_agent", "sessions_spawn", "takes a capability bundle"),
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
    if let Some(alias) = ALIASES.iter().find(|alias| alias.name == word) {
        return Some(alias.canonical);
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
    ALIASES.iter().filter(move |alias| alias.canonical == canonical).map(|alias| alias.name)
}

/// Returns the tool that a companion belongs to.
pub(crate) fn principal_of(canonical: &str) -> Option<&'static str> {
    COMPANIONS.iter().find(|(tool, _)| *tool == canonical).map(|(_, principal)| *principal)
}

/// Returns the name of a tool for models that expect the names of this family.
#[must_use]
pub fn name_for_family(canonical: &str, family: Family) -> &str {
    ALIASES
        .iter()
        .find(|alias| alias.family == family && alias.canonical == canonical)
        .map_or(canonical, |alias| alias.name)
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
        for alias in ALIASES {
            assert!(!is_known(alias.name), "{}", alias.name);
            assert!(is_known(alias.canonical), "{}", alias.canonical);
        }
        for (tool, principal) in COMPANIONS {
            assert!(NATIVE.binary_search(tool).is_err(), "{tool}");
            assert!(NATIVE.binary_search(principal).is_ok(), "{principal}");
        }
    }

    #[test]
    fn a_model_is_shown_one_form_of_a_name() {
        assert_eq!(name_for_family("exec", Family::Hub), "run_command");
        assert_eq!(name_for_family("exec", Family::Claw), "bash");
        assert_eq!(name_for_family("sessions_spawn", Family::Pico), "spawn");
        assert_eq!(name_for_family("cron", Family::Hub), "cron");
    }

    proptest! {
        #[test]
        fn a_canonical_name_is_its_own(name in "\\PC{0,40}") {
            let once = canonical(&name).into_owned();

            prop_assert_eq!(canonical(&once).into_owned(), once);
        }
    }
}
