//! Skills shipped with the platform. A skill of the same name of a tenant or agent hides them.

use crate::{Scope, SkillFile};

/// Names and `SKILL.md` texts.
pub const BUILTIN: &[(&str, &str)] = &[
    ("plan-a-trip", include_str!("../builtin/plan-a-trip/SKILL.md")),
    ("research-a-question", include_str!("../builtin/research-a-question/SKILL.md")),
    ("summarise", include_str!("../builtin/summarise/SKILL.md")),
    ("tidy-notes", include_str!("../builtin/tidy-notes/SKILL.md")),
    ("weekly-review", include_str!("../builtin/weekly-review/SKILL.md")),
];

/// Built-in skills for a [`Shelf`](crate::SkillSet).
pub fn builtin() -> impl Iterator<Item = SkillFile> {
    BUILTIN.iter().map(|(name, text)| SkillFile {
        scope: Scope::Platform,
        folder: (*name).to_owned(),
        text: text.as_bytes().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SkillEnvironment, SkillSet};

    #[test]
    fn all_of_them_are_of_use_everywhere_and_may_be_called() {
        let shelf = SkillSet::from_files(builtin(), &SkillEnvironment::default());

        assert!(shelf.unused_files().is_empty(), "{:?}", shelf.unused_files());
        let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
        assert_eq!(shelf.for_prompt(&[]).iter().map(|skill| skill.name).collect::<Vec<_>>(), names);
        for (name, text) in BUILTIN {
            let skill = shelf
                .parse_invocation(&format!("/{name}"))
                .unwrap()
                .map(|found| found.skill.clone());
            let body = skill.unwrap().manifest.body(text, "skills/x");
            assert!(body.len() > 500 && body.starts_with("# "), "{name}");
        }
    }
}
