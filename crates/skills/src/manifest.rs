//! What a `SKILL.md` says: its head, and where its text begins (spec SKL-002, SKL-013).
//!
//! The head stands between two lines `---` and is YAML or JSON. `metadata` may be fields or a text
//! of JSON5; what is in it stands below `openclaw`, below one of its older names, or alone. Fields
//! that nobody here knows are left to those who do.

use crate::{
    Error, Flaw, SkillName,
    document::{json5, yaml},
    fields::{Choice, Fields},
};

/// The most characters of a description (spec SKL-002).
const MOST_DESCRIPTION: usize = 1024;
/// The most characters of a version.
const MOST_VERSION: usize = 64;
/// The most bytes of a whole `SKILL.md`.
const MOST_BYTES: usize = 1 << 20;
/// Below which names of `metadata` the fields may stand, the newest first.
const METADATA: [&str; 4] = ["holdfast", "openclaw", "clawdbot", "clawdis"];
/// What stands for the skill's own folder in its text.
const BASE_DIR: &str = "{baseDir}";

/// What a `SKILL.md` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// What it is called.
    pub name: SkillName,
    /// What it is for, on one line: this is how a model chooses it. 1 to 1,024 characters.
    pub description: String,
    /// Its version, as its author counts.
    pub version: Option<String>,
    /// Where more is said of it.
    pub homepage: Option<String>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Whether people may call it by `/name`.
    pub user_invocable: bool,
    /// Whether a model is told of it.
    pub model_invocable: bool,
    /// That `/name` calls a tool, and no model.
    pub dispatch: Option<Dispatch>,
    /// The name of its settings, where that is another than its own.
    pub skill_key: Option<String>,
    /// A picture for lists.
    pub emoji: Option<String>,
    /// The secret that it needs most.
    pub primary_env: Option<String>,
    /// That it is shown whatever it needs.
    pub always: bool,
    /// What it needs.
    pub requires: Requirements,
    /// How what it needs may be installed. Nothing here does it.
    pub install: Vec<InstallStep>,
    /// Where its text begins, in bytes.
    body_at: usize,
}

/// What a skill needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Commands that must all be there.
    pub bins: Vec<String>,
    /// Commands of which one must be there.
    pub any_bins: Vec<String>,
    /// Variables, which here are secrets of the tenant.
    pub env: Vec<String>,
    /// Settings that must be on.
    pub config: Vec<String>,
    /// Systems it runs on: `linux`, `darwin`, `win32`; all, if it names none.
    pub os: Vec<String>,
}

/// That a command goes to a tool as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// The tool.
    pub tool: String,
}

/// One way to install what a skill needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallStep {
    /// By what: `brew`, `node`, `go`, `uv`, `download`.
    pub kind: String,
    /// What it is called in lists.
    pub label: Option<String>,
    /// The commands that it brings.
    pub bins: Vec<String>,
}

impl Manifest {
    /// Reads a `SKILL.md`. `file` is its path, for the error.
    ///
    /// # Errors
    ///
    /// [`Error::Document`] names the file, the field and what to write there.
    pub fn read(file: &str, text: &[u8]) -> Result<Self, Error> {
        read(text).map_err(|flaw| Error::document(file, flaw))
    }

    /// The text below the head, of the same file that this was read of; `folder` stands for
    /// `{baseDir}` in it.
    #[must_use]
    pub fn body(&self, text: &str, folder: &str) -> String {
        let body = text.get(self.body_at..).unwrap_or_default();
        body.trim_start_matches(['\r', '\n']).replace(BASE_DIR, folder)
    }
}

fn read(text: &[u8]) -> Result<Manifest, Flaw> {
    if text.len() > MOST_BYTES {
        return Err(Flaw::of(format!(
            "has {} bytes, and {MOST_BYTES} is the most: put parts of it into files beside it",
            text.len()
        )));
    }
    let text = std::str::from_utf8(text).map_err(|_| Flaw::of("is not UTF-8: save it as UTF-8"))?;
    let (head, body_at) = split(text)?;
    let document = if head.trim_start().starts_with('{') { json5(head) } else { yaml(head) }?;
    let fields = Fields::of(&document)?;

    let name = fields.needed("name", "plan-a-trip")?;
    let name = name.trim().parse().map_err(|error: crate::InvalidName| {
        fields.flaw("name", format!("cannot be taken: {error}"))
    })?;
    crate::library::check_command(&name)?;
    let dispatch = dispatch(&fields)?;
    let mut manifest = Manifest {
        name,
        description: description(&fields)?,
        version: version(&fields)?,
        homepage: fields.short("homepage")?,
        tags: fields.list("tags")?,
        user_invocable: fields.flag("user-invocable", Choice::Yes)?,
        model_invocable: !fields.flag("disable-model-invocation", Choice::No)?,
        dispatch,
        skill_key: None,
        emoji: None,
        primary_env: None,
        always: false,
        requires: Requirements::default(),
        install: Vec::new(),
        body_at,
    };
    with_metadata(&mut manifest, &fields)?;
    Ok(manifest)
}

/// The head, and where the text below it begins.
fn split(text: &str) -> Result<(&str, usize), Flaw> {
    let missing = || {
        Flaw::of(
            "has no head: begin it with a line `---`, then `name: …` and `description: …`, then \
             another line `---`",
        )
    };
    let text_at = text.len() - text.trim_start_matches('\u{feff}').len();
    let mut at = text_at;
    let mut head_at = None;
    for line in text[text_at..].split_inclusive('\n') {
        let is_fence = line.trim_end() == "---";
        at += line.len();
        match head_at {
            None if is_fence => head_at = Some(at),
            None => return Err(missing()),
            Some(head_at) if is_fence => return Ok((&text[head_at..at - line.len()], at)),
            Some(_) => {}
        }
    }
    Err(match head_at {
        Some(_) => Flaw::of("has a head that does not end: write a line `---` below its fields"),
        None => missing(),
    })
}

fn description(fields: &Fields<'_>) -> Result<String, Flaw> {
    let text = fields.needed("description", "what it is for, and when to use it")?;
    // It becomes a line of a prompt, which somebody ought to be able to read.
    let line = holdfast_tools::clean(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length == 0 {
        return Err(fields.flaw("description", "has nothing in it that can be read"));
    }
    if length > MOST_DESCRIPTION {
        return Err(fields.flaw(
            "description",
            format!(
                "has {length} characters, and {MOST_DESCRIPTION} is the most: say what it is for, \
                 and put the rest into the text"
            ),
        ));
    }
    Ok(line)
}

/// The version, in whatever manner its author counts: an audit has a column for it.
fn version(fields: &Fields<'_>) -> Result<Option<String>, Flaw> {
    let version = fields.short("version")?;
    let length = version.as_deref().map_or(0, |version| version.chars().count());
    if length > MOST_VERSION {
        return Err(fields.flaw(
            "version",
            format!(
                "has {length} characters, and {MOST_VERSION} is the most: write one such as `1.2.3`"
            ),
        ));
    }
    Ok(version)
}

fn dispatch(fields: &Fields<'_>) -> Result<Option<Dispatch>, Flaw> {
    let Some(kind) = fields.short("command-dispatch")? else { return Ok(None) };
    if kind != "tool" {
        return Err(fields.flaw("command-dispatch", "may only be `tool`, or left out"));
    }
    if let Some(mode) = fields.short("command-arg-mode")?
        && mode != "raw"
    {
        return Err(fields.flaw("command-arg-mode", "may only be `raw`, or left out"));
    }
    let Some(tool) = fields.short("command-tool")? else {
        return Err(fields.flaw("command-tool", "is missing: write the name of the tool"));
    };
    if !tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Err(fields.flaw("command-tool", "is no name of a tool: write one, as in `image`"));
    }
    Ok(Some(Dispatch { tool }))
}

fn with_metadata(manifest: &mut Manifest, head: &Fields<'_>) -> Result<(), Flaw> {
    let of_text;
    let metadata = match head.get("metadata") {
        Some(serde_json::Value::String(text)) => {
            of_text = json5(text).map_err(|flaw| {
                head.flaw("metadata", format!("is a text and no JSON5: {}", flaw.problem))
            })?;
            Some(&of_text)
        }
        other => other,
    };
    let Some(metadata) = metadata else { return Ok(()) };
    let serde_json::Value::Object(metadata) = metadata else {
        return Err(head.flaw("metadata", "must have fields of its own, or be a text of JSON5"));
    };
    let outer = Fields::within(metadata, "metadata");
    let named = METADATA.iter().find(|name| outer.get(name).is_some());
    let (map, path) = match named {
        Some(name) => match outer.map(name)? {
            Some(found) => found,
            None => return Ok(()),
        },
        None => (metadata, "metadata".to_owned()),
    };
    let fields = Fields::within(map, &path);

    manifest.skill_key = fields.short("skillKey")?;
    manifest.emoji = fields.short("emoji")?;
    manifest.always = fields.flag("always", Choice::No)?;
    if manifest.homepage.is_none() {
        manifest.homepage = fields.short("homepage")?;
    }
    manifest.primary_env = fields.short("primaryEnv")?;
    if let Some(name) = &manifest.primary_env {
        check_env(&fields, "primaryEnv", name)?;
    }
    manifest.requires.os = fields.list("os")?.iter().map(|os| system(os)).collect();
    if let Some((map, path)) = fields.map("requires")? {
        requirements(&mut manifest.requires, &Fields::within(map, &path))?;
    }
    manifest.install = steps(&fields)?;
    Ok(())
}

fn requirements(requires: &mut Requirements, fields: &Fields<'_>) -> Result<(), Flaw> {
    requires.bins = fields.list("bins")?;
    requires.any_bins = fields.list("anyBins")?;
    for (name, bins) in [("bins", &requires.bins), ("anyBins", &requires.any_bins)] {
        // Somebody will ask a shell whether it has them.
        let is_command = |bin: &String| {
            !bin.starts_with('-')
                && bin.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
        };
        if let Some(bad) = bins.iter().find(|bin| !is_command(bin)) {
            let bad = crate::name::shown(bad);
            return Err(fields.flaw(
                name,
                format!(
                    "has `{bad}`, which is no name of a command: write it as in `{name}: [curl]`"
                ),
            ));
        }
    }
    requires.env = fields.list("env")?;
    for name in &requires.env {
        check_env(fields, "env", name)?;
    }
    requires.config = fields.list("config")?;
    if fields.get("os").is_some() {
        requires.os = fields.list("os")?.iter().map(|os| system(os)).collect();
    }
    Ok(())
}

fn check_env(fields: &Fields<'_>, field: &str, name: &str) -> Result<(), Flaw> {
    let is_name = !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_name {
        return Ok(());
    }
    let name = crate::name::shown(name);
    Err(fields.flaw(
        field,
        format!("has `{name}`, which is no name of a variable: write it as in `TODOIST_API_KEY`"),
    ))
}

/// A system by the name that programs give it.
fn system(os: &str) -> String {
    match os.to_ascii_lowercase().as_str() {
        "macos" | "mac" | "osx" => "darwin".to_owned(),
        "windows" | "win" => "win32".to_owned(),
        other => other.to_owned(),
    }
}

fn steps(fields: &Fields<'_>) -> Result<Vec<InstallStep>, Flaw> {
    let wrong =
        || fields.flaw("install", "must be a list, each with a `kind`, as in `- kind: node`");
    let entries = match fields.get("install") {
        None => return Ok(Vec::new()),
        Some(serde_json::Value::Array(entries)) if entries.len() <= 32 => entries,
        Some(_) => return Err(wrong()),
    };
    let path = fields.path_of("install");
    entries
        .iter()
        .map(|entry| {
            let serde_json::Value::Object(map) = entry else { return Err(wrong()) };
            let step = Fields::within(map, &path);
            let kind = step.short("kind")?.ok_or_else(wrong)?;
            Ok(InstallStep { kind, label: step.short("label")?, bins: step.list("bins")? })
        })
        .collect()
}

#[cfg(test)]
mod tests;
