//! Tool groups: `group:fs`, `group:web` … (spec POL-002).

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub name: &'static str,
    /// Canonical names. The companions of these tools are members too.
    pub tools: &'static [&'static str],
}

const fn group(name: &'static str, tools: &'static [&'static str]) -> Group {
    Group { name, tools }
}

pub const GROUPS: &[Group] = &[
    group("automation", &["cron", "gateway"]),
    group("fs", &["read", "write", "edit", "apply_patch"]),
    group("image", &["image"]),
    group("memory", &["memory_search", "memory_get"]),
    group("messaging", &["message"]),
    group("nodes", &["nodes"]),
    group("runtime", &["exec", "process"]),
    group(
        "sessions",
        &[
            "sessions_spawn",
            "sessions_send",
            "sessions_list",
            "sessions_history",
            "session_status",
            "agents_list",
        ],
    ),
    group("tts", &["tts"]),
    group("ui", &["browser", "canvas"]),
    group("web", &["web_search", "web_fetch"]),
];

/// Short names of tool families, which lists may use without `group:` (spec RTE-020), and the tools
/// whose groups they name.
const FAMILIES: [(&str, &[&str]); 4] = [
    ("filesystem", &["read", "write", "edit", "apply_patch"]),
    ("scheduler", &["cron"]),
    ("shell", &["exec", "process"]),
    ("web", &["web_search", "web_fetch"]),
];

/// Returns the members of a tool family by its lower-case name.
pub(crate) fn family(word: &str) -> Option<Members> {
    let found = FAMILIES.iter().find(|(name, _)| *name == word);
    found.map(|(_, tools)| Members::Fixed(tools))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Members {
    Fixed(&'static [&'static str]),
    /// All of the product's own tools.
    Native,
    Plugins,
    Mcp,
    Plugin(String),
    /// Tools of one MCP server.
    Server(String),
    /// No members: there is no such group.
    Unknown,
}

/// Returns the members of a group by its lower-case name.
pub(crate) fn members(word: &str) -> Members {
    match word {
        // Names that the replicated products use.
        "native" | "lurkbot" | "openclaw" | "holdfast" => Members::Native,
        "plugins" => Members::Plugins,
        "mcp" => Members::Mcp,
        word => match (word.split_once(':'), GROUPS.iter().find(|group| group.name == word)) {
            (Some(("plugin", id)), _) if !id.is_empty() => Members::Plugin(id.to_owned()),
            (Some(("mcp", server)), _) if !server.is_empty() => Members::Server(server.to_owned()),
            (_, Some(group)) => Members::Fixed(group.tools),
            (_, None) => Members::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::name::NATIVE;

    #[test]
    fn every_group_has_the_tools_that_its_table_says() {
        for (word, tools) in [
            ("memory", "memory_search memory_get"),
            ("web", "web_search web_fetch"),
            ("fs", "read write edit apply_patch"),
            ("runtime", "exec process"),
            (
                "sessions",
                "sessions_spawn sessions_send sessions_list sessions_history session_status \
                 agents_list",
            ),
            ("ui", "browser canvas"),
            ("automation", "cron gateway"),
            ("messaging", "message"),
            ("nodes", "nodes"),
            ("tts", "tts"),
            ("image", "image"),
        ] {
            let Members::Fixed(found) = members(word) else { panic!("{word} is no fixed group") };
            assert_eq!(found.to_vec(), tools.split_whitespace().collect::<Vec<_>>(), "{word}");
        }
    }

    #[test]
    fn the_short_name_of_a_family_means_the_same_in_every_list() {
        for (word, tools) in FAMILIES {
            assert_eq!(family(word), Some(Members::Fixed(tools)));
            assert!(tools.iter().all(|tool| NATIVE.contains(tool)), "{word}");
        }
        assert_eq!(family("fs"), None);
    }

    #[test]
    fn each_tool_of_the_catalogue_is_in_exactly_one_group() {
        for tool in NATIVE {
            let groups = GROUPS.iter().filter(|group| group.tools.contains(&tool)).count();
            assert_eq!(groups, 1, "{tool}");
        }
    }

    #[test]
    fn the_groups_of_plugins_and_servers_are_read_by_their_ids() {
        assert_eq!(members("plugin:jira"), Members::Plugin("jira".into()));
        assert_eq!(members("mcp:github"), Members::Server("github".into()));
        assert_eq!(members("mcp"), Members::Mcp);
        for alias in ["native", "lurkbot", "openclaw"] {
            assert_eq!(members(alias), Members::Native, "{alias}");
        }
        for unknown in ["", "plugin:", "nothing", "fs:x", "文件"] {
            assert_eq!(members(unknown), Members::Unknown, "{unknown}");
        }
    }
}
