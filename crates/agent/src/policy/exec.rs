//! Command approvals: which commands run, need an approval, or never run (spec SBX-011).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    error::{Error, short},
    glob,
    shell::{Line, read},
};

/// Maximum number of rules in a command allow-list.
const MAX_RULES: usize = 512;

/// Commands that may run, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    Deny,
    /// Commands in the allow-list.
    Allowlist,
    Full,
}

/// Commands that need an approval, in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    Always,
    /// Commands that are not in the allow-list.
    OnMiss,
    /// None: commands that are not in the allow-list are denied.
    Off,
}

/// Rule of a command allow-list.
///
/// The first word of a pattern is the program as it is called (`ls` is not `./ls`), the others are
/// its arguments. `*` and `?` match within a word and between slashes, but never `..`. A pattern of
/// one word allows any arguments, and so does a last word of `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecRule {
    /// Returned when a command matches, so that the rule's use can be recorded.
    #[serde(default)]
    pub id: String,
    /// As in `git log *`.
    pub pattern: String,
}

/// Command settings of a tenant or an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecSettings {
    /// All if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<Security>,
    /// Never if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    /// Commands that may run; empty allows none (C-51).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowlist: Vec<ExecRule>,
}

impl ExecSettings {
    /// Combines a tenant's and an agent's settings: the stricter of each, and both lists.
    pub(crate) fn with(&self, agent: &Self) -> Result<Self, Error> {
        let mut allowlist = Vec::with_capacity(self.allowlist.len() + agent.allowlist.len());
        for (rules, at) in [(self, "tools.exec"), (agent, "agent.tools.exec")] {
            let at = format!("{at}.allowlist");
            let got = rules.allowlist.len();
            if got > MAX_RULES {
                return Err(Error::TooMany { at, got, limit: MAX_RULES });
            }
            for rule in &rules.allowlist {
                if words(&rule.pattern).is_none() {
                    return Err(Error::Command { at, pattern: short(&rule.pattern) });
                }
            }
            allowlist.extend(rules.allowlist.iter().cloned());
        }
        let security = [self.security, agent.security].into_iter().flatten().min();
        let ask = [self.ask, agent.ask].into_iter().flatten().min();
        Ok(Self { security, ask, allowlist })
    }

    /// Returns the settings with their defaults, which ask about nothing: the sandbox isolates
    /// commands, and without one each needs an approval anyway (spec SBX-009).
    pub(crate) fn effective(&self) -> (Security, Ask) {
        (self.security.unwrap_or(Security::Full), self.ask.unwrap_or(Ask::Off))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecVerdict {
    Allowed {
        reason: ExecReason,
        /// Ids of the matched rules, one for each command of a chain.
        rules: Vec<String>,
    },
    Denied {
        reason: ExecReason,
    },
    Ask {
        reason: ExecReason,
    },
}

/// Reason of a decision about a command. The texts are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecReason {
    /// Every command is in the allow-list.
    Allowlist,
    Full,
    Denied,
    /// Every command needs an approval.
    Always,
    /// A command is not in the allow-list.
    Miss,
    /// A command substitution, which an allow-list cannot judge.
    Substitution,
    /// The line cannot be split into commands reliably.
    Unclear,
    /// The call sets environment variables, which can change what an allowed command does.
    Environment,
    Empty,
}

impl fmt::Display for ExecReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allowlist => "every command of it is in the allow-list",
            Self::Full => "all commands may run",
            Self::Denied => "no commands may run here",
            Self::Always => "every command is asked about",
            Self::Miss => "a command of it is not in the allow-list",
            Self::Substitution => {
                "it runs a command within a command, which no allow-list can judge; \
                 run them one by one"
            }
            Self::Unclear => {
                "it uses redirects, groups or quotes in a way that no allow-list can judge"
            }
            Self::Environment => "it sets variables, which may make another command of it",
            Self::Empty => "there is no command in it",
        })
    }
}

/// Decides a command line. Every command of a chain must be in the allow-list.
#[must_use]
pub fn exec_approval(
    command: &str,
    allowlist: &[ExecRule],
    security: Security,
    ask: Ask,
) -> ExecVerdict {
    if command.trim().is_empty() {
        return ExecVerdict::Denied { reason: ExecReason::Empty };
    }
    let matched = match security {
        Security::Deny => return ExecVerdict::Denied { reason: ExecReason::Denied },
        Security::Full => Ok((ExecReason::Full, Vec::new())),
        Security::Allowlist => match read(command) {
            // No approval either: the person could not see what would run.
            Line::Substitution => {
                return ExecVerdict::Denied { reason: ExecReason::Substitution };
            }
            Line::Unclear => Err(ExecReason::Unclear),
            Line::Commands(commands) => {
                let rules: Option<Vec<String>> =
                    commands.iter().map(|words| rule_of(words, allowlist)).collect();
                match rules {
                    Some(rules) if !rules.is_empty() => Ok((ExecReason::Allowlist, rules)),
                    Some(_) | None => Err(ExecReason::Miss),
                }
            }
        },
    };
    verdict_after_ask(matched, ask)
}

/// Corrects a verdict for a command with environment variables: `PATH=.` can make `ls` any program.
pub(crate) fn with_variables(verdict: ExecVerdict, ask: Ask) -> ExecVerdict {
    match verdict {
        ExecVerdict::Allowed { reason: ExecReason::Allowlist, .. } => {
            verdict_after_ask(Err(ExecReason::Environment), ask)
        }
        ExecVerdict::Allowed { .. } | ExecVerdict::Denied { .. } | ExecVerdict::Ask { .. } => {
            verdict
        }
    }
}

fn verdict_after_ask(
    matched: Result<(ExecReason, Vec<String>), ExecReason>,
    ask: Ask,
) -> ExecVerdict {
    match (matched, ask) {
        (_, Ask::Always) => ExecVerdict::Ask { reason: ExecReason::Always },
        (Ok((reason, rules)), Ask::OnMiss | Ask::Off) => ExecVerdict::Allowed { reason, rules },
        (Err(reason), Ask::OnMiss) => ExecVerdict::Ask { reason },
        (Err(reason), Ask::Off) => ExecVerdict::Denied { reason },
    }
}

/// Returns the id of the first rule that a command matches.
fn rule_of(words: &[String], allowlist: &[ExecRule]) -> Option<String> {
    allowlist.iter().find(|rule| is_allowed(words, &rule.pattern)).map(|rule| rule.id.clone())
}

fn is_allowed(command: &[String], pattern: &str) -> bool {
    let Some(pattern) = words(pattern) else { return false };
    let (Some((program, arguments)), Some((wanted, patterns))) =
        (command.split_first(), pattern.split_first())
    else {
        return false;
    };
    if !is_word(wanted, program) {
        return false;
    }
    match patterns.split_last() {
        None => true,
        Some((last, firsts)) if last == "*" => {
            arguments.len() >= firsts.len() && words_match(firsts, arguments)
        }
        Some(_) => arguments.len() == patterns.len() && words_match(patterns, arguments),
    }
}

fn words_match(patterns: &[String], words: &[String]) -> bool {
    patterns.iter().zip(words).all(|(pattern, word)| is_word(pattern, word))
}

/// Whether a word matches a pattern. A wildcard never matches a path with `..`.
fn is_word(pattern: &str, word: &str) -> bool {
    let goes_up = word.split('/').any(|part| part == "..");
    !(goes_up && glob::is_pattern(pattern)) && glob::matches_between(pattern, word, Some('/'))
}

/// Splits a pattern into words; quotes keep spaces together.
fn words(pattern: &str) -> Option<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    let mut quote: Option<char> = None;
    let mut is_open = false;
    for c in pattern.chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                if !is_open {
                    found.push(String::new());
                    is_open = true;
                }
            }
            (c, None) if c.is_whitespace() => is_open = false,
            (c, _) => {
                if !is_open {
                    found.push(String::new());
                    is_open = true;
                }
                found.last_mut()?.push(c);
            }
        }
    }
    let is_named = found.first().is_some_and(|program| !program.is_empty());
    (quote.is_none() && is_named).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> Vec<ExecRule> {
        patterns
            .iter()
            .map(|pattern| ExecRule { id: format!("<{pattern}>"), pattern: (*pattern).to_owned() })
            .collect()
    }

    fn on_list(command: &str, patterns: &[&str], ask: Ask) -> ExecVerdict {
        exec_approval(command, &list(patterns), Security::Allowlist, ask)
    }

    fn denied(reason: ExecReason) -> ExecVerdict {
        ExecVerdict::Denied { reason }
    }

    fn asked(reason: ExecReason) -> ExecVerdict {
        ExecVerdict::Ask { reason }
    }

    #[test]
    fn security_and_ask_decide_together() {
        let allowed = |reason, rules: &[&str]| ExecVerdict::Allowed {
            reason,
            rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
        };
        for (command, security, ask, verdict) in [
            ("ls", Security::Deny, Ask::Off, denied(ExecReason::Denied)),
            ("ls", Security::Deny, Ask::OnMiss, denied(ExecReason::Denied)),
            ("ls", Security::Deny, Ask::Always, denied(ExecReason::Denied)),
            ("ls", Security::Allowlist, Ask::Off, allowed(ExecReason::Allowlist, &["<ls>"])),
            ("ls", Security::Allowlist, Ask::OnMiss, allowed(ExecReason::Allowlist, &["<ls>"])),
            ("ls", Security::Allowlist, Ask::Always, asked(ExecReason::Always)),
            ("rm", Security::Allowlist, Ask::Off, denied(ExecReason::Miss)),
            ("rm", Security::Allowlist, Ask::OnMiss, asked(ExecReason::Miss)),
            ("rm", Security::Allowlist, Ask::Always, asked(ExecReason::Always)),
            ("rm", Security::Full, Ask::Off, allowed(ExecReason::Full, &[])),
            ("rm", Security::Full, Ask::OnMiss, allowed(ExecReason::Full, &[])),
            ("rm", Security::Full, Ask::Always, asked(ExecReason::Always)),
            (" ", Security::Full, Ask::Off, denied(ExecReason::Empty)),
        ] {
            let given = exec_approval(command, &list(&["ls"]), security, ask);
            assert_eq!(given, verdict, "{command} {security:?} {ask:?}");
        }
    }

    #[test]
    fn a_chain_runs_only_if_every_command_of_it_may() {
        let patterns = ["ls", "git log *"];

        let both = on_list("ls -l | git log --oneline && ls", &patterns, Ask::Off);
        assert_eq!(
            both,
            ExecVerdict::Allowed {
                reason: ExecReason::Allowlist,
                rules: ["<ls>", "<git log *>", "<ls>"].map(str::to_owned).to_vec(),
            }
        );
        for chain in ["ls; rm x", "ls & rm x", "ls\nrm x", "ls || rm x", "ls | sh", "git push"] {
            assert_eq!(on_list(chain, &patterns, Ask::Off), denied(ExecReason::Miss), "{chain}");
        }
    }

    #[test]
    fn a_command_within_a_command_is_refused_even_where_a_person_could_be_asked() {
        for command in ["ls $(rm x)", "ls `rm x`", "ls \"$(rm x)\"", "ls <(rm x)", "ls ${x}"] {
            assert_eq!(
                on_list(command, &["*"], Ask::OnMiss),
                denied(ExecReason::Substitution),
                "{command}"
            );
        }
        assert_eq!(on_list("ls > x", &["*"], Ask::OnMiss), asked(ExecReason::Unclear));
    }

    #[test]
    fn a_pattern_means_the_program_as_it_is_called() {
        let is_allowed = |command, pattern| {
            matches!(on_list(command, &[pattern], Ask::Off), ExecVerdict::Allowed { .. })
        };
        for (command, pattern, allowed) in [
            ("ls -l", "ls", true),
            ("./ls", "ls", false),
            ("/tmp/ls", "ls", false),
            ("LS", "ls", false),
            ("/usr/bin/ls", "/usr/bin/*", true),
            ("/usr/bin/../../tmp/x", "/usr/bin/*", false),
            ("git status", "git status", true),
            ("git status -s", "git status", false),
            ("git", "git log *", false),
            ("git log", "git log *", true),
            ("git log -p a", "git log *", true),
            ("git 'log x'", "git log *", false),
            ("cat 'a b'", "cat 'a b'", true),
            ("cat a.md", "cat *.md", true),
            ("cat ../a.md", "cat *.md", false),
            ("cat notes/a.md", "cat notes/*", true),
            ("cat notes/../a.md", "cat notes/*", false),
            ("/usr/../ls", "/usr/*/ls", false),
            ("/usr/x/ls", "/usr/*/ls", true),
            ("cat a.md b.txt", "cat *.md", false),
        ] {
            assert_eq!(is_allowed(command, pattern), allowed, "{command} {pattern}");
        }
    }

    #[test]
    fn an_empty_allow_list_allows_nothing() {
        assert_eq!(on_list("ls", &[], Ask::Off), denied(ExecReason::Miss));
    }

    #[test]
    fn an_agent_can_only_be_stricter_than_its_tenant() {
        let settings = |security, ask| ExecSettings { security, ask, allowlist: Vec::new() };
        let both = settings(Some(Security::Allowlist), Some(Ask::OnMiss))
            .with(&settings(Some(Security::Full), Some(Ask::Off)))
            .unwrap();

        assert_eq!(both.effective(), (Security::Allowlist, Ask::OnMiss));
        assert_eq!(ExecSettings::default().effective(), (Security::Full, Ask::Off));
    }

    #[test]
    fn a_pattern_without_a_program_is_refused() {
        for wrong in ["", "  ", "'a", "'' x"] {
            let settings = ExecSettings { allowlist: list(&[wrong]), ..ExecSettings::default() };

            let error = settings.with(&ExecSettings::default()).unwrap_err();
            assert!(matches!(error, Error::Command { .. }), "{wrong}: {error}");
        }
    }
}
