//! Behaviours and hit points of a packaged agent.

use std::collections::BTreeMap;

use holdfast_agent::behavior::Behavior;
use holdfast_types::HitPointSettings;
use serde::Serialize;
use serde_json::Value;

use crate::{Flaw, fields::Fields};

/// Names of the settings, which are those of the package's fields.
const LIMITS: [&str; 3] = ["max_steps", "max_hops", "max_seconds"];

/// Behaviours of a package's agent. A limit that is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PackagedBehaviors {
    /// Behaviour with which a conversation begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_hops: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<u32>,
    /// The agent's own behaviours by their names. They have been checked.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub documents: BTreeMap<String, String>,
}

pub(super) fn behaviors(fields: &Fields<'_>) -> Result<Option<PackagedBehaviors>, Flaw> {
    let Some((map, path)) = fields.map("behaviors")? else { return Ok(None) };
    let of = Fields::within(map, &path);
    super::check_known_fields(&of, &["default", LIMITS[0], LIMITS[1], LIMITS[2], "documents"])?;
    let [max_steps, max_hops, max_seconds] = LIMITS.map(|name| number(&of, name));
    Ok(Some(PackagedBehaviors {
        default: of.short_line("default")?,
        max_steps: max_steps?,
        max_hops: max_hops?,
        max_seconds: max_seconds?,
        documents: documents(&of)?,
    }))
}

fn documents(behaviors: &Fields<'_>) -> Result<BTreeMap<String, String>, Flaw> {
    let Some((map, path)) = behaviors.map("documents")? else { return Ok(BTreeMap::new()) };
    let of = Fields::within(map, &path);
    let mut documents = BTreeMap::new();
    for name in of.names() {
        let source = of.required_text(name, "the document, as a text")?;
        let is_valid = match Behavior::parse(&source, name) {
            Ok(behavior) if behavior.name == name => Ok(()),
            Ok(_) => Err("has another name in the document: change one of the two".to_owned()),
            Err(error) => Err(format!("cannot be used: {error}")),
        };
        is_valid.map_err(|problem| of.flaw(&crate::name::escape_untrusted(name), problem))?;
        documents.insert(name.to_owned(), source);
    }
    Ok(documents)
}

pub(super) fn hit_points(fields: &Fields<'_>) -> Result<Option<HitPointSettings>, Flaw> {
    let Some((map, path)) = fields.map("hit_points")? else { return Ok(None) };
    let of = Fields::within(map, &path);
    let known = [
        "max",
        "floor",
        "per_token_milli",
        "per_action_milli",
        "per_tool_milli",
        "per_io_milli",
        "recovery_milli",
    ];
    super::check_known_fields(&of, &known)?;
    for name in known {
        number(&of, name)?;
    }
    let settings: HitPointSettings = serde_json::from_value(Value::Object(map.clone()))
        .map_err(|_| fields.flaw("hit_points", "has a field without a number"))?;
    settings.check().map_err(|problem| fields.flaw("hit_points", problem))?;
    Ok(Some(settings))
}

fn number(fields: &Fields<'_>, name: &str) -> Result<Option<u32>, Flaw> {
    let wrong = || fields.flaw(name, format!("must be a whole number, as in `{name}: 16`"));
    let Some(value) = fields.get(name) else { return Ok(None) };
    value.as_u64().and_then(|number| u32::try_from(number).ok()).map(Some).ok_or_else(wrong)
}
