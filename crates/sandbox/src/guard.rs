//! First filter on scripts: refuses dangerous patterns.
//!
//! The filter reads text, and text can always be written otherwise: isolation comes from the
//! sandbox. The filter tells a model at once, in words, why a script is refused, and it serves the
//! plain backend, which does not isolate.

mod path;
mod pattern;

use std::path::Path;

use holdfast_types::{Fault, Kind};
use regex::{RegexSet, RegexSetBuilder};
use serde::{Deserialize, Serialize};

pub use self::pattern::DangerClass;
use crate::Error;

/// Options of the table `[runner.sandbox.guard]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Whether dangerous patterns are refused, the custom ones included.
    pub enable_deny_patterns: bool,
    /// Classes that are not refused here.
    pub permitted: Vec<DangerClass>,
    /// Additional patterns: regular expressions on the lower-cased script.
    pub custom_deny_patterns: Vec<String>,
    /// If any are set, a script must match one of them.
    pub allow_patterns: Vec<String>,
    /// Whether paths that lead out of the workspace are refused.
    pub restrict_to_workspace: bool,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self {
            enable_deny_patterns: true,
            permitted: Vec::new(),
            custom_deny_patterns: Vec::new(),
            allow_patterns: Vec::new(),
            restrict_to_workspace: true,
        }
    }
}

/// Reason for refusing a script, shown to the model unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScriptRefusal {
    #[error("Command blocked by safety guard (dangerous pattern detected)")]
    Dangerous,
    /// The script matches none of the allowed patterns.
    #[error("Command blocked by safety guard (not in allowlist)")]
    NotAllowed,
    /// A path contains `..`.
    #[error("Command blocked by safety guard (path traversal detected)")]
    Traversal,
    /// A path is absolute and outside the workspace.
    #[error("Command blocked by safety guard (path outside working dir)")]
    Outside,
}

impl Fault for ScriptRefusal {
    fn kind(&self) -> Kind {
        Kind::Forbidden
    }
}

#[derive(Debug)]
pub struct ScriptGuard {
    deny: RegexSet,
    allow: Option<RegexSet>,
    restrict_to_workspace: bool,
}

impl ScriptGuard {
    /// Compiles the filter.
    ///
    /// # Errors
    ///
    /// If a pattern is not a valid regular expression, or too large.
    pub fn new(config: &GuardConfig) -> Result<Self, Error> {
        let own: Vec<&str> = DangerClass::ALL
            .into_iter()
            .filter(|class| !config.permitted.contains(class))
            .flat_map(DangerClass::patterns)
            .copied()
            .collect();
        let custom = config.custom_deny_patterns.iter().map(String::as_str);
        let deny: Vec<&str> = match config.enable_deny_patterns {
            true => own.into_iter().chain(custom).collect(),
            false => Vec::new(),
        };
        let allow = match config.allow_patterns.as_slice() {
            [] => None,
            patterns => Some(compile("guard.allow_patterns", patterns)?),
        };
        Ok(Self {
            deny: compile("guard.custom_deny_patterns", &deny)?,
            allow,
            restrict_to_workspace: config.restrict_to_workspace,
        })
    }

    /// Checks a script that will run in `workspace`, given as the path that the script sees.
    ///
    /// # Errors
    ///
    /// The first reason in this order: dangerous, not allowed, a path that leads out.
    pub fn check(&self, script: &str, workspace: &Path) -> Result<(), ScriptRefusal> {
        let script = script.replace("\\\n", " ");
        let lower = script.to_lowercase();
        // Removes quotes as the shell does: `r\m` and `r''m` are `rm`.
        let bare = lower.replace(['\\', '\'', '"'], "");
        if self.deny.is_match(&lower) || self.deny.is_match(&bare) {
            return Err(ScriptRefusal::Dangerous);
        }
        if self.allow.as_ref().is_some_and(|allow| !allow.is_match(lower.trim())) {
            return Err(ScriptRefusal::NotAllowed);
        }
        if self.restrict_to_workspace {
            path::check(&script, workspace)?;
        }
        Ok(())
    }
}

fn compile(name: &'static str, patterns: &[impl AsRef<str>]) -> Result<RegexSet, Error> {
    // Scripts are lower-cased before. The size is bounded, since tenants may have patterns of their
    // own.
    let set = RegexSetBuilder::new(patterns).size_limit(4 << 20).multi_line(true).build();
    set.map_err(|error| Error::Setting { name, wrong: format!("cannot be used: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(set: impl FnOnce(&mut GuardConfig)) -> ScriptGuard {
        let mut config = GuardConfig::default();
        set(&mut config);
        ScriptGuard::new(&config).unwrap()
    }

    fn check(guard: &ScriptGuard, script: &str) -> Result<(), ScriptRefusal> {
        guard.check(script, Path::new("/workspace"))
    }

    #[test]
    fn each_refusal_has_its_words() {
        let words = |blocked: ScriptRefusal| blocked.to_string();

        assert_eq!(
            words(ScriptRefusal::Dangerous),
            "Command blocked by safety guard (dangerous pattern detected)"
        );
        assert_eq!(
            words(ScriptRefusal::NotAllowed),
            "Command blocked by safety guard (not in allowlist)"
        );
        assert_eq!(
            words(ScriptRefusal::Traversal),
            "Command blocked by safety guard (path traversal detected)"
        );
        assert_eq!(
            words(ScriptRefusal::Outside),
            "Command blocked by safety guard (path outside working dir)"
        );
    }

    #[test]
    fn what_is_dangerous_is_told_before_where_it_leads() {
        let guard = guard(|config| config.allow_patterns.push("^ls".to_owned()));

        assert_eq!(check(&guard, "rm -rf ../x"), Err(ScriptRefusal::Dangerous));
        assert_eq!(check(&guard, "cat ../x"), Err(ScriptRefusal::NotAllowed));
        assert_eq!(check(&guard, "ls ../x"), Err(ScriptRefusal::Traversal));
        assert_eq!(check(&guard, "ls /etc"), Err(ScriptRefusal::Outside));
        assert_eq!(check(&guard, "LS -l"), Ok(()));
    }

    #[test]
    fn words_that_the_shell_puts_together_are_seen() {
        let guard = guard(|_| {});

        for script in ["r\\m -rf x", "r''m -\"r\"f x", "RM -RF x", "rm \\\n -rf x", "ls\nrm -rf x"]
        {
            assert_eq!(check(&guard, script), Err(ScriptRefusal::Dangerous), "{script}");
        }
    }

    #[test]
    fn custom_patterns_add_to_ours() {
        let guard = guard(|config| config.custom_deny_patterns.push("\\bterraform\\b".to_owned()));

        assert_eq!(check(&guard, "terraform apply"), Err(ScriptRefusal::Dangerous));
        assert_eq!(check(&guard, "sudo ls"), Err(ScriptRefusal::Dangerous));
        assert_eq!(check(&guard, "ls"), Ok(()));
    }

    #[test]
    fn a_class_or_all_of_them_can_be_permitted() {
        let lenient = guard(|config| config.permitted = vec![DangerClass::Substitution]);
        assert_eq!(check(&lenient, "echo $(date)"), Ok(()));
        assert_eq!(check(&lenient, "sudo ls"), Err(ScriptRefusal::Dangerous));

        let off = guard(|config| {
            config.enable_deny_patterns = false;
            config.custom_deny_patterns.push("ls".to_owned());
        });
        assert_eq!(check(&off, "sudo ls"), Ok(()));
        assert_eq!(check(&off, "ls ../x"), Err(ScriptRefusal::Traversal));

        let open = guard(|config| config.restrict_to_workspace = false);
        assert_eq!(check(&open, "cat /etc/hosts ../x"), Ok(()));
    }

    #[test]
    fn a_pattern_that_is_none_is_refused_with_its_setting() {
        let config =
            GuardConfig { custom_deny_patterns: vec!["(".to_owned()], ..GuardConfig::default() };

        let error = ScriptGuard::new(&config).unwrap_err().to_string();

        assert!(
            error.starts_with("`runner.sandbox.guard.custom_deny_patterns` cannot be used"),
            "{error}"
        );
    }
}
