//! Which skills an agent has (spec SKL-001, SKL-003, SKL-004, UIC-005).
//!
//! They are in three places: the agent's own tree, what its tenant shares, and what everybody has.
//! The nearer one wins; what it hides, and what cannot be read, is listed with the reason.

use std::{collections::BTreeMap, fmt};

use holdfast_agent::prompt;

use crate::{Error, Lack, Manifest, SkillName, Surroundings};

/// Whose skill it is, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The agent's: in its own tree.
    Workspace,
    /// The tenant's: for all its agents.
    Tenant,
    /// Everybody's: shipped with the platform.
    Platform,
}

impl Scope {
    /// Its name.
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

/// A `SKILL.md` as it was found.
#[derive(Clone, PartialEq, Eq)]
pub struct SkillFile {
    /// Whose it is.
    pub scope: Scope,
    /// The folder that it is in, without those above: what the skill must be called.
    pub folder: String,
    /// What it says.
    pub text: Vec<u8>,
}

impl fmt::Debug for SkillFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SkillFile({} {:?}, {} bytes)", self.scope, self.folder, self.text.len())
    }
}

/// A skill that an agent has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// What it says of itself.
    pub manifest: Manifest,
    /// Whose it is.
    pub scope: Scope,
    /// Where its text is, as the `read` tool takes it: `skills/<name>/SKILL.md`, wherever it is
    /// kept.
    pub location: String,
    /// What it needs and that is not there; it is of use only if that is nothing.
    pub lacks: Vec<Lack>,
}

impl Skill {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.manifest.name.as_str()
    }

    /// The folder that it is in, as tools name it: what `{baseDir}` stands for.
    #[must_use]
    pub fn folder(&self) -> String {
        folder(self.name())
    }

    /// Whether all that it needs is there.
    #[must_use]
    pub const fn is_usable(&self) -> bool {
        self.lacks.is_empty()
    }

    /// Whether a model is told of it.
    #[must_use]
    pub const fn is_shown(&self) -> bool {
        self.is_usable() && self.manifest.model_invocable
    }
}

fn folder(name: &str) -> String {
    format!("skills/{name}")
}

/// A file that made no skill.
#[derive(Debug)]
pub struct Skipped {
    /// Whose it is.
    pub scope: Scope,
    /// Its path, as far as one could be made of its folder.
    pub file: String,
    /// Why.
    pub why: Why,
}

/// Why a file made no skill.
#[derive(Debug)]
pub enum Why {
    /// It cannot be read, and this says what to write.
    Bad(Error),
    /// A nearer one has its name.
    Hidden {
        /// Whose that is.
        by: Scope,
    },
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Bad(error) => write!(f, "{}: {error}", self.scope),
            Why::Hidden { by } if *by == self.scope => write!(
                f,
                "{}: {}: has the name of another one there, but for upper and lower case: rename it",
                self.scope, self.file
            ),
            Why::Hidden { by } => write!(
                f,
                "{}: {}: is not used, for one of the {by} has the same name",
                self.scope, self.file
            ),
        }
    }
}

/// A skill that somebody called by its name, and what they said besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invocation<'a> {
    /// Which.
    pub skill: &'a Skill,
    /// What stands behind the name.
    pub arguments: &'a str,
}

impl Invocation<'_> {
    /// What an agent is told in place of the message: which skill, where it is, and what was said.
    /// It reads the skill itself, also one that it is not told of otherwise.
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

/// That a skill was called by its name and cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the skill `{name}` cannot be used: {lacks}")]
pub struct Unusable {
    name: String,
    lacks: String,
}

/// The skills of an agent.
#[derive(Debug, Default)]
pub struct Shelf {
    /// By their names in lower case.
    skills: BTreeMap<String, Skill>,
    skipped: Vec<Skipped>,
}

impl Shelf {
    /// The skills that these files make, in whatever order they are given, and what they lack.
    pub fn of(files: impl IntoIterator<Item = SkillFile>, here: &Surroundings) -> Self {
        let mut files: Vec<SkillFile> = files.into_iter().collect();
        files.sort_by(|a, b| (a.scope, &a.folder).cmp(&(b.scope, &b.folder)));
        let mut shelf = Self::default();
        for file in files {
            shelf.add(&file, here);
        }
        shelf
    }

    fn add(&mut self, file: &SkillFile, here: &Surroundings) {
        let scope = file.scope;
        let path = format!("{}/SKILL.md", folder(&crate::name::shown(&file.folder)));
        let manifest = match named(&path, file) {
            Ok(manifest) => manifest,
            Err(error) => {
                self.skipped.push(Skipped { scope, file: path, why: Why::Bad(error) });
                return;
            }
        };
        let key = manifest.name.key();
        if let Some(nearer) = self.skills.get(&key) {
            let why = Why::Hidden { by: nearer.scope };
            self.skipped.push(Skipped { scope, file: path, why });
            return;
        }
        let lacks = manifest.lacks(here);
        self.skills.insert(key, Skill { manifest, scope, location: path, lacks });
    }

    /// All skills, by name, those of no use now included.
    pub fn skills(&self) -> impl Iterator<Item = &Skill> {
        self.skills.values()
    }

    /// The files that made none, and why.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// The skill of a name, in whatever case.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Skill> {
        self.skills.get(&name.to_ascii_lowercase())
    }

    /// The skills that a model is told of, by name: all, or those of the names given; names that
    /// there are not are passed over. No names are all of them (spec SKL-004, C-56).
    pub fn shown<'a>(&'a self, names: &'a [&str]) -> impl Iterator<Item = &'a Skill> {
        self.skills.values().filter(move |skill| {
            let is_wanted =
                names.is_empty() || names.iter().any(|name| skill.manifest.name.is_same(name));
            is_wanted && skill.is_shown()
        })
    }

    /// The same as the prompt's builder takes them. What everybody has is told of by its name
    /// alone, which says enough: each word of it would be in every prompt there is.
    #[must_use]
    pub fn for_prompt<'a>(&'a self, names: &'a [&str]) -> Vec<prompt::Skill<'a>> {
        let shown = self.shown(names).map(|skill| prompt::Skill {
            name: skill.name(),
            description: match skill.scope {
                Scope::Workspace | Scope::Tenant => &skill.manifest.description,
                Scope::Platform => "",
            },
            location: &skill.location,
        });
        shown.collect()
    }

    /// The same as a text (spec SKL-003): `<skills><skill><name>…`, escaped; empty if there is none.
    #[must_use]
    pub fn summary(&self, names: &[&str]) -> String {
        let mut summary = String::new();
        for skill in self.shown(names) {
            summary.push_str("  <skill>\n");
            for (tag, text) in [
                ("name", skill.name()),
                ("description", &skill.manifest.description),
                ("location", &skill.location),
                ("source", skill.scope.as_str()),
            ] {
                summary.push_str(&format!("    <{tag}>{}</{tag}>\n", escaped(text)));
            }
            summary.push_str("  </skill>\n");
        }
        if summary.is_empty() { summary } else { format!("<skills>\n{summary}</skills>\n") }
    }

    /// What a message calls for that begins with a slash: `/plan-a-trip to Rome`, or
    /// `/skill plan-a-trip to Rome`. `None` if it names no skill that people may call.
    ///
    /// # Errors
    ///
    /// If it names one that lacks something.
    pub fn invoked<'a>(&'a self, message: &'a str) -> Result<Option<Invocation<'a>>, Unusable> {
        let Some(said) = message.trim_start().strip_prefix('/') else { return Ok(None) };
        let (word, rest) = first_word(said);
        // In a group a platform appends whom it is for: `/plan-a-trip@our_bot`.
        let word = word.split('@').next().unwrap_or_default();
        let (name, arguments) =
            if word.eq_ignore_ascii_case("skill") { first_word(rest) } else { (word, rest) };
        let Some(skill) = self.find(name).filter(|skill| skill.manifest.user_invocable) else {
            return Ok(None);
        };
        if !skill.is_usable() {
            let lacks: Vec<String> = skill.lacks.iter().map(Lack::to_string).collect();
            return Err(Unusable { name: skill.name().to_owned(), lacks: lacks.join("; ") });
        }
        Ok(Some(Invocation { skill, arguments }))
    }
}

/// What a file says, if it is called what its folder is.
fn named(path: &str, file: &SkillFile) -> Result<Manifest, Error> {
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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
