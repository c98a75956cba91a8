//! Agent packages: agents as `*.skill.yaml` files (spec SKL-014).
//!
//! ```yaml
//! name: travel-agent
//! version: "1.0"
//! author: Ada
//! agent:
//!   id: travel
//!   prompt: You plan journeys.
//! tools: [web_search, web_fetch]
//! routing:
//!   pattern: "(?i)trip|journey"
//! behaviors:
//!   default: plan
//!   documents:
//!     plan: |
//!       process_rule: Plan.
//! hit_points:
//!   max: 5000
//! ```
//!
//! Importing makes an agent and a routing rule, which is off until it is approved; exporting is the
//! inverse. An empty list of tools allows none (C-47); without the list, the policy decides.

mod behaviors;

use holdfast_types::{AgentName, HitPointSettings};
use serde::Serialize;

use crate::{
    Error, Flaw, SkillName,
    document::{parse_json5, parse_yaml},
    fields::Fields,
};

pub use self::behaviors::PackagedBehaviors;

/// Maximum length of a prompt, in characters.
const MAX_PROMPT_CHARS: usize = 100_000;
/// Maximum length of a pattern, in characters.
const MAX_PATTERN_CHARS: usize = 500;

/// Agent as a `*.skill.yaml` file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentPackage {
    pub name: SkillName,
    /// Version in the author's own scheme.
    pub version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    pub agent: PackagedAgent,
    /// Tools that the agent may use; `None` for all that the policy allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<PackagedRoute>,
    /// `None` if the agent works without behaviours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behaviors: Option<PackagedBehaviors>,
    /// `None` if work costs the agent nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_points: Option<HitPointSettings>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackagedAgent {
    pub id: AgentName,
    /// Instructions of the agent, up to 100,000 characters.
    pub prompt: String,
}

/// Routing rule of a package's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackagedRoute {
    /// Regular expression for the message text. Not compiled here: the importer checks it.
    pub pattern: String,
}

impl AgentPackage {
    /// Parses a package. `file` is the path for errors.
    ///
    /// # Errors
    ///
    /// [`Error::Document`] names the file, the field and the fix.
    pub fn read(file: &str, text: &[u8]) -> Result<Self, Error> {
        read(text).map_err(|flaw| Error::document(file, flaw))
    }

    /// Writes the package as YAML. Reading it returns an equal package.
    ///
    /// # Errors
    ///
    /// [`Error::Document`] if a field is invalid, which is possible only for packages that were not
    /// read from a file.
    pub fn write(&self) -> Result<String, Error> {
        let options = serde_saphyr::ser_options! { prefer_block_scalars: true };
        let text = serde_saphyr::to_string_with_options(self, options)
            .map_err(|error| Error::Broken(error.into()))?;
        let again = Self::read(&self.file_name(), text.as_bytes())?;
        if again == *self {
            return Ok(text);
        }
        // YAML's block scalars change some rare texts; quoting preserves them.
        let options = serde_saphyr::ser_options! { prefer_block_scalars: false, quote_all: true };
        let text = serde_saphyr::to_string_with_options(self, options)
            .map_err(|error| Error::Broken(error.into()))?;
        match Self::read(&self.file_name(), text.as_bytes())? {
            again if again == *self => Ok(text),
            _ => Err(Error::document(
                self.file_name(),
                Flaw::of("has spaces or invisible characters where a package has none: trim them"),
            )),
        }
    }

    /// File name of the package: `<name>.skill.yaml`.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.skill.yaml", self.name)
    }
}

fn read(text: &[u8]) -> Result<AgentPackage, Flaw> {
    const KNOWN: [&str; 8] =
        ["name", "version", "author", "agent", "tools", "routing", "behaviors", "hit_points"];

    let text = std::str::from_utf8(text).map_err(|_| Flaw::of("is not UTF-8: save it as UTF-8"))?;
    let document =
        if text.trim_start().starts_with('{') { parse_json5(text) } else { parse_yaml(text) }?;
    let fields = Fields::of(&document)?;
    check_known_fields(&fields, &KNOWN)?;
    let name = fields.required_text("name", "travel-agent")?;
    let name = name.trim().parse().map_err(|error: crate::InvalidName| {
        fields.flaw("name", format!("cannot be taken: {error}"))
    })?;
    let version = fields
        .short_line("version")?
        .ok_or_else(|| fields.flaw("version", "is missing: write `version: \"1.0\"`"))?;
    let tools = match fields.get("tools") {
        None => None,
        Some(_) => Some(tools(&fields)?),
    };
    Ok(AgentPackage {
        name,
        version,
        author: fields.short_line("author")?,
        agent: agent(&fields)?,
        tools,
        routing: routing(&fields)?,
        behaviors: behaviors::behaviors(&fields)?,
        hit_points: behaviors::hit_points(&fields)?,
    })
}

/// Refuses unknown fields: a misspelt field must not be ignored silently.
fn check_known_fields(fields: &Fields<'_>, names: &[&str]) -> Result<(), Flaw> {
    match fields.names().find(|name| !names.contains(name)) {
        None => Ok(()),
        Some(unknown) => {
            let path = fields.path_of(&crate::name::escape_untrusted(unknown));
            Err(Flaw::at(&path, format!("is no field: there are `{}`", names.join("`, `"))))
        }
    }
}

fn agent(fields: &Fields<'_>) -> Result<PackagedAgent, Flaw> {
    let Some((map, path)) = fields.map("agent")? else {
        return Err(fields.flaw("agent", "is missing: write `agent:` with `id` and `prompt` below"));
    };
    let agent = Fields::within(map, &path);
    check_known_fields(&agent, &["id", "prompt"])?;
    let id = agent.required_text("id", "travel")?;
    let name = AgentName::new(&id);
    if name.as_str() != id {
        return Err(agent.flaw("id", format!("is no name of an agent: write `id: {name}`")));
    }
    let prompt = agent.required_text("prompt", "what the agent is told to be and to do")?;
    let length = prompt.chars().count();
    if length > MAX_PROMPT_CHARS || prompt.contains('\0') {
        return Err(agent.flaw(
            "prompt",
            format!("has {length} characters, and {MAX_PROMPT_CHARS} without NUL is the most"),
        ));
    }
    Ok(PackagedAgent { id: name, prompt })
}

fn tools(fields: &Fields<'_>) -> Result<Vec<String>, Flaw> {
    let tools = fields.list("tools")?;
    let is_name = |name: &String| {
        name.len() <= 128
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:*".contains(&byte))
    };
    match tools.iter().find(|name| !is_name(name)) {
        None => Ok(tools),
        Some(bad) => {
            let bad = crate::name::escape_untrusted(bad);
            Err(fields.flaw("tools", format!("has `{bad}`, which is no name of a tool")))
        }
    }
}

fn routing(fields: &Fields<'_>) -> Result<Option<PackagedRoute>, Flaw> {
    let Some((map, path)) = fields.map("routing")? else { return Ok(None) };
    let routing = Fields::within(map, &path);
    check_known_fields(&routing, &["pattern"])?;
    let pattern = routing.required_text("pattern", "\"(?i)trip|journey\"")?;
    let length = pattern.chars().count();
    if length > MAX_PATTERN_CHARS || pattern.contains(char::is_control) {
        return Err(routing.flaw(
            "pattern",
            format!("has {length} characters, and {MAX_PATTERN_CHARS} on one line is the most"),
        ));
    }
    Ok(Some(PackagedRoute { pattern }))
}

#[cfg(test)]
mod tests;
