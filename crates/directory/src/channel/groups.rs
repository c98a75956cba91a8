//! Behaviour of an account in groups, on channels where groups have ids.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    AllowList,
    field_errors::{self, Field},
};
use crate::channel::UnusableAccount;

const FIELDS: [Field; 2] =
    [("allow", "a list of groups' ids, or [\"*\"]"), ("mention_only", "true or false")];

/// Behaviour of a bot in groups.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupSettings {
    /// Whether the bot answers only messages that mention it; it reads the others too.
    pub mention_only: bool,
    /// Groups that the bot reads; all members may write.
    pub allow: AllowList,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self { mention_only: true, allow: AllowList::default() }
    }
}

/// Checks the field `groups` alone, so that an error in it names its own field.
pub(super) fn check(settings: &serde_json::Value) -> Result<(), UnusableAccount> {
    let Some(groups) = settings.get("groups") else { return Ok(()) };
    field_errors::parse_settings::<GroupSettings>("settings.groups", &FIELDS, groups).map(drop)
}
