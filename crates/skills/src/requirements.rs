//! Requirements of skills, compared with what the environment offers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::Manifest;

/// Environment of a skill's commands: the sandbox and the tenant's settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillEnvironment {
    /// Operating system of the sandbox: `linux`.
    pub os: String,
    /// Commands in the sandbox's image.
    pub bins: BTreeSet<String>,
    /// Names of the variables that are set for a skill's commands, by the skill's
    /// [`key`](crate::SkillName::key); never their values.
    pub env: BTreeMap<String, BTreeSet<String>>,
    /// Paths of the settings that are on, such as `channels.telegram`.
    pub config: BTreeSet<String>,
}

/// Requirement of a skill that is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnmetRequirement {
    Bin(String),
    /// One of these commands is needed.
    AnyBin(Vec<String>),
    /// Variable for the skill's commands.
    Env {
        skill: String,
        name: String,
    },
    Config(String),
    Os {
        /// Systems that the skill supports.
        needed: Vec<String>,
        here: String,
    },
}

impl fmt::Display for UnmetRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bin(name) => {
                write!(f, "the command `{name}` is not there: choose an image that has it")
            }
            Self::AnyBin(names) => write!(
                f,
                "none of the commands {} is there: choose an image that has one",
                quoted(names)
            ),
            Self::Env { skill, name } => write!(
                f,
                "the secret `{name}` is not set: an administrator sets it, as by `holdfast skills \
                 env set {skill} {name}`"
            ),
            Self::Config(name) => write!(f, "the setting `{name}` is off: turn it on"),
            Self::Os { needed, here } => {
                write!(f, "it runs on {}, and commands run on `{here}` here", quoted(needed))
            }
        }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Manifest {
    /// Names of the variables that the skill's commands get, if they are set.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        let names = self.requires.env.iter().chain(&self.primary_env);
        names.map(String::as_str)
    }

    /// Needed variables that are not set; none for a skill that is `always` shown.
    #[must_use]
    pub fn missing_env(&self, here: &SkillEnvironment) -> Vec<UnmetRequirement> {
        if self.always {
            return Vec::new();
        }
        let set = here.env.get(&self.name.key());
        let is_missing = |name: &&String| !set.is_some_and(|set| set.contains(*name));
        let missing = self.requires.env.iter().filter(is_missing);
        let lack = |name: &String| UnmetRequirement::Env {
            skill: self.name.to_string(),
            name: name.clone(),
        };
        missing.map(lack).collect()
    }

    /// Requirements that are not met. For a skill that is `always` shown, only the operating system
    /// counts.
    #[must_use]
    pub fn unmet_requirements(&self, here: &SkillEnvironment) -> Vec<UnmetRequirement> {
        let needs = &self.requires;
        let mut lacks = Vec::new();
        if !needs.os.is_empty() && !needs.os.contains(&here.os) {
            lacks.push(UnmetRequirement::Os { needed: needs.os.clone(), here: here.os.clone() });
        }
        if self.always {
            return lacks;
        }
        let missing =
            |names: &[String], there: &BTreeSet<String>, lack: fn(String) -> UnmetRequirement| {
                let missing = names.iter().filter(|&name| !there.contains(name)).cloned();
                missing.map(lack).collect::<Vec<_>>()
            };
        lacks.extend(missing(&needs.bins, &here.bins, UnmetRequirement::Bin));
        if !needs.any_bins.is_empty() && !needs.any_bins.iter().any(|bin| here.bins.contains(bin)) {
            lacks.push(UnmetRequirement::AnyBin(needs.any_bins.clone()));
        }
        lacks.extend(self.missing_env(here));
        lacks.extend(missing(&needs.config, &here.config, UnmetRequirement::Config));
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(metadata: &str) -> Manifest {
        let text =
            format!("---\nname: a\ndescription: b\nmetadata: {{ openclaw: {metadata} }}\n---\n");
        Manifest::read("f", text.as_bytes()).unwrap()
    }

    fn here() -> SkillEnvironment {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        SkillEnvironment {
            os: "linux".to_owned(),
            bins: set(&["curl", "gojq"]),
            env: [("a".to_owned(), set(&["KEY"])), ("b".to_owned(), set(&["OTHER"]))].into(),
            config: set(&["channels.telegram"]),
        }
    }

    #[test]
    fn what_is_there_is_enough() {
        let read = manifest(
            "{ os: [linux, macos], requires: { bins: [curl], anyBins: [jq, gojq], env: [KEY], \
             config: [channels.telegram] } }",
        );

        assert_eq!(read.unmet_requirements(&here()), []);
    }

    #[test]
    fn each_lack_is_named_with_what_to_do() {
        let read = manifest(
            "{ os: [macos], requires: { bins: [curl, ffmpeg], anyBins: [jq, yq], env: [KEY, OTHER], \
             config: [channels.slack] } }",
        );

        let told: Vec<String> =
            read.unmet_requirements(&here()).iter().map(UnmetRequirement::to_string).collect();

        assert_eq!(
            told,
            [
                "it runs on `darwin`, and commands run on `linux` here",
                "the command `ffmpeg` is not there: choose an image that has it",
                "none of the commands `jq`, `yq` is there: choose an image that has one",
                "the secret `OTHER` is not set: an administrator sets it, as by `holdfast skills \
                 env set a OTHER`",
                "the setting `channels.slack` is off: turn it on",
            ]
        );
    }

    #[test]
    fn its_commands_are_given_what_it_names_first_and_what_it_needs() {
        let read = manifest("{ primaryEnv: FIRST, requires: { env: [KEY] } }");

        assert_eq!(read.variables().collect::<Vec<_>>(), ["KEY", "FIRST"]);
        assert_eq!(read.unmet_requirements(&here()), [], "what it names first it can do without");
    }

    #[test]
    fn one_that_is_always_shown_lacks_only_a_system() {
        let always = manifest("{ always: true, requires: { bins: [ffmpeg] } }");
        assert_eq!(always.unmet_requirements(&here()), []);

        let elsewhere = manifest("{ always: true, os: [windows] }");
        assert_eq!(elsewhere.unmet_requirements(&here()).len(), 1);
    }
}
