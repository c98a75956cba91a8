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

/// Built-in skills for a [`SkillSet`](crate::SkillSet).
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
        let skills = SkillSet::from_files(builtin(), &SkillEnvironment::default());

        assert!(skills.unused_files().is_empty(), "{:?}", skills.unused_files());
        let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
        assert_eq!(
            skills.for_prompt(&[]).iter().map(|skill| skill.name).collect::<Vec<_>>(),
            names
        );
        for (name, text) in BUILTIN {
            assert!(skills.parse_invocation(&format!("/{name}")).unwrap().is_some(), "{name}");
            let (_, body) = text.split_once("\n---\n").unwrap();
            let body = body.trim_start();
            assert!(body.len() > 500 && body.starts_with("# "), "{name}");
        }
    }
}
