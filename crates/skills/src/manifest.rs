//! Parser of `SKILL.md`: front matter and the start of the text (spec SKL-002, SKL-013).
//!
//! The front matter is YAML or JSON between two lines `---`. `metadata` is a map or a JSON5 text;
//! its fields are below one of the names in [`METADATA`], or directly in it. Unknown fields are
//! ignored.

use crate::{
    Error, Flaw, SkillName,
    document::{parse_json5, parse_yaml},
    fields::{Fields, FlagDefault},
};

/// Maximum length of a description, in characters (spec SKL-002).
const MAX_DESCRIPTION_CHARS: usize = 1024;
/// Maximum length of a version, in characters.
const MAX_VERSION_CHARS: usize = 64;
/// Maximum size of a `SKILL.md`, in bytes.
const MAX_MANIFEST_BYTES: usize = 1 << 20;
/// Names below `metadata` that may hold the fields; the first that exists is used.
const METADATA_KEYS: [&str; 4] = ["holdfast", "openclaw", "clawdbot", "clawdis"];

/// Parsed front matter of a `SKILL.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    pub name: SkillName,
    /// Purpose on one line, by which models choose a skill. 1 to 1,024 characters.
    pub description: String,
    /// Version in the author's own scheme.
    pub version: Option<String>,
    pub homepage: Option<String>,
    pub tags: Vec<String>,
    /// Whether people may invoke it by `/name`.
    pub user_invocable: bool,
    /// Whether models see it in their list of skills.
    pub model_invocable: bool,
    /// If set, `/name` calls this tool without a model.
    pub dispatch: Option<ToolDispatch>,
    /// Name of its settings, if it differs from the skill's name.
    pub skill_key: Option<String>,
    pub emoji: Option<String>,
    /// Name of its main secret variable.
    pub primary_env: Option<String>,
    /// Whether it is shown even if requirements other than the operating system are not met.
    pub always: bool,
    pub requires: Requirements,
    /// Ways to install its requirements, for people: Holdfast does not run them.
    pub install: Vec<InstallStep>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    pub bins: Vec<String>,
    /// Commands of which at least one must exist.
    pub any_bins: Vec<String>,
    /// Names of variables, which are secrets of the tenant.
    pub env: Vec<String>,
    pub config: Vec<String>,
    /// Supported systems: `linux`, `darwin`, `win32`; empty means all.
    pub os: Vec<String>,
}

/// Slash command that is passed to a tool unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDispatch {
    pub tool: String,
}

/// Way to install requirements of a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallStep {
    /// Installer: `brew`, `node`, `go`, `uv` or `download`.
    pub kind: String,
    pub label: Option<String>,
    pub bins: Vec<String>,
}

impl Manifest {
    /// Parses a `SKILL.md`. `file` is its path, for errors.
    ///
    /// # Errors
    ///
    /// [`Error::Document`] names the file, the field and the fix.
    pub fn read(file: &str, text: &[u8]) -> Result<Self, Error> {
        read(text).map_err(|flaw| Error::document(file, flaw))
    }
}

fn read(text: &[u8]) -> Result<Manifest, Flaw> {
    if text.len() > MAX_MANIFEST_BYTES {
        return Err(Flaw::of(format!(
            "has {} bytes, and {MAX_MANIFEST_BYTES} is the most: put parts of it into files beside it",
            text.len()
        )));
    }
    let text = std::str::from_utf8(text).map_err(|_| Flaw::of("is not UTF-8: save it as UTF-8"))?;
    let head = front_matter(text)?;
    let document =
        if head.trim_start().starts_with('{') { parse_json5(head) } else { parse_yaml(head) }?;
    let fields = Fields::of(&document)?;

    let name = fields.required_text("name", "plan-a-trip")?;
    let name = name.trim().parse().map_err(|error: crate::InvalidName| {
        fields.flaw("name", format!("cannot be taken: {error}"))
    })?;
    check_command(&name)?;
    let dispatch = dispatch(&fields)?;
    let mut manifest = Manifest {
        name,
        description: description(&fields)?,
        version: version(&fields)?,
        homepage: fields.short_line("homepage")?,
        tags: fields.list("tags")?,
        user_invocable: fields.flag("user-invocable", FlagDefault::Yes)?,
        model_invocable: !fields.flag("disable-model-invocation", FlagDefault::No)?,
        dispatch,
        skill_key: None,
        emoji: None,
        primary_env: None,
        always: false,
        requires: Requirements::default(),
        install: Vec::new(),
    };
    read_metadata(&mut manifest, &fields)?;
    Ok(manifest)
}

/// Returns the front matter of a file.
fn front_matter(text: &str) -> Result<&str, Flaw> {
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
            Some(head_at) if is_fence => return Ok(&text[head_at..at - line.len()]),
            Some(_) => {}
        }
    }
    Err(match head_at {
        Some(_) => Flaw::of("has a head that does not end: write a line `---` below its fields"),
        None => missing(),
    })
}

fn description(fields: &Fields<'_>) -> Result<String, Flaw> {
    let text = fields.required_text("description", "what it is for, and when to use it")?;
    // The description becomes one line of a prompt.
    let line = holdfast_tools::clean(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length == 0 {
        return Err(fields.flaw("description", "has nothing in it that can be read"));
    }
    if length > MAX_DESCRIPTION_CHARS {
        return Err(fields.flaw(
            "description",
            format!(
                "has {length} characters, and {MAX_DESCRIPTION_CHARS} is the most: say what it is for, \
                 and put the rest into the text"
            ),
        ));
    }
    Ok(line)
}

/// Version in any scheme; the length is limited by the audit's column.
fn version(fields: &Fields<'_>) -> Result<Option<String>, Flaw> {
    let version = fields.short_line("version")?;
    let length = version.as_deref().map_or(0, |version| version.chars().count());
    if length > MAX_VERSION_CHARS {
        return Err(fields.flaw(
            "version",
            format!(
                "has {length} characters, and {MAX_VERSION_CHARS} is the most: write one such as `1.2.3`"
            ),
        ));
    }
    Ok(version)
}

fn dispatch(fields: &Fields<'_>) -> Result<Option<ToolDispatch>, Flaw> {
    let Some(kind) = fields.short_line("command-dispatch")? else { return Ok(None) };
    if kind != "tool" {
        return Err(fields.flaw("command-dispatch", "may only be `tool`, or left out"));
    }
    if let Some(mode) = fields.short_line("command-arg-mode")?
        && mode != "raw"
    {
        return Err(fields.flaw("command-arg-mode", "may only be `raw`, or left out"));
    }
    let Some(tool) = fields.short_line("command-tool")? else {
        return Err(fields.flaw("command-tool", "is missing: write the name of the tool"));
    };
    if !tool.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        return Err(fields.flaw("command-tool", "is no name of a tool: write one, as in `image`"));
    }
    Ok(Some(ToolDispatch { tool }))
}

fn read_metadata(manifest: &mut Manifest, head: &Fields<'_>) -> Result<(), Flaw> {
    let of_text;
    let metadata = match head.get("metadata") {
        Some(serde_json::Value::String(text)) => {
            of_text = parse_json5(text).map_err(|flaw| {
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
    let named = METADATA_KEYS.iter().find(|name| outer.get(name).is_some());
    let (map, path) = match named {
        Some(name) => match outer.map(name)? {
            Some(found) => found,
            None => return Ok(()),
        },
        None => (metadata, "metadata".to_owned()),
    };
    let fields = Fields::within(map, &path);

    manifest.skill_key = fields.short_line("skillKey")?;
    manifest.emoji = fields.short_line("emoji")?;
    manifest.always = fields.flag("always", FlagDefault::No)?;
    if manifest.homepage.is_none() {
        manifest.homepage = fields.short_line("homepage")?;
    }
    manifest.primary_env = fields.short_line("primaryEnv")?;
    if let Some(name) = &manifest.primary_env {
        check_env(&fields, "primaryEnv", name)?;
    }
    manifest.requires.os = fields.list("os")?.iter().map(|os| canonical_os(os)).collect();
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
        // The names are passed to a shell, which looks up the commands.
        let is_command = |bin: &String| {
            !bin.starts_with('-')
                && bin.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
        };
        if let Some(bad) = bins.iter().find(|bin| !is_command(bin)) {
            let bad = crate::name::escape_untrusted(bad);
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
        requires.os = fields.list("os")?.iter().map(|os| canonical_os(os)).collect();
    }
    Ok(())
}

fn check_env(fields: &Fields<'_>, field: &str, name: &str) -> Result<(), Flaw> {
    let is_name = !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_name {
        return Ok(());
    }
    let name = crate::name::escape_untrusted(name);
    Err(fields.flaw(
        field,
        format!("has `{name}`, which is no name of a variable: write it as in `TODOIST_API_KEY`"),
    ))
}

/// Canonical name of an operating system, as in Node's `process.platform`.
fn canonical_os(os: &str) -> String {
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
            let kind = step.short_line("kind")?.ok_or_else(wrong)?;
            Ok(InstallStep { kind, label: step.short_line("label")?, bins: step.list("bins")? })
        })
        .collect()
}

/// Refuses a name that is already a slash command.
fn check_command(name: &SkillName) -> Result<(), Flaw> {
    let is_taken =
        name.is_same("skill") || holdfast_types::Command::parse(&format!("/{name}")).is_some();
    if is_taken {
        let problem = format!("is `{name}`, and /{name} is a command: take another name");
        return Err(Flaw::at("name", problem));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
