//! Skills of an agent (spec SKL-001, SKL-003, SKL-004, UIC-005).
//!
//! There are three scopes: the agent's own tree, the tenant's shared tree, and the platform. Of
//! skills with equal names, the nearest scope wins. Hidden and unreadable skills are listed with
//! the reason.

use std::{collections::BTreeMap, fmt};

use holdfast_agent::prompt;

use crate::{Error, Manifest, SkillEnvironment, SkillName, UnmetRequirement};

/// Scope of a skill, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The agent's own tree.
    Workspace,
    /// The tenant's tree, shared by all its agents.
    Tenant,
    /// Shipped with the platform, for every tenant.
    Platform,
}

impl Scope {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Tenant => "tenant",
            Self::Platform => "platform",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct SkillFile {
    pub scope: Scope,
    /// Name of the skill's folder, which the skill's name must equal.
    pub folder: String,
    pub text: Vec<u8>,
}

impl fmt::Debug for SkillFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SkillFile({} {:?}, {} bytes)", self.scope, self.folder, self.text.len())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    pub manifest: Manifest,
    pub scope: Scope,
    /// Path for the `read` tool, `skills/<name>/SKILL.md` in every scope.
    pub location: String,
    /// Requirements that are not met; the skill is usable only if there are none.
    pub unmet: Vec<UnmetRequirement>,
}

impl Skill {
    #[must_use]
    pub fn name(&self) -> &str {
        self.manifest.name.as_str()
    }

    /// Folder of the skill for tools; replaces `{baseDir}`.
    #[must_use]
    pub fn folder(&self) -> String {
        folder(self.name())
    }

    /// Whether all requirements are met.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.unmet.is_empty()
    }

    /// Whether models see it in their list of skills.
    #[must_use]
    pub const fn is_visible(&self) -> bool {
        self.is_usable() && self.manifest.model_invocable
    }
}

fn folder(name: &str) -> String {
    format!("skills/{name}")
}

/// `SKILL.md` that is not used.
#[derive(Debug)]
pub struct UnusedFile {
    pub scope: Scope,
    /// Path for people to read.
    pub file: String,
    pub reason: UnusedReason,
}

/// Reason why a `SKILL.md` is not used.
#[derive(Debug)]
pub enum UnusedReason {
    /// The file is invalid; the error says how to fix it.
    Invalid(Error),
    /// A skill of a nearer scope has the same name.
    Hidden {
        /// Scope of the skill that is used.
        by: Scope,
    },
}

impl fmt::Display for UnusedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            UnusedReason::Invalid(error) => write!(f, "{}: {error}", self.scope),
            UnusedReason::Hidden { by } if *by == self.scope => write!(
                f,
                "{}: {}: has the name of another one there, but for upper and lower case: rename it",
                self.scope, self.file
            ),
            UnusedReason::Hidden { by } => write!(
                f,
                "{}: {}: is not used, for one of the {by} has the same name",
                self.scope, self.file
            ),
        }
    }
}

/// Skill that a person invoked by name, with the rest of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invocation<'a> {
    pub skill: &'a Skill,
    /// Text after the name.
    pub arguments: &'a str,
}

impl Invocation<'_> {
    /// Text that replaces the message: it names the skill, its path and the arguments. The agent
    /// reads the skill itself, even if it is not in its list.
    #[must_use]
    pub fn request(&self) -> String {
        let (name, location) = (self.skill.name(), &self.skill.location);
        let request = format!("Use the skill `{name}` ({location}): read it first.");
        if self.arguments.is_empty() {
            return request;
        }
        format!("{request}\n\n{}", self.arguments)
    }
}

/// Error: a skill was invoked whose requirements are not met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the skill `{name}` cannot be used: {lacks}")]
pub struct UnusableSkill {
    name: String,
    lacks: String,
}

#[derive(Debug, Default)]
pub struct SkillSet {
    /// Skills by [`SkillName::key`].
    skills: BTreeMap<String, Skill>,
    skipped: Vec<UnusedFile>,
}

impl SkillSet {
    /// Parses the files, in any order, and compares the skills' requirements with the environment.
    pub fn from_files(files: impl IntoIterator<Item = SkillFile>, here: &SkillEnvironment) -> Self {
        let mut files: Vec<SkillFile> = files.into_iter().collect();
        files.sort_by(|a, b| (a.scope, &a.folder).cmp(&(b.scope, &b.folder)));
        let mut skills = Self::default();
        for file in files {
            skills.add(&file, here);
        }
        skills
    }

    fn add(&mut self, file: &SkillFile, here: &SkillEnvironment) {
        let scope = file.scope;
        let path = format!("{}/SKILL.md", folder(&crate::name::escape_untrusted(&file.folder)));
        let manifest = match parse_named(&path, file) {
            Ok(manifest) => manifest,
            Err(error) => {
                self.skipped.push(UnusedFile {
                    scope,
                    file: path,
                    reason: UnusedReason::Invalid(error),
                });
                return;
            }
        };
        let key = manifest.name.key();
        if let Some(nearer) = self.skills.get(&key) {
            let why = UnusedReason::Hidden { by: nearer.scope };
            self.skipped.push(UnusedFile { scope, file: path, reason: why });
            return;
        }
        let lacks = manifest.unmet_requirements(here);
        self.skills.insert(key, Skill { manifest, scope, location: path, unmet: lacks });
    }

    /// All skills ordered by name, including unusable ones.
    pub fn skills(&self) -> impl Iterator<Item = &Skill> {
        self.skills.values()
    }

    /// Files that are not used, with the reasons.
    #[must_use]
    pub fn unused_files(&self) -> &[UnusedFile] {
        &self.skipped
    }

    /// Finds a skill by name, ignoring case.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Skill> {
        self.skills.get(&name.to_ascii_lowercase())
    }

    /// Skills that a model sees, ordered by name, restricted to `names` unless that is empty (spec
    /// SKL-004, C-56). Unknown names are ignored.
    pub fn visible_skills<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Skill> {
        self.skills.values().filter(move |skill| {
            let is_wanted =
                names.is_empty() || names.iter().any(|name| skill.manifest.name.is_same(name));
            is_wanted && skill.is_visible()
        })
    }

    /// Like [`shown`](Self::visible_skills), for the prompt builder. Platform skills have no description: it
    /// would be in every prompt, and their names say enough.
    #[must_use]
    pub fn for_prompt<'a>(&'a self, names: &'a [&str]) -> Vec<prompt::Skill<'a>> {
        let shown = self.visible_skills(names).map(|skill| prompt::Skill {
            name: skill.name(),
            description: match skill.scope {
                Scope::Workspace | Scope::Tenant => &skill.manifest.description,
                Scope::Platform => "",
            },
            location: &skill.location,
        });
        shown.collect()
    }

    /// Parses a slash command such as `/plan-a-trip to Rome` or `/skill plan-a-trip to Rome`.
    /// `None` if it names no skill that people may invoke.
    ///
    /// # Errors
    ///
    /// [`UnusableSkill`] if the skill's requirements are not met.
    pub fn parse_invocation<'a>(
        &'a self,
        message: &'a str,
    ) -> Result<Option<Invocation<'a>>, UnusableSkill> {
        let Some(said) = message.trim_start().strip_prefix('/') else { return Ok(None) };
        let (word, rest) = first_word(said);
        // In groups, platforms append the addressee: `/plan-a-trip@our_bot`.
        let word = word.split('@').next().unwrap_or_default();
        let (name, arguments) =
            if word.eq_ignore_ascii_case("skill") { first_word(rest) } else { (word, rest) };
        let Some(skill) = self.find(name).filter(|skill| skill.manifest.user_invocable) else {
            return Ok(None);
        };
        if !skill.is_usable() {
            let lacks: Vec<String> = skill.unmet.iter().map(UnmetRequirement::to_string).collect();
            return Err(UnusableSkill { name: skill.name().to_owned(), lacks: lacks.join("; ") });
        }
        Ok(Some(Invocation { skill, arguments }))
    }
}

/// Parses a file and checks that the skill's name equals its folder's.
fn parse_named(path: &str, file: &SkillFile) -> Result<Manifest, Error> {
    let folder: SkillName = file.folder.parse()?;
    let manifest = Manifest::read(path, &file.text)?;
    if manifest.name != folder {
        let problem = format!(
            "is `{}`, and its folder `{folder}`: a skill is called what its folder is",
            manifest.name
        );
        return Err(Error::document(path, crate::Flaw::at("name", problem)));
    }
    Ok(manifest)
}

fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

#[cfg(test)]
mod tests;
