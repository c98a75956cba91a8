//! Environment variables of skills: secrets for the commands of a skill.

use std::fmt;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::Error;

const MAX_NAME_BYTES: usize = 100;

/// Minimum length of a value, in bytes. A shorter value could not be redacted from command output,
/// because it would match too much.
const MIN_VALUE_BYTES: usize = 6;
const MAX_VALUE_BYTES: usize = 8_000;

/// Variables that control how commands run, and cannot be set for a skill.
const RESERVED_VARIABLES: [&str; 10] =
    ["BASH_ENV", "ENV", "HOME", "IFS", "LOGNAME", "PATH", "PWD", "SHELL", "TMPDIR", "USER"];

/// Prefixes of such variables.
const RESERVED_PREFIXES: [&str; 3] = ["BASH_FUNC_", "HOLDFAST_", "LD_"];

/// A variable of a skill, without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillVariable {
    /// Name of the skill, in lower case.
    pub skill: String,
    pub name: String,
    /// When it was set last.
    pub updated_at: Timestamp,
}

/// A variable of a skill, with its value.
#[derive(Clone)]
pub struct SkillVariableValue {
    /// Name of the skill, in lower case.
    pub skill: String,
    pub name: String,
    pub value: SecretString,
}

impl fmt::Debug for SkillVariableValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenVariable")
            .field("skill", &self.skill)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Checks a skill's name, and returns its stored form.
pub(crate) fn skill_key(skill: &str) -> Result<String, Error> {
    let key = skill.to_ascii_lowercase();
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=64).contains(&key.len()) && !key.starts_with('-') && key.chars().all(is_plain) {
        return Ok(key);
    }
    let shown: String = skill.chars().take(80).collect();
    Err(Error::Invalid(format!(
        "`{shown}` is not a skill's name: write 1 to 64 letters, digits and single hyphens"
    )))
}

/// Checks the name and the value of a variable.
pub(crate) fn check(name: &str, value: &SecretString) -> Result<(), Error> {
    check_name(name)?;
    let value = value.expose_secret();
    if !(MIN_VALUE_BYTES..=MAX_VALUE_BYTES).contains(&value.len()) || value.contains('\0') {
        return Err(Error::Invalid(format!(
            "a variable's value has {MIN_VALUE_BYTES} to {MAX_VALUE_BYTES} bytes, and no zero: a \
             shorter one could not be kept out of what commands write"
        )));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Error> {
    let mut bytes = name.bytes();
    let is_name = name.len() <= MAX_NAME_BYTES
        && bytes.next().is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    let shown: String = name.chars().take(80).collect();
    if !is_name {
        return Err(Error::Invalid(format!(
            "`{shown}` is not a variable's name: write letters, digits and `_`, as in `GARDEN_KEY`"
        )));
    }
    let is_reserved = RESERVED_VARIABLES.contains(&name)
        || RESERVED_PREFIXES.iter().any(|beginning| name.starts_with(beginning));
    if is_reserved {
        return Err(Error::Invalid(format!(
            "`{shown}` says how commands run, and cannot be a skill's: have the skill take another"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_a_name_that_changes_nothing_of_how_commands_run() {
        let checked = |name: &str| check(name, &"s3cret".into());
        for name in ["GARDEN_KEY", "_x", "a1"] {
            assert!(checked(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "1A",
            "A-B",
            "A=B",
            "PATH",
            "LD_PRELOAD",
            "HOLDFAST_X",
            "BASH_ENV",
            &"x".repeat(101),
        ] {
            assert!(checked(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_value_is_long_enough_to_be_found_and_no_error_repeats_it() {
        for value in ["s3crt", "", "s3c\0ret", &"s".repeat(8_001)] {
            let refused = check("KEY", &value.into()).unwrap_err().to_string();
            assert!(refused.contains("6 to 8000 bytes") && !refused.contains("s3c"), "{refused}");
        }
        let open =
            SkillVariableValue { skill: "a".into(), name: "KEY".into(), value: "s3cret".into() };
        assert!(!format!("{open:?}").contains("s3cret"));
    }

    #[test]
    fn a_skill_is_the_same_in_whatever_case() {
        assert_eq!(skill_key("Water-Plants").unwrap(), "water-plants");
        for name in ["", "-a", "a b", "a/b", &"x".repeat(65)] {
            assert!(skill_key(name).is_err(), "{name}");
        }
    }
}
