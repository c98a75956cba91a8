//! The service `Settings`: settings of agents and policies, each under a path.

use holdfast_directory::{Agent, BaseVersion};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, DescribeSettingsRequest, DescribeSettingsResponse, GetSettingsRequest,
    GetSettingsResponse, SetSettingRequest, SetSettingResponse, SettingDescription,
    policies_server::Policies as _, settings_server::Settings as Service,
};
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use super::{State, agent_of, check_models, new_agent, tool_warnings};
use crate::{
    Error, audit,
    control::{actor, invalid, policies::Policies},
    permissions::{Permission, require},
};

/// Implements `holdfast.gateway.v1.Settings`.
#[derive(Debug)]
pub struct Settings(pub State);

/// Setting of an agent.
struct AgentSetting {
    name: &'static str,
    description: &'static str,
    schema: fn() -> Value,
    get: fn(&pb::Agent) -> Value,
    /// The value has the schema's type, or is null.
    set: fn(&mut pb::Agent, Value),
}

/// Setting that is a text, or one of some words.
macro_rules! text {
    ($field:ident, $description:literal, $schema:expr) => {
        AgentSetting {
            name: stringify!($field),
            description: $description,
            schema: || $schema,
            get: |agent| agent.$field.clone().into(),
            set: |agent, value| agent.$field = value.as_str().unwrap_or_default().to_owned(),
        }
    };
    ($field:ident, $description:literal) => {
        text!($field, $description, json!({ "type": "string" }))
    };
}

/// Setting that is a list of texts.
macro_rules! texts {
    ($field:ident, $description:literal) => {
        AgentSetting {
            name: stringify!($field),
            description: $description,
            schema: || json!({ "type": "array", "items": { "type": "string" } }),
            get: |agent| agent.$field.clone().into(),
            set: |agent, value| agent.$field = strings(&value),
        }
    };
}

/// Setting that is a number from 0 on.
macro_rules! number {
    ($field:ident, $description:literal) => {
        AgentSetting {
            name: stringify!($field),
            description: $description,
            schema: || json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
            get: |agent| agent.$field.into(),
            set: |agent, value| {
                let number = value.as_u64().unwrap_or_default();
                agent.$field = u32::try_from(number).unwrap_or(u32::MAX);
            },
        }
    };
}

const QUEUE_MODES: [&str; 5] = ["steer", "followup", "collect", "interrupt", "steer_backlog"];
const DM_SCOPES: [&str; 4] = ["main", "per-peer", "per-channel-peer", "per-account-channel-peer"];

const AGENT_SETTINGS: [AgentSetting; 14] = [
    text!(description, "Purpose of the agent, for other agents"),
    text!(instructions, "Instructions for its behaviour"),
    text!(model, "Model, as `provider:id` or an alias; empty is the tenant's default"),
    texts!(fallbacks, "Models that are tried in order if its own fails"),
    text!(
        thinking,
        "How much its model thinks before it answers, unless `/think` sets another level",
        words(&["off", "low", "medium", "high"])
    ),
    text!(queue_mode, "What becomes of messages while a turn runs", words(&QUEUE_MODES)),
    number!(debounce_ms, "Time that the queue mode `collect` waits for more, in milliseconds"),
    text!(dm_scope, "Scope of a session of direct messages", words(&DM_SCOPES)),
    text!(
        group_scope,
        "Whether all members of a group share a session",
        words(&["group", "group-user"])
    ),
    text!(time_zone, "Time zone, for example `Europe/Oslo`"),
    texts!(spawns, "Agents that may run as its subagents; `*` is all"),
    number!(
        approval_timeout_s,
        "Time that a call waits for approval, in seconds; 0 is the default"
    ),
    text!(kind, "What its prompt is made of", words(&["embedded", "simple"])),
    text!(reactions, "How often it reacts with an emoji", words(&["off", "minimal", "extensive"])),
];

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
enum SettingPath<'p> {
    Policy,
    OfAgent(&'p str, &'p str),
}

impl<'p> SettingPath<'p> {
    fn parse(path: &'p str) -> Result<Self, Error> {
        let parts: Vec<&str> = path.split('.').collect();
        match parts[..] {
            ["policy"] => Ok(Self::Policy),
            ["agents", agent, setting] if !agent.is_empty() => Ok(Self::OfAgent(agent, setting)),
            _ => Err(no_setting(path)),
        }
    }
}

fn no_setting(path: &str) -> Error {
    let path: String = path.chars().take(80).collect();
    invalid(format!("`{path}` is no setting: `holdfast config describe` lists them"))
}

fn words(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a path is the wanted one or below it.
fn is_within(path: &str, wanted: &str) -> bool {
    let rest = path.strip_prefix(wanted.trim_end_matches('.'));
    wanted.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[tonic::async_trait]
impl Service for Settings {
    async fn get_settings(
        &self,
        request: Request<GetSettingsRequest>,
    ) -> Result<Response<GetSettingsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let wanted = request.path.as_str();
        let agents = self.0.directory.agents().list(caller.tenant).await.map_err(Error::from)?;
        let mut settings = Vec::new();
        if is_within("policy", wanted) {
            settings.push(self.policy(&caller, "policy", "").await?);
        }
        for agent in agents {
            let (name, version) = (agent.name.to_string(), agent.version);
            let path = |setting: &str| format!("agents.{name}.{setting}");
            let policy = path("policy");
            if is_within(&policy, wanted) {
                settings.push(self.policy(&caller, &policy, &name).await?);
            }
            let shown = agent_of(agent);
            let own = AGENT_SETTINGS.iter().map(|one| (path(one.name), (one.get)(&shown)));
            let own = own.filter(|(path, _)| is_within(path, wanted));
            settings.extend(own.map(|(path, value)| setting(path, &value, version)));
        }
        if settings.is_empty() {
            return Err(no_setting(wanted).into());
        }
        Ok(Response::new(GetSettingsResponse { settings }))
    }

    async fn describe_settings(
        &self,
        request: Request<DescribeSettingsRequest>,
    ) -> Result<Response<DescribeSettingsResponse>, Status> {
        let (_, request) = holdfast_grpc::caller(request)?;
        let describe = |path: String, description: &str, schema: &Value| SettingDescription {
            path,
            description: description.to_owned(),
            schema: schema.to_string(),
        };
        let object = json!({ "type": "object" });
        let policies = [
            ("policy", "Tool policy of the tenant"),
            ("agents.NAME.policy", "Tool policy of the agent"),
        ];
        let policies =
            policies.map(|(path, description)| describe(path.to_owned(), description, &object));
        let of_agents = AGENT_SETTINGS.iter().map(|one| {
            describe(format!("agents.NAME.{}", one.name), one.description, &(one.schema)())
        });
        // The name of an agent stands for any.
        let wanted = match request.path.splitn(3, '.').collect::<Vec<_>>()[..] {
            ["agents", _, rest] => format!("agents.NAME.{rest}"),
            ["agents", _] => "agents.NAME".to_owned(),
            _ => request.path.clone(),
        };
        let all = policies.into_iter().chain(of_agents);
        let settings: Vec<_> = all.filter(|one| is_within(&one.path, &wanted)).collect();
        if settings.is_empty() {
            return Err(no_setting(&wanted).into());
        }
        Ok(Response::new(DescribeSettingsResponse { settings }))
    }

    async fn set_setting(
        &self,
        request: Request<SetSettingRequest>,
    ) -> Result<Response<SetSettingResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.path);
        let SetSettingRequest { path, value, base_version } = request;
        let value: Value = serde_json::from_str(&value)
            .map_err(|error| invalid(format!("`value` is no JSON: {error}")))?;
        let set = match SettingPath::parse(&path)? {
            SettingPath::Policy => self.set_policy(&caller, &path, "", value, base_version).await?,
            SettingPath::OfAgent(agent, "policy") => {
                self.set_policy(&caller, &path, agent, value, base_version).await?
            }
            SettingPath::OfAgent(agent, name) => {
                let found = AGENT_SETTINGS.iter().find(|one| one.name == name);
                let one = found.ok_or_else(|| no_setting(&path))?;
                self.set_of_agent(&caller, (&path, agent, one), value, base_version).await?
            }
        };
        Ok(Response::new(set))
    }
}

fn setting(path: String, value: &Value, version: i64) -> pb::Setting {
    pb::Setting { path, value: value.to_string(), version }
}

impl Settings {
    async fn policy(
        &self,
        caller: &Caller,
        path: &str,
        agent: &str,
    ) -> Result<pb::Setting, Status> {
        let request = pb::GetPolicyRequest { agent: agent.to_owned() };
        let found = Policies(self.0.clone()).get_policy(by(caller, request)).await?.into_inner();
        let policy = found.policy.unwrap_or_default();
        Ok(pb::Setting { path: path.to_owned(), value: policy.document, version: policy.version })
    }

    async fn set_policy(
        &self,
        caller: &Caller,
        path: &str,
        agent: &str,
        value: Value,
        base_version: Option<i64>,
    ) -> Result<SetSettingResponse, Status> {
        // As the call that it stands for.
        require(caller, Permission::Own)?;
        let document = if value.is_null() { json!({}) } else { value }.to_string();
        let request = pb::PutPolicyRequest { agent: agent.to_owned(), document, base_version };
        let put = Policies(self.0.clone()).put_policy(by(caller, request)).await?.into_inner();
        let policy = put.policy.unwrap_or_default();
        let (value, version) = (policy.document, policy.version);
        let setting = Some(pb::Setting { path: path.to_owned(), value, version });
        Ok(SetSettingResponse { setting, warnings: put.warnings })
    }

    async fn set_of_agent(
        &self,
        caller: &Caller,
        (path, agent, setting_of): (&str, &str, &AgentSetting),
        value: Value,
        base_version: Option<i64>,
    ) -> Result<SetSettingResponse, Error> {
        check(&(setting_of.schema)(), &value)
            .map_err(|why| invalid(format!("the value of `{path}` {why}")))?;
        let agents = self.0.directory.agents();
        let before: Agent = agents.get(caller.tenant, agent).await?;
        // What was read just now is the base of the other settings, which must not be lost.
        let base = BaseVersion::Settings(base_version.unwrap_or(before.version));
        let mut changed = agent_of(before.clone());
        (setting_of.set)(&mut changed, value);
        let new = new_agent(changed)?;
        check_models(&self.0, caller.tenant, &new, Some(&before)).await?;
        let id = before.id.to_string();
        let updated = agents.update_version(caller.tenant, actor(caller), &id, (base, new)).await?;
        let warnings = tool_warnings(&self.0, &updated.settings).await?;
        let version = updated.version;
        let value = (setting_of.get)(&agent_of(updated));
        Ok(SetSettingResponse {
            setting: Some(setting(path.to_owned(), &value, version)),
            warnings,
        })
    }
}

/// Checks a value against one of the schemas above; null is the default.
fn check(schema: &Value, value: &Value) -> Result<(), String> {
    let is_right = match (schema["type"].as_str().unwrap_or_default(), value) {
        (_, Value::Null) => true,
        ("string", Value::String(text)) => {
            schema["enum"].as_array().is_none_or(|words| words.iter().any(|word| word == text))
        }
        ("array", Value::Array(items)) => items.iter().all(Value::is_string),
        ("integer", number) => number.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
        _ => false,
    };
    if is_right { Ok(()) } else { Err(format!("does not have the form {schema}")) }
}

/// The request of another service's call, by the same caller.
fn by<T>(caller: &Caller, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(caller.clone());
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_reads_back_what_was_set_and_null_is_its_default() {
        for one in &AGENT_SETTINGS {
            let schema = (one.schema)();
            let value = match schema["type"].as_str() {
                Some("string") => schema["enum"].get(1).cloned().unwrap_or_else(|| json!("x")),
                Some("array") => json!(["a", "b"]),
                _ => json!(7),
            };
            let mut agent = pb::Agent::default();
            let default = (one.get)(&agent);

            assert_eq!(check(&schema, &value), Ok(()), "{}", one.name);
            (one.set)(&mut agent, value.clone());
            assert_eq!((one.get)(&agent), value, "{}", one.name);
            (one.set)(&mut agent, Value::Null);
            assert_eq!((one.get)(&agent), default, "{}", one.name);
            assert!(check(&schema, &json!({})).is_err(), "{}", one.name);
        }
    }

    #[test]
    fn a_path_is_that_of_a_setting_and_of_what_is_below_it() {
        assert!(is_within("agents.main.model", "agents.main"));
        assert!(is_within("agents.main.model", ""));
        assert!(!is_within("agents.main.model", "agents.mai"));
        assert_eq!(
            SettingPath::parse("agents.main.model").unwrap(),
            SettingPath::OfAgent("main", "model")
        );
        for wrong in ["", "agents", "agents.main", "agents..model", "gateway.port", "a.b.c.d"] {
            assert!(SettingPath::parse(wrong).is_err(), "{wrong}");
        }
    }
}
