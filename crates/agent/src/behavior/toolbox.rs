//! Tools and skills of a behaviour (spec BHV-018).

use serde::{Deserialize, Serialize};

/// Tools that no behaviour takes away; only policy does (spec PRM-009, TOL-034).
pub const META_TOOLS: [&str; 9] = [
    "edit",
    "exec",
    "list_files",
    "read",
    "session_status",
    "todo",
    "tool_describe",
    "tool_search",
    "write",
];

/// Tools of a behaviour, besides [`META_TOOLS`]. They never exceed those of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolFilter {
    /// All tools of the agent.
    #[default]
    All,
    List(Vec<String>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toolbox {
    pub tools: ToolFilter,
    /// Skills that the behaviour may use; `None` is all of the agent's.
    pub skills: Option<Vec<String>>,
    /// Skills whose text is in the prompt from the start.
    pub load_skills: Vec<String>,
    /// Tools that the model is shown from the start, without looking them up.
    pub loaded_tools: Vec<String>,
}

impl Toolbox {
    /// Whether the behaviour offers a tool. Whether it may be called is the policy's decision.
    #[must_use]
    pub fn offers(&self, tool: &str) -> bool {
        META_TOOLS.contains(&tool)
            || match &self.tools {
                ToolFilter::All => true,
                ToolFilter::List(names) => names.iter().any(|name| name == tool),
            }
    }

    #[must_use]
    pub fn has_skill(&self, skill: &str) -> bool {
        self.skills.as_ref().is_none_or(|names| names.iter().any(|name| name == skill))
    }
}

/// Toolbox as it is written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ToolboxDocument {
    mode: ToolboxMode,
    tools: Option<ToolList>,
    skills: Option<Vec<String>>,
    load_skills: Vec<String>,
    #[serde(alias = "allow_tools")]
    loaded_tools: Vec<String>,
    /// Tools that are meant to be called as actions.
    default_load_actions: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolboxMode {
    /// What the agent has, unless `tools` or `skills` say otherwise.
    #[default]
    Inherit,
    /// What is listed, and nothing else.
    Alone,
    None,
}

/// Tools as they are written: names, or a mode with names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum ToolList {
    Names(Vec<String>),
    Mode {
        mode: ToolListMode,
        #[serde(default)]
        names: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToolListMode {
    All,
    AllowList,
    None,
}

impl ToolboxDocument {
    /// `tools` is the list beside the toolbox, which the one in it replaces.
    pub(super) fn compile(self, tools: Option<ToolList>) -> Toolbox {
        let listed = self.tools.or(tools).map(ToolList::filter);
        let loaded_tools = [self.loaded_tools, self.default_load_actions].concat();
        match self.mode {
            ToolboxMode::Inherit => Toolbox {
                tools: listed.unwrap_or_default(),
                skills: self.skills,
                load_skills: self.load_skills,
                loaded_tools,
            },
            ToolboxMode::Alone => Toolbox {
                tools: listed.unwrap_or(ToolFilter::List(Vec::new())),
                skills: Some([self.skills.unwrap_or_default(), self.load_skills.clone()].concat()),
                load_skills: self.load_skills,
                loaded_tools,
            },
            ToolboxMode::None => Toolbox {
                tools: ToolFilter::List(Vec::new()),
                skills: Some(Vec::new()),
                ..Toolbox::default()
            },
        }
    }

    /// All names, for a check of their form.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        let tools = self.tools.as_ref().map_or(&[][..], ToolList::names);
        let skills = self.skills.iter().flatten();
        let loaded = self.load_skills.iter().chain(&self.loaded_tools);
        tools.iter().chain(skills).chain(loaded).chain(&self.default_load_actions)
    }
}

impl ToolList {
    fn filter(self) -> ToolFilter {
        match self {
            Self::Mode { mode: ToolListMode::All, .. } => ToolFilter::All,
            Self::Mode { mode: ToolListMode::None, .. } => ToolFilter::List(Vec::new()),
            Self::Names(names) | Self::Mode { mode: ToolListMode::AllowList, names } => {
                ToolFilter::List(names)
            }
        }
    }

    pub(super) fn names(&self) -> &[String] {
        match self {
            Self::Names(names) | Self::Mode { names, .. } => names,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn toolbox(document: Value) -> Toolbox {
        serde_json::from_value::<ToolboxDocument>(document).unwrap().compile(None)
    }

    #[test]
    fn a_toolbox_narrows_the_agent_s_tools_and_never_takes_the_meta_tools() {
        for (document, has_search, has_fetch) in [
            (json!({}), true, true),
            (json!({"tools": ["web_search"]}), true, false),
            (json!({"tools": {"mode": "allow_list", "names": ["web_search"]}}), true, false),
            (json!({"tools": {"mode": "all"}}), true, true),
            (json!({"tools": {"mode": "none"}}), false, false),
            (json!({"mode": "alone"}), false, false),
            (json!({"mode": "alone", "tools": ["web_search"]}), true, false),
            (json!({"mode": "none", "tools": ["web_search"]}), false, false),
        ] {
            let toolbox = toolbox(document.clone());
            assert_eq!(toolbox.offers("web_search"), has_search, "{document}");
            assert_eq!(toolbox.offers("web_fetch"), has_fetch, "{document}");
            assert!(META_TOOLS.iter().all(|tool| toolbox.offers(tool)), "{document}");
        }
    }

    #[test]
    fn skills_are_the_agent_s_unless_they_are_listed() {
        assert!(toolbox(json!({})).has_skill("git"));
        assert!(!toolbox(json!({"skills": ["pdf"]})).has_skill("git"));
        assert!(!toolbox(json!({"mode": "none"})).has_skill("git"));
        let alone = toolbox(json!({"mode": "alone", "load_skills": ["git"]}));
        assert!(alone.has_skill("git") && !alone.has_skill("pdf"));
    }

    #[test]
    fn the_list_beside_the_toolbox_counts_if_there_is_none_in_it() {
        let beside = || Some(ToolList::Names(vec!["cron".to_owned()]));
        let document = |text: &str| serde_json::from_str::<ToolboxDocument>(text).unwrap();

        assert!(!document("{}").compile(beside()).offers("message"));
        assert!(document("{}").compile(beside()).offers("cron"));
        assert!(!document(r#"{"tools": ["message"]}"#).compile(beside()).offers("cron"));
    }
}
