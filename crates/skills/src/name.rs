//! Name of a skill, and its folder in a tree.
//!
//! The name is also a folder, a slash command and a registry entry, so only characters are allowed
//! that are safe in all three: ASCII letters, digits and single hyphens. Without other scripts, no
//! name can imitate another one with lookalike letters.

use std::{fmt, str::FromStr};

pub use holdfast_agent::file_view::SKILLS_FOLDER;
use holdfast_types::TreePath;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Maximum length of a name, in characters (spec SKL-002).
const MAX_NAME_CHARS: usize = 64;

/// Maximum number of characters of an invalid name in an error.
const MAX_SHOWN_CHARS: usize = 80;

/// Name of a skill: `[A-Za-z0-9]+(-[A-Za-z0-9]+)*`, 1 to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SkillName(String);

/// Error: a text is not a valid skill name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not a skill's name: {problem}")]
pub struct InvalidName {
    given: String,
    problem: &'static str,
}

impl SkillName {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name in lower case. Two names with the same key count as the same skill.
    #[must_use]
    pub fn key(&self) -> String {
        self.0.to_ascii_lowercase()
    }

    /// Whether the names are equal, ignoring case.
    #[must_use]
    pub fn is_same(&self, other: &str) -> bool {
        self.0.eq_ignore_ascii_case(other)
    }
}

fn name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("it is empty: write one such as `plan-a-trip`");
    }
    if name.len() > MAX_NAME_CHARS {
        return Some("it has more than 64 characters: take a shorter one");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Some("it may have the letters a to z, digits and hyphens, as in `plan-a-trip`");
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        return Some("hyphens stand alone between two words, as in `plan-a-trip`");
    }
    None
}

impl FromStr for SkillName {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        match name_problem(name) {
            None => Ok(Self(name.to_owned())),
            Some(problem) => Err(InvalidName { given: escape_untrusted(name), problem }),
        }
    }
}

impl fmt::Display for SkillName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for SkillName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SkillName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Beginning of an untrusted text for an error message. Control characters and symbols outside of
/// ASCII are escaped.
pub(crate) fn escape_untrusted(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars().take(MAX_SHOWN_CHARS) {
        if letter.is_ascii_graphic() || letter == ' ' || letter.is_alphanumeric() {
            shown.push(letter);
        } else {
            shown.extend(letter.escape_unicode());
        }
    }
    shown
}

/// Paths of a skill: those in a folder of its name, ignoring case.
pub(crate) fn paths_of_skill<'a>(
    present: &'a [TreePath],
    name: &'a SkillName,
) -> impl Iterator<Item = &'a TreePath> {
    present.iter().filter(move |path| {
        let mut parts = path.parts();
        parts.next() == Some(SKILLS_FOLDER)
            && parts.next().is_some_and(|folder| name.is_same(folder))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_are_taken() {
        for good in ["a", "plan-a-trip", "7zip", "GitHub", &"x".repeat(64)] {
            assert_eq!(good.parse::<SkillName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn what_could_leave_a_folder_or_look_like_another_is_refused_with_what_to_write() {
        for (bad, told) in [
            ("", "it is empty"),
            (".", "letters a to z"),
            ("..", "letters a to z"),
            ("../x", "letters a to z"),
            ("a/b", "letters a to z"),
            ("a\\b", "letters a to z"),
            ("a b", "letters a to z"),
            ("a_b", "letters a to z"),
            ("a.b", "letters a to z"),
            ("a\0", "letters a to z"),
            // A Cyrillic `а`, a full-width `a`, a letter nobody sees, a hyphen that is none.
            ("pl\u{430}n", "letters a to z"),
            ("\u{ff41}", "letters a to z"),
            ("plan\u{200b}", "letters a to z"),
            ("a\u{2010}b", "letters a to z"),
            ("-a", "hyphens stand alone"),
            ("a-", "hyphens stand alone"),
            ("a--b", "hyphens stand alone"),
            (&"x".repeat(65), "64 characters"),
        ] {
            let error = bad.parse::<SkillName>().unwrap_err().to_string();

            assert!(error.contains(told), "{error}");
            assert!(error.len() < 1000 && !error.contains(char::is_control), "{error}");
        }
    }

    #[test]
    fn names_in_another_case_are_the_same() {
        let name: SkillName = "GitHub".parse().unwrap();

        assert!(name.is_same("github") && !name.is_same("git-hub"));
        assert_eq!(name.key(), "github");
    }
}
