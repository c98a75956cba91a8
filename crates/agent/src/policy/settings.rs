//! What a tenant writes, for itself and for each agent.

use std::collections::BTreeMap;

use holdfast_types::SessionKind;
use serde::{Deserialize, Serialize};

use super::{
    action::Actions,
    approval::Approvals,
    error::{Error, short},
    exec::ExecSettings,
    profile::Profile,
    visibility::Filter,
};

/// Which tools are allowed and denied, somewhere.
///
/// A denial wins. An `allow` that is absent or empty allows all that is not
/// denied (C-56). `also_allow` adds to the profile and to `allow`, and lifts
/// what a default list denies in the same place; never what is written in `deny`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// A ready-made allow-list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// What is allowed; absent or empty is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// What is allowed besides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_allow: Vec<String>,
    /// What is denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// A policy for conversations on a channel, or in one chat. All that match apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChatRule {
    /// The channel, as in `telegram`; absent is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The chat's id on the platform; absent is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// The kind of session; absent is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<SessionKind>,
    /// What applies there.
    pub policy: Policy,
}

/// The tool policy of a tenant, or of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// A ready-made allow-list. An agent's replaces its tenant's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// What is allowed; absent or empty is all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// What is allowed besides the profile and `allow`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_allow: Vec<String>,
    /// What is denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// The only tools there are: absent is all, and an empty list none (C-47).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The same by `provider` or `provider/model`, both of which may have wildcards.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_provider: BTreeMap<String, Policy>,
    /// The same by channel and chat.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub chats: Vec<ChatRule>,
    /// The same for sessions whose commands are restricted or isolated.
    #[serde(skip_serializing_if = "is_default")]
    pub sandbox: Policy,
    /// The same for subagents and the runs of jobs.
    #[serde(skip_serializing_if = "is_default")]
    pub subagents: Policy,
    /// How deep subagents may spawn subagents; 1 if absent: a subagent spawns none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawn_depth: Option<u8>,
    /// To whom, where and when tools are shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub visibility: Vec<Filter>,
    /// Which calls a person must approve.
    #[serde(skip_serializing_if = "is_default")]
    pub approvals: Approvals,
    /// Which commands a person must approve.
    #[serde(skip_serializing_if = "is_default")]
    pub exec: ExecSettings,
    /// What may be run, reached, read and written.
    #[serde(skip_serializing_if = "is_default")]
    pub actions: Actions,
    /// Whose assistants these are: people as their doors name them, as in `telegram:12345`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// Who has which other role: `admin`, `member`, or one of the tenant's own making.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, Vec<String>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Settings {
    /// Reads settings from JSON, as a tenant writes them.
    ///
    /// # Errors
    ///
    /// If the text is no JSON, or has a field that there is not.
    pub fn parse(json: &str) -> Result<Self, Error> {
        serde_json::from_str(json).map_err(|error| Error::Form(short(&error.to_string())))
    }

    /// The fields that lift what holds by default, which only an admin may write (C-08).
    #[must_use]
    pub fn admin_only(&self) -> Vec<&'static str> {
        let lifts = |policy: &Policy| !policy.also_allow.is_empty();
        let fields = [
            ("by_provider", self.by_provider.values().any(lifts)),
            ("chats", self.chats.iter().any(|rule| lifts(&rule.policy))),
            ("subagents", lifts(&self.subagents)),
            ("spawn_depth", self.spawn_depth.is_some_and(|depth| depth > 1)),
            ("approvals", self.approvals.loosens()),
            ("exec", self.exec.loosens()),
        ];
        fields.into_iter().filter(|(_, does)| *does).map(|(field, _)| field).collect()
    }

    /// What applies everywhere, as one policy.
    pub(crate) fn everywhere(&self) -> Policy {
        Policy {
            profile: self.profile,
            allow: self.allow.clone(),
            also_allow: self.also_allow.clone(),
            deny: self.deny.clone(),
        }
    }
}
