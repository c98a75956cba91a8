//! Templates of agents for one kind of work (spec TOL-035, REM-011, KBN-004, BHV-004).

use holdfast_agent::templates;
use holdfast_proto::gateway::v1::{Agent, BehaviorSettings};

use crate::error::Error;

pub const NAMES: [&str; 8] = [
    "web-agent",
    "study-coach",
    "librarian",
    "desktop-agent",
    "jarvis",
    "coder",
    "researcher",
    "study-planner",
];

/// Creates the agent of a template.
///
/// # Errors
///
/// If the template needs a node (`desktop-agent`).
pub fn from_template(template: &str, name: String) -> Result<Agent, Error> {
    let Some(template) = templates::find(template) else {
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
        behaviors: template.behaviors.map(|_| BehaviorSettings::default()),
        ..Agent::default()
    })
}

/// Returns the behaviours of a template's agent.
pub fn behaviors_of(template: &str) -> &'static [(&'static str, &'static str)] {
    templates::find(template).and_then(|template| template.behaviors).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use holdfast_agent::behavior::Behavior;
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
        assert_eq!(templates::TEMPLATES.len() + 1, NAMES.len());
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
    fn templates_with_behaviors_bring_valid_ones_and_start_with_the_router() {
        for (template, count) in
            [("jarvis", 0), ("coder", 2), ("researcher", 2), ("study-planner", 1)]
        {
            let agent = from_template(template, "a".to_owned()).unwrap();
            assert!(agent.behaviors.is_some(), "{template}");
            assert_eq!(behaviors_of(template).len(), count, "{template}");
            for (name, source) in behaviors_of(template) {
                let behavior = Behavior::parse(source, "unnamed")
                    .unwrap_or_else(|error| panic!("{template} {name}: {error}"));
                assert_eq!(behavior.name, *name, "{template}");
            }
        }
        assert!(from_template("web-agent", "a".to_owned()).unwrap().behaviors.is_none());
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
