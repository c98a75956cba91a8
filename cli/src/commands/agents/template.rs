//! Templates of agents for one kind of work (spec TOL-035, REM-011, KBN-004).

use holdfast_proto::gateway::v1::Agent;

use crate::error::Error;

pub const NAMES: [&str; 4] = ["web-agent", "study-coach", "librarian", "desktop-agent"];

struct Template {
    name: &'static str,
    description: &'static str,
    instructions: &'static str,
    /// Tools that the agent may use; empty allows all that the policy allows.
    tools: &'static [&'static str],
}

const TEMPLATES: [Template; 3] = [
    Template {
        name: "web-agent",
        description: "Looks things up and does things on web pages.",
        instructions: include_str!("../../../templates/web-agent.md"),
        tools: &["browser", "web_fetch", "web_search"],
    },
    Template {
        name: "study-coach",
        description: "Plans learning and exams, asks back, reminds and goes on reminding.",
        instructions: include_str!("../../../templates/study-coach.md"),
        tools: &[],
    },
    Template {
        name: "librarian",
        description: "Keeps the knowledge base: adds to it, brings it up to date, answers from it.",
        instructions: include_str!("../../../templates/librarian.md"),
        tools: &["kb_search", "kb_get", "kb_ingest", "kb_update", "web_fetch", "web_search"],
    },
];

/// Creates the agent of a template.
///
/// # Errors
///
/// If the template needs a node (`desktop-agent`).
pub fn from_template(template: &str, name: String) -> Result<Agent, Error> {
    let Some(template) = TEMPLATES.iter().find(|known| known.name == template) else {
        return Err(Error::Usage(
            "a desktop-agent works on a person's own machine, and only through a node that runs \
             there: give an agent the tool `nodes` instead, with `--tools nodes`"
                .to_owned(),
        ));
    };
    Ok(Agent {
        name,
        description: template.description.to_owned(),
        instructions: template.instructions.trim_end().to_owned(),
        tools: template.tools.iter().map(|&tool| tool.to_owned()).collect(),
        ..Agent::default()
    })
}

#[cfg(test)]
mod tests {
    use holdfast_schedule::reminder::Locale;

    use super::*;

    #[test]
    fn a_web_agent_has_the_web_s_tools_and_no_others() {
        let agent = from_template("web-agent", "surfer".to_owned()).unwrap();

        assert_eq!((agent.name.as_str(), agent.tools.len()), ("surfer", 3));
        assert!(agent.instructions.contains("never an instruction"));
        let told = from_template("desktop-agent", "x".to_owned()).unwrap_err().to_string();
        assert!(told.contains("through a node"), "{told}");
    }

    #[test]
    fn every_template_that_is_named_is_there_or_says_what_to_do() {
        let there = |name: &&str| from_template(name, "a".to_owned()).is_ok();

        assert_eq!(
            NAMES.iter().filter(|name| !there(name)).collect::<Vec<_>>(),
            [&"desktop-agent"]
        );
        assert_eq!(TEMPLATES.len() + 1, NAMES.len());
    }

    #[test]
    fn a_coach_knows_a_reminder_by_what_the_scheduler_says_in_each_language() {
        let agent = from_template("study-coach", "coach".to_owned()).unwrap();

        for locale in [Locale::En, Locale::Zh] {
            let fired = locale.fired("vocabulary");
            let begins = &fired[..=fired.find(']').unwrap()];
            assert!(agent.instructions.contains(begins), "{begins}");
        }
        let places = ["1. Remind", "2. Set the next", "3. Where it helps"];
        assert!(places.map(|at| agent.instructions.find(at).unwrap()).is_sorted());
        // Empty: all that the policy allows, which includes the tools for reminders.
        assert!(agent.tools.is_empty());
    }

    #[test]
    fn a_librarian_may_change_the_knowledge_base_and_run_nothing() {
        let agent = from_template("librarian", "mia".to_owned()).unwrap();

        for tool in ["kb_search", "kb_get", "kb_ingest", "kb_update"] {
            assert!(agent.tools.iter().any(|has| has == tool) && agent.instructions.contains(tool));
        }
        assert!(!agent.tools.iter().any(|has| has == "exec" || has == "write"));
    }
}
