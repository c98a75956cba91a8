//! The resource `Channel`: a channel account of a tenant.

use std::{borrow::Cow, collections::BTreeMap};

use holdfast_directory::channel::{self, CHANNELS, ChannelKind};
use holdfast_proto::gateway::v1 as pb;
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

use super::{DeletionPolicy, Managed, ResourceStatus, SecretReference, any_object, gateway_name};

/// A channel account of a tenant, such as a Telegram bot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "holdfast.dev",
    version = "v1alpha1",
    kind = "Channel",
    plural = "channels",
    namespaced,
    category = "holdfast",
    status = "ResourceStatus",
    doc = "A channel account of a tenant, such as a Telegram bot.",
    annotation("helm.sh/resource-policy", "keep"),
    printcolumn(name = "Tenant", type_ = "string", json_path = ".spec.tenant"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("has(self.spec.name) || self.metadata.name.matches('^[a-z0-9-]{1,64}$')").message("the name of the resource cannot be that in the gateway: set `spec.name`")
)]
#[x_kube(
    validation = Rule::new("has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)").message("`name` never changes: create another resource"),
    validation = Rule::new("self.tenant == oldSelf.tenant").message("`tenant` never changes: create another resource"),
    validation = Rule::new("self.type == oldSelf.type").message("`type` never changes: create another resource")
)]
pub struct ChannelSpec {
    /// Name of the Tenant resource, in the same namespace. It never changes.
    #[schemars(length(min = 1, max = 253))]
    pub tenant: String,
    /// Name of the account; that of the resource if absent. Bindings without an account mean
    /// `default`. It never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9_-]{1,64}$"))]
    pub name: Option<String>,
    /// The platform. It never changes.
    #[serde(rename = "type")]
    pub kind: ChannelType,
    /// Whether the account accepts messages.
    #[serde(default = "enabled")]
    pub enabled: bool,
    /// Settings that are not secret; docs/channels.md lists the fields.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "any_object")]
    pub settings: Map<String, Value>,
    /// The account's own credential: the first secret that docs/channels.md lists for the platform,
    /// such as the bot's token. A short form of an entry in `secrets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretReference>,
    /// All secrets by the names that docs/channels.md lists, such as `bot_token` and `app_token`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub secrets: BTreeMap<String, SecretReference>,
    #[serde(default, skip_serializing_if = "DeletionPolicy::is_default")]
    pub deletion_policy: DeletionPolicy,
}

/// A platform of `holdfast_directory::channel::CHANNELS`, by its name.
#[derive(Debug, Clone, Copy)]
pub struct ChannelType(&'static ChannelKind);

impl PartialEq for ChannelType {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Serialize for ChannelType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name)
    }
}

impl<'de> Deserialize<'de> for ChannelType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let kind = channel::kind(&name).ok_or_else(|| {
            D::Error::custom(format!(
                "`{}` is not a type of channel: use one of {}",
                name.chars().take(80).collect::<String>(),
                names().join(", ")
            ))
        })?;
        Ok(Self(kind))
    }
}

impl JsonSchema for ChannelType {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ChannelType".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": names()})
    }
}

fn names() -> Vec<&'static str> {
    CHANNELS.iter().map(|kind| kind.name).collect()
}

const fn enabled() -> bool {
    true
}

impl Channel {
    /// Name of the account in the gateway.
    pub(crate) fn gateway_name(&self) -> String {
        gateway_name(self, self.spec.name.as_deref())
    }
}

impl Managed for Channel {
    fn status(&self) -> Option<&ResourceStatus> {
        self.status.as_ref()
    }

    fn deletion_policy(&self) -> DeletionPolicy {
        self.spec.deletion_policy
    }

    fn tenant(&self) -> Option<&str> {
        Some(&self.spec.tenant)
    }

    fn claim(&self) -> String {
        format!("{}/{}/{}", self.spec.tenant, self.spec.channel(), self.gateway_name())
    }

    fn secrets(&self) -> Vec<&SecretReference> {
        self.spec.secret.iter().chain(self.spec.secrets.values()).collect()
    }
}

impl ChannelSpec {
    /// Name of the platform.
    pub(crate) const fn channel(&self) -> &'static str {
        self.kind.0.name
    }

    /// Names of the secrets in the gateway, in the order of [`Managed::secrets`].
    ///
    /// # Errors
    ///
    /// What to correct, if a name is not one of the platform's, or occurs twice.
    pub(crate) fn secret_names(&self) -> Result<Vec<&str>, String> {
        let ChannelKind { name: channel, required_secrets, .. } = self.kind.0;
        let known = self.kind.0.secrets();
        let unknown = self.secrets.keys().find(|name| !known.contains(&name.as_str()));
        if let Some(unknown) = unknown {
            return Err(format!(
                "`secrets.{unknown}` is no secret of a {channel} account: there are {}",
                known.join(", ")
            ));
        }
        let own = required_secrets.first().copied();
        let own = match (&self.secret, own) {
            (None, _) => None,
            (Some(_), None) => {
                return Err(format!(
                    "a {channel} account has no secret that it always needs: use `secrets` with {}",
                    known.join(", ")
                ));
            }
            (Some(_), Some(own)) if self.secrets.contains_key(own) => {
                return Err(format!(
                    "`secret` and `secrets.{own}` are the same secret: remove one of them"
                ));
            }
            (Some(_), Some(own)) => Some(own),
        };
        let names: Vec<&str> =
            own.into_iter().chain(self.secrets.keys().map(String::as_str)).collect();
        let missing = required_secrets.iter().find(|name| !names.contains(*name));
        match missing {
            Some(missing) => Err(format!("a {channel} account needs `secrets.{missing}`: add it")),
            None => Ok(names),
        }
    }

    /// The gateway's JSON object of secrets, from values in the order of [`Managed::secrets`].
    ///
    /// # Errors
    ///
    /// See [`secret_names`](Self::secret_names).
    pub(crate) fn secrets_json(
        &self,
        values: impl IntoIterator<Item = String>,
    ) -> Result<String, String> {
        let names = self.secret_names()?.into_iter().map(str::to_owned);
        let fields: Map<String, Value> = names.zip(values.into_iter().map(Value::String)).collect();
        Ok(Value::Object(fields).to_string())
    }

    pub(crate) fn to_message(&self, id: String, name: String) -> pb::Account {
        pb::Account {
            id,
            channel: self.channel().to_owned(),
            name,
            enabled: self.enabled,
            settings: Value::Object(self.settings.clone()).to_string(),
            created_at: None,
            status: None,
        }
    }

    /// All that the gateway has of an account, which is not its secrets; `None` for a platform that
    /// this version does not know.
    pub(crate) fn from_message(account: pb::Account, tenant: &str) -> Option<Self> {
        Some(Self {
            tenant: tenant.to_owned(),
            name: Some(account.name),
            kind: ChannelType(channel::kind(&account.channel)?),
            enabled: account.enabled,
            settings: serde_json::from_str(&account.settings).unwrap_or_default(),
            secret: None,
            secrets: BTreeMap::new(),
            deletion_policy: DeletionPolicy::default(),
        })
    }

    /// The same with references to the secrets that every account of the platform needs, in the
    /// Secret with this name.
    pub(crate) fn with_secrets_in(self, secret: &str) -> Self {
        let reference = |key: &&str| {
            let reference = SecretReference { name: secret.to_owned(), key: (*key).to_owned() };
            ((*key).to_owned(), reference)
        };
        Self { secrets: self.kind.0.required_secrets.iter().map(reference).collect(), ..self }
    }

    /// Names of the secrets that only some accounts of the platform need.
    pub(crate) fn optional_secrets(&self) -> Vec<&'static str> {
        let ChannelKind { required_secrets, .. } = self.kind.0;
        let all = self.kind.0.secrets().iter().copied();
        all.filter(|name| !required_secrets.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(fields: Value) -> ChannelSpec {
        let mut spec = json!({"tenant": "a"});
        let (Some(spec_fields), Value::Object(fields)) = (spec.as_object_mut(), fields) else {
            unreachable!()
        };
        spec_fields.extend(fields);
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn every_platform_of_the_registry_has_the_resource_and_its_secrets() {
        let reference = json!({"name": "s", "key": "k"});
        for kind in CHANNELS {
            let secrets: Map<String, Value> =
                kind.secrets().iter().map(|name| ((*name).to_owned(), reference.clone())).collect();
            let spec = spec(json!({"type": kind.name, "secrets": secrets}));

            let mut names = spec.secret_names().unwrap();
            names.sort_unstable();
            let mut known = kind.secrets().to_vec();
            known.sort_unstable();
            assert_eq!((spec.channel(), names), (kind.name, known));
        }
    }

    #[test]
    fn the_manual_lists_the_secrets_of_every_platform() {
        let manual = include_str!("../../../../docs/operator.md");
        let list = |names: Vec<&str>| {
            let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let cell = quoted.join(", ");
            if cell.is_empty() { " ".to_owned() } else { format!(" {cell} ") }
        };
        let reference = SecretReference { name: "s".to_owned(), key: "k".to_owned() };
        for kind in CHANNELS {
            let spec = spec(json!({"type": kind.name, "secret": reference}));
            let required = list(kind.required_secrets.to_vec());
            let row = format!("| `{}` |{required}|{}|", kind.name, list(spec.optional_secrets()));
            assert!(manual.contains(&row), "docs/operator.md has no row {row}");
        }
    }

    #[test]
    fn secrets_that_do_not_fit_the_platform_are_refused_with_what_to_do() {
        let reference = json!({"name": "s", "key": "k"});
        for (fields, told) in [
            (json!({"type": "slack"}), "a slack account needs `secrets.bot_token`: add it"),
            (
                json!({"type": "slack", "secrets": {"token": reference}}),
                "there are bot_token, app_token, signing_secret",
            ),
            (
                json!({"type": "telegram", "secret": reference, "secrets": {"token": reference}}),
                "`secret` and `secrets.token` are the same secret",
            ),
            (
                json!({"type": "irc", "secret": reference}),
                "use `secrets` with password, server_password",
            ),
            (
                json!({"type": "whatsapp", "secret": reference}),
                "needs `secrets.app_secret`: add it",
            ),
        ] {
            let error = spec(fields).secret_names().unwrap_err();
            assert!(error.contains(told), "{error}");
        }
        let short = spec(json!({"type": "webhook", "secret": reference}));
        assert_eq!(short.secrets_json(["v".to_owned()]).unwrap(), r#"{"secret":"v"}"#);
        assert!(spec(json!({"type": "irc"})).secret_names().unwrap().is_empty());
    }
}
