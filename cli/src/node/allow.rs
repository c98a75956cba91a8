//! Allow-list of this machine. It applies to all callers, and to approved commands too.

use std::fmt;

use holdfast_agent::policy::{Ask, ExecRule, ExecVerdict, Security, exec_approval};

use crate::error::Error;

/// Allow-list of this machine.
#[derive(Debug, Clone)]
pub(super) struct CommandAllowList {
    rules: Vec<ExecRule>,
    security: Security,
}

impl CommandAllowList {
    /// Creates a list of these patterns, or of all commands.
    ///
    /// # Errors
    ///
    /// If a pattern is invalid.
    pub(super) fn new(patterns: &[String], all: bool) -> Result<Self, Error> {
        for pattern in patterns {
            let quotes = |quote: char| pattern.matches(quote).count() % 2 == 1;
            if pattern.trim().is_empty() || quotes('\'') || quotes('"') {
                return Err(Error::Usage(format!(
                    "`{pattern}` is no pattern of a command: write the program and its arguments, \
                     as `git log *`"
                )));
            }
        }
        let rule = |pattern: &String| ExecRule { id: String::new(), pattern: pattern.clone() };
        let security = if all { Security::Full } else { Security::Allowlist };
        Ok(Self { rules: patterns.iter().map(rule).collect(), security })
    }

    /// Returns the reason why a command is not allowed; `None` if it is.
    pub(super) fn refusal(&self, script: &str) -> Option<String> {
        match exec_approval(script, &self.rules, self.security, Ask::Off) {
            ExecVerdict::Allowed { .. } => None,
            ExecVerdict::Denied { reason } | ExecVerdict::Ask { reason } => Some(format!(
                "this machine does not let it through: {reason}. It lets through: {}",
                self.patterns().join(", ")
            )),
        }
    }

    /// Returns the allowed patterns, for callers.
    pub(super) fn patterns(&self) -> Vec<String> {
        match (self.security, self.rules.as_slice()) {
            (Security::Full, _) => vec!["everything".to_owned()],
            (_, []) => vec!["nothing".to_owned()],
            (_, rules) => rules.iter().map(|rule| rule.pattern.clone()).collect(),
        }
    }
}

impl fmt::Display for CommandAllowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.security, self.rules.as_slice()) {
            (Security::Full, _) => f.write_str("Every command is let through."),
            (_, []) => {
                f.write_str("No command is let through: give `--allow` for each that should be.")
            }
            (_, _) => write!(f, "These commands are let through: {}", self.patterns().join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(patterns: &[&str], all: bool) -> CommandAllowList {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        CommandAllowList::new(&patterns, all).unwrap()
    }

    #[test]
    fn only_what_the_list_has_is_let_through_however_it_is_dressed_up() {
        let list = allow(&["git status", "ls"], false);

        assert_eq!(list.refusal("git status && ls -l"), None);
        for script in
            ["git push", "ls; rm x", "ls $(rm x)", "ls > x", "PATH=. ls", "./ls", "", "ls | sh"]
        {
            assert!(list.refusal(script).is_some(), "{script}");
        }
        let told = list.refusal("git push").unwrap();
        assert!(told.ends_with("It lets through: git status, ls"), "{told}");
    }

    #[test]
    fn nothing_is_let_through_unless_it_is_said() {
        assert!(allow(&[], false).refusal("true").is_some());
        assert_eq!(allow(&[], true).refusal("ls > x; $(y)"), None);
        assert!(matches!(CommandAllowList::new(&[" ".to_owned()], false), Err(Error::Usage(_))));
        assert!(matches!(CommandAllowList::new(&["a 'b".to_owned()], false), Err(Error::Usage(_))));
    }
}
