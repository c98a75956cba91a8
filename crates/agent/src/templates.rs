//! Templates of agents for one kind of work (spec TOL-035, REM-011, KBN-004, BHV-004).

/// Settings with which a person begins a new agent for one kind of work.
#[derive(Debug)]
pub struct AgentTemplate {
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    pub description: &'static str,
    pub instructions: &'static str,
    /// Tools that the agent may use; empty allows all that the policy allows.
    pub tools: &'static [&'static str],
    /// Behaviours of the agent, by name, which replace the built-in ones; `None` works without
    /// behaviours.
    pub behaviors: Option<&'static [(&'static str, &'static str)]>,
}

/// All templates.
pub static TEMPLATES: [AgentTemplate; 7] = [
    AgentTemplate {
        name: "web-agent",
        title: "Web agent",
        description: "Looks things up and does things on web pages.",
        instructions: include_str!("../templates/web-agent.md"),
        tools: &["browser", "web_fetch", "web_search"],
        behaviors: None,
    },
    AgentTemplate {
        name: "study-coach",
        title: "Study coach",
        description: "Plans learning and exams, asks back, reminds and goes on reminding.",
        instructions: include_str!("../templates/study-coach.md"),
        tools: &[],
        behaviors: None,
    },
    AgentTemplate {
        name: "librarian",
        title: "Librarian",
        description: "Keeps the knowledge base: adds to it, brings it up to date, answers from it.",
        instructions: include_str!("../templates/librarian.md"),
        tools: &["kb_search", "kb_get", "kb_ingest", "kb_update", "web_fetch", "web_search"],
        behaviors: None,
    },
    AgentTemplate {
        name: "jarvis",
        title: "Jarvis",
        description: "Answers small things at once; plans, does and checks larger ones.",
        instructions: include_str!("../templates/jarvis.md"),
        tools: &[],
        behaviors: Some(&[]),
    },
    AgentTemplate {
        name: "coder",
        title: "Coder",
        description: "Writes and changes software in its workspace, with tests.",
        instructions: include_str!("../templates/coder.md"),
        tools: &[],
        behaviors: Some(&[
            ("do", include_str!("../templates/behaviors/coder-do.yaml")),
            ("check", include_str!("../templates/behaviors/coder-check.yaml")),
        ]),
    },
    AgentTemplate {
        name: "researcher",
        title: "Researcher",
        description: "Answers questions from sources that it names, and writes reports.",
        instructions: include_str!("../templates/researcher.md"),
        tools: &[],
        behaviors: Some(&[
            ("do", include_str!("../templates/behaviors/researcher-do.yaml")),
            ("check", include_str!("../templates/behaviors/researcher-check.yaml")),
        ]),
    },
    AgentTemplate {
        name: "study-planner",
        title: "Study planner",
        description: "Makes study plans, sets the reminders for them, and keeps them up to date.",
        instructions: include_str!("../templates/study-planner.md"),
        tools: &[],
        behaviors: Some(&[("do", include_str!("../templates/behaviors/study-planner-do.yaml"))]),
    },
];

/// Returns the template of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static AgentTemplate> {
    TEMPLATES.iter().find(|template| template.name == name)
}
