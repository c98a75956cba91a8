//! Resources in a file, as the gateway's messages: what `holdfast apply` applies without Kubernetes.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use holdfast_proto::gateway::v1 as pb;
use kube::CustomResourceExt;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    Agent, AgentSpec, Channel, ChannelSpec, ModelProvider, ModelProviderSpec, SecretReference,
    agent::work::BehaviorDocuments,
};

const API_VERSION: &str = "holdfast.dev/v1alpha1";

/// Reason why a file cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDocuments {
    #[error("that is no YAML: {0}")]
    Yaml(#[from] serde_saphyr::Error),
    #[error(
        "the variable `{name}` is not set: set it, or write `$${{{name}}}` if it is no variable"
    )]
    UnsetVariable { name: String },
    #[error("{what}: {why}")]
    Document {
        /// Kind and name.
        what: String,
        why: String,
    },
    #[error(
        "the file describes the tenants `{0}` and `{1}`: a file for `holdfast apply` describes one"
    )]
    SeveralTenants(String, String),
}

/// What a file describes.
#[derive(Debug, Default, PartialEq)]
pub struct Documents {
    /// Name of the tenant, if the file says it.
    pub tenant: Option<String>,
    pub providers: Vec<(pb::Provider, ProviderSecrets)>,
    /// Agents with their own behaviours, if the file describes these.
    pub agents: Vec<(pb::Agent, Option<BehaviorDocuments>)>,
    /// Channel accounts with their secrets, as JSON; empty is none.
    pub accounts: Vec<(pb::Account, String)>,
    pub routing: Option<RoutingSpec>,
}

/// Secrets of a provider.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProviderSecrets {
    /// Empty is none.
    pub api_key: String,
    /// Headers by name.
    pub headers: HashMap<String, String>,
}

impl fmt::Debug for ProviderSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSecrets").finish_non_exhaustive()
    }
}

/// Bindings, rules and identities of a tenant. A list that is absent is left as it is; one that is
/// given is what there is afterwards.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingSpec {
    /// As `holdfast routing bindings list --output json` prints them, without ids.
    pub bindings: Option<Vec<Map<String, Value>>>,
    /// As `holdfast routing rules list --output json` prints them.
    pub rules: Option<Vec<Value>>,
    /// As `holdfast routing identities list --output json` prints them.
    pub identities: Option<Vec<IdentitySpec>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentitySpec {
    #[serde(default)]
    pub channel: String,
    pub peer: String,
    pub canonical: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    api_version: String,
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    spec: Map<String, Value>,
    /// Of a Secret, in plain text.
    #[serde(default)]
    string_data: BTreeMap<String, String>,
    /// Of a Secret, in base64.
    #[serde(default)]
    data: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
}

type Secrets = BTreeMap<String, BTreeMap<String, String>>;

impl Documents {
    /// Parses the documents of a file. `${NAME}` in a value is replaced by the variable of this name,
    /// `$${NAME}` is the text `${NAME}`.
    ///
    /// # Errors
    ///
    /// If a document is invalid, a variable is not set, or a secret is not in the file.
    pub fn parse(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, InvalidDocuments> {
        let mut documents = Vec::new();
        for mut value in serde_saphyr::from_multiple::<Value>(text)? {
            if value.is_null() {
                continue;
            }
            expand(&mut value, variable)?;
            let what = value["kind"].as_str().unwrap_or("a document").to_owned();
            let document: Document = serde_json::from_value(value)
                .map_err(|error| InvalidDocuments::Document { what, why: error.to_string() })?;
            documents.push(document);
        }
        let mut secrets = Secrets::new();
        for document in documents.iter().filter(|document| document.is_secret()) {
            secrets.insert(document.metadata.name.clone(), document.secret_values()?);
        }
        let mut parsed = Self::default();
        for document in documents.iter().filter(|document| !document.is_secret()) {
            parsed.add(document, &secrets)?;
        }
        Ok(parsed)
    }

    fn add(&mut self, document: &Document, secrets: &Secrets) -> Result<(), InvalidDocuments> {
        if document.api_version != API_VERSION {
            let why = format!("its `apiVersion` is not `{API_VERSION}`");
            return Err(document.invalid(why));
        }
        let named = document.spec.get("name").and_then(Value::as_str);
        let name = named.unwrap_or(&document.metadata.name).to_owned();
        match document.kind.as_str() {
            "Tenant" => self.name_tenant(name)?,
            "ModelProvider" => {
                let spec: ModelProviderSpec = document.spec::<ModelProvider, _>()?;
                let api_key = document.secret(spec.api_key.as_ref(), secrets)?;
                let header = |(name, reference): (&String, &SecretReference)| {
                    Ok((name.clone(), document.secret(Some(reference), secrets)?))
                };
                let headers: Result<_, InvalidDocuments> =
                    spec.headers.iter().map(header).collect();
                let secrets = ProviderSecrets { api_key, headers: headers? };
                self.providers.push((spec.to_message(name), secrets));
            }
            "Agent" => {
                let spec: AgentSpec = document.spec::<Agent, _>()?;
                let agent = spec.to_message(String::new(), name, false);
                self.agents.push((agent, spec.behavior_documents));
            }
            "Channel" => {
                let spec: ChannelSpec = document.spec::<Channel, _>()?;
                let references = spec.secret.iter().chain(spec.secrets.values());
                let values: Result<Vec<_>, _> =
                    references.map(|reference| document.secret(Some(reference), secrets)).collect();
                let secrets = spec.secrets_json(values?).map_err(|why| document.invalid(why))?;
                self.accounts.push((spec.to_message(String::new(), name), secrets));
            }
            "Routing" if self.routing.is_some() => {
                return Err(document.invalid("there is a document of this kind already"));
            }
            "Routing" => self.routing = Some(document.parse(Value::Object(document.spec.clone()))?),
            _ => {
                return Err(document.invalid(
                    "the kind is not known: Secret, Tenant, ModelProvider, Agent, Channel and \
                     Routing are",
                ));
            }
        }
        Ok(())
    }

    fn name_tenant(&mut self, name: String) -> Result<(), InvalidDocuments> {
        match self.tenant.replace(name.clone()) {
            Some(other) if other != name => Err(InvalidDocuments::SeveralTenants(other, name)),
            _ => Ok(()),
        }
    }
}

/// Reads an agent that [`agent_document`](super::manifests::agent_document) wrote. Variables are not
/// replaced.
///
/// # Errors
///
/// If it is no resource of the kind `Agent`.
pub fn agent_of_document(text: &str) -> Result<pb::Agent, InvalidDocuments> {
    let document: Document = serde_saphyr::from_str(text)?;
    if document.api_version != API_VERSION || document.kind != "Agent" {
        return Err(document.invalid(format!("it is no `Agent` of `{API_VERSION}`")));
    }
    let spec: AgentSpec = document.spec::<Agent, _>()?;
    let name = spec.name.clone().unwrap_or_else(|| document.metadata.name.clone());
    Ok(spec.to_message(String::new(), name, false))
}

impl Document {
    fn is_secret(&self) -> bool {
        self.kind == "Secret" && self.api_version == "v1"
    }

    fn invalid(&self, why: impl Into<String>) -> InvalidDocuments {
        let what = format!("{} `{}`", self.kind, self.metadata.name);
        InvalidDocuments::Document { what, why: why.into() }
    }

    /// The specification of a resource. The key decides about the tenant, so that the field `tenant`
    /// may be absent.
    fn spec<K: CustomResourceExt, T: DeserializeOwned>(&self) -> Result<T, InvalidDocuments> {
        let mut spec = self.spec.clone();
        spec.entry("tenant").or_insert_with(|| Value::String(String::new()));
        let spec = Value::Object(spec);
        let definition = serde_json::to_value(K::crd()).unwrap_or_default();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        if let Some(field) = unknown_field(&schema["properties"]["spec"], &spec, "spec") {
            return Err(self.invalid(format!("there is no field `{field}`")));
        }
        self.parse(spec)
    }

    fn parse<T: DeserializeOwned>(&self, spec: Value) -> Result<T, InvalidDocuments> {
        serde_json::from_value(spec).map_err(|error| self.invalid(error.to_string()))
    }

    fn secret_values(&self) -> Result<BTreeMap<String, String>, InvalidDocuments> {
        let mut values = self.string_data.clone();
        for (key, encoded) in &self.data {
            let decoded = BASE64_STANDARD.decode(encoded).ok();
            let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            let text =
                text.ok_or_else(|| self.invalid(format!("`data.{key}` is no text in base64")))?;
            values.insert(key.clone(), text);
        }
        Ok(values)
    }

    fn secret(
        &self,
        reference: Option<&SecretReference>,
        secrets: &Secrets,
    ) -> Result<String, InvalidDocuments> {
        let Some(SecretReference { name, key }) = reference else { return Ok(String::new()) };
        let value = secrets.get(name).and_then(|values| values.get(key));
        value.cloned().ok_or_else(|| {
            self.invalid(format!(
                "the Secret `{name}` with the key `{key}` is not in the file: add it, with `stringData`"
            ))
        })
    }
}

/// Path of a field that the schema does not have.
fn unknown_field(schema: &Value, value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            fields.iter().find_map(|(name, value)| {
                let path = format!("{path}.{name}");
                match known {
                    Some(known) => match known.get(name) {
                        Some(schema) => unknown_field(schema, value, &path),
                        None => Some(path),
                    },
                    // Any fields, as in the settings of a channel.
                    None => unknown_field(&schema["additionalProperties"], value, &path),
                }
            })
        }
        Value::Array(items) => {
            items.iter().find_map(|item| unknown_field(&schema["items"], item, path))
        }
        _ => None,
    }
}

/// Replaces variables in all texts of a document.
fn expand(
    value: &mut Value,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(), InvalidDocuments> {
    match value {
        Value::String(text) => *text = expand_text(text, variable)?,
        Value::Array(items) => items.iter_mut().try_for_each(|item| expand(item, variable))?,
        Value::Object(fields) => {
            fields.values_mut().try_for_each(|field| expand(field, variable))?;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

fn expand_text(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<String, InvalidDocuments> {
    let (mut expanded, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        let Some((name, after)) = from[2..].split_once('}').filter(|(name, _)| is_name(name))
        else {
            // No variable, for example `${HOME:-/root}` of a shell.
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &from[2..];
            continue;
        };
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str(&from[..name.len() + 3]);
        } else {
            let value = variable(name);
            let value =
                value.ok_or_else(|| InvalidDocuments::UnsetVariable { name: name.to_owned() })?;
            expanded.push_str(before);
            expanded.push_str(&value);
        }
        rest = after;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: openai}
stringData: {api-key: "${KEY}"}
---
apiVersion: holdfast.dev/v1alpha1
kind: Tenant
metadata: {name: family}
---
apiVersion: holdfast.dev/v1alpha1
kind: ModelProvider
metadata: {name: openai}
spec:
  tenant: family
  kind: openai
  apiKey: {name: openai, key: api-key}
  headers: {x-team: {name: openai, key: api-key}}
  extraBody: {top_k: 40}
---
apiVersion: holdfast.dev/v1alpha1
kind: Agent
metadata: {name: family-coach}
spec:
  name: coach
  instructions: "Say ${HOME:-x} and $${KEY}."
  behaviors: {maxSteps: 7}
  behaviorDocuments: {do: "process_rule: work\n"}
---
apiVersion: holdfast.dev/v1alpha1
kind: Routing
metadata: {name: routing}
spec:
  rules: [{agent: coach, pattern: homework}]
"#;

    fn parse(text: &str) -> Result<Documents, InvalidDocuments> {
        Documents::parse(text, &|name| (name == "KEY").then(|| "sk-1".to_owned()))
    }

    #[test]
    fn a_file_is_read_with_its_secrets_and_variables() {
        let parsed = parse(FILE).unwrap();

        assert_eq!(parsed.tenant.as_deref(), Some("family"));
        let (provider, secrets) = &parsed.providers[0];
        assert_eq!((provider.name.as_str(), secrets.api_key.as_str()), ("openai", "sk-1"));
        assert_eq!(secrets.headers, [("x-team".to_owned(), "sk-1".to_owned())].into());
        assert_eq!(provider.extra_body.as_deref(), Some(r#"{"top_k":40}"#));
        let (agent, documents) = &parsed.agents[0];
        assert_eq!(agent.name, "coach");
        assert_eq!(agent.instructions, "Say ${HOME:-x} and ${KEY}.");
        assert_eq!(agent.behaviors.as_ref().unwrap().max_steps, 7);
        assert_eq!(documents.as_ref().unwrap()["do"], "process_rule: work\n");
        let routing = parsed.routing.unwrap();
        assert_eq!(routing.rules.unwrap().len(), 1);
        assert_eq!(routing.bindings, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, expected) in [
            ("${KEY}\"}", "${TOKEN}\"}", "the variable `TOKEN` is not set"),
            (
                "  kind: openai\n",
                "  kind: openai\n  baseURL: x\n",
                "ModelProvider `openai`: there is no field `spec.baseURL`",
            ),
            (
                "key: api-key}",
                "key: other}",
                "the Secret `openai` with the key `other` is not in the file",
            ),
            ("kind: Routing", "kind: Route", "Route `routing`: the kind is not known"),
            ("rules:", "rulez:", "Routing `routing`: unknown field `rulez`"),
            ("kind: Agent", "kind: [", "that is no YAML"),
            ("  name: coach", "  name: 7", "Agent `family-coach`: invalid type"),
        ] {
            let broken = FILE.replace(from, to);
            assert_ne!(broken, FILE, "{from}");
            let error = parse(&broken).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_file_describes_one_tenant() {
        let two = "---\napiVersion: holdfast.dev/v1alpha1\nkind: Tenant\nmetadata: {name: other}\n";

        let error = parse(&format!("{FILE}{two}")).unwrap_err().to_string();

        assert!(error.contains("`family` and `other`"), "{error}");
    }
}
