//! Policy settings of a tenant and of its agents.

use std::collections::BTreeMap;

use holdfast_types::SessionKind;
use serde::{Deserialize, Serialize};

use super::{
    action::Actions,
    approval::Approvals,
    error::{Error, short},
    exec::ExecSettings,
    profile::Profile,
    sandbox_mode::SandboxMode,
    visibility::VisibilityFilter,
};

/// Allowed and denied tools in one context.
///
/// A denial wins. An `allow` that is absent or empty allows everything that is not denied (C-56).
/// `also_allow` extends the profile and `allow`, and lifts the default denials of the same context,
/// but never those in `deny`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Absent or empty allows all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_allow: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// Policy for a channel or a chat. All matching rules apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChatRule {
    /// Such as `telegram`; absent is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Chat id on the platform; absent is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// Kind of session; absent is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SessionKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_mode: Option<SandboxMode>,
    #[serde(skip_serializing_if = "is_default")]
    pub policy: Policy,
}

/// Tool policy of a tenant or an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// An agent's profile replaces its tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Absent or empty allows all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Tools allowed in addition to the profile and `allow`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_allow: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Complete list of the available tools: absent is all, and an empty list none (C-47).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Policies by `provider` or `provider/model`, both with optional wildcards.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_provider: BTreeMap<String, Policy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chats: Vec<ChatRule>,
    /// Isolation that commands need. Of a tenant's modes for a session the strictest applies, else
    /// the default of its kind; an agent's can only be stricter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_mode: Option<SandboxMode>,
    /// Policy for sessions in restricted or isolated mode.
    #[serde(skip_serializing_if = "is_default")]
    pub sandbox: Policy,
    /// Policy for subagents and job runs.
    #[serde(skip_serializing_if = "is_default")]
    pub subagents: Policy,
    /// Users, places and times for which tools are shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub visibility: Vec<VisibilityFilter>,
    #[serde(skip_serializing_if = "is_default")]
    pub approvals: Approvals,
    #[serde(skip_serializing_if = "is_default")]
    pub exec: ExecSettings,
    #[serde(skip_serializing_if = "is_default")]
    pub actions: Actions,
    /// Owners of the agents, such as `telegram:12345`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// People by role: `admin`, `member`, or a role of the tenant.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, Vec<String>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Settings {
    /// Parses settings from JSON.
    ///
    /// # Errors
    ///
    /// If the text is not JSON or has an unknown field.
    pub fn parse(json: &str) -> Result<Self, Error> {
        serde_json::from_str(json).map_err(|error| Error::Form(short(&error.to_string())))
    }

    /// Returns the lists that apply everywhere as one policy.
    pub(crate) fn everywhere(&self) -> Policy {
        Policy {
            profile: self.profile,
            allow: self.allow.clone(),
            also_allow: self.also_allow.clone(),
            deny: self.deny.clone(),
        }
    }
}
