//! Bootstrap files of a new agent: its identity, its user, its way of working.
//!
//! They are copied into the agent's tree once and belong to the agent from then on: a later version
//! of this binary does not change them.

/// Names and contents of the bootstrap files (spec BST-001), in reading order.
pub const TEMPLATES: [(&str, &str); 8] = [
    ("SOUL.md", include_str!("../templates/SOUL.md")),
    ("IDENTITY.md", include_str!("../templates/IDENTITY.md")),
    ("USER.md", include_str!("../templates/USER.md")),
    ("AGENTS.md", include_str!("../templates/AGENTS.md")),
    ("TOOLS.md", include_str!("../templates/TOOLS.md")),
    ("HEARTBEAT.md", include_str!("../templates/HEARTBEAT.md")),
    ("MEMORY.md", include_str!("../templates/MEMORY.md")),
    ("BOOTSTRAP.md", include_str!("../templates/BOOTSTRAP.md")),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters of one file in a prompt before it is cut (spec BST-002).
    const PROMPT_LIMIT: usize = 20_000;

    #[test]
    fn every_template_is_named_as_the_spec_says_and_fits_in_a_prompt_with_the_others() {
        let names: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).collect();

        assert_eq!(
            names,
            [
                "SOUL.md",
                "IDENTITY.md",
                "USER.md",
                "AGENTS.md",
                "TOOLS.md",
                "HEARTBEAT.md",
                "MEMORY.md",
                "BOOTSTRAP.md"
            ]
        );
        let all: usize = TEMPLATES.iter().map(|(_, text)| text.chars().count()).sum();
        assert!(all < PROMPT_LIMIT, "{all} characters");
        assert!(TEMPLATES.iter().all(|(_, text)| text.ends_with('\n') && !text.contains('\r')));
    }

    #[test]
    fn the_heartbeat_asks_for_nothing_until_somebody_writes_into_it() {
        let (_, heartbeat) = TEMPLATES[5];

        let comment = heartbeat.trim();
        assert!(comment.starts_with("<!--") && comment.ends_with("-->"));
        assert_eq!(comment.matches("-->").count(), 1);
    }
}
