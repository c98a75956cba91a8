//! The methods: name, scope, parameters, handler. One file per family.
//!
//! A handler takes typed parameters. An unknown field is an error that names it; fields of the
//! protocol that mean nothing to a hosted mesh are listed with their method, and ignored.

mod absent;
mod agent;
mod agents;
mod approvals;
mod channels;
mod chat;
mod commands;
mod config;
mod cron;
mod devices;
mod event_log;
mod history;
mod models;
pub mod refusals;
mod sessions;
mod skills;
mod status;
mod subscriptions;
mod tasks;
mod tenant;
mod usage;

use std::{collections::HashMap, sync::LazyLock};

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{call::Call, connection::Protocol, error::MethodError};
use crate::permissions::operator_scopes::{Grants, OperatorScope};

pub use event_log::MAX_LOG_SUBSCRIPTIONS_PER_TENANT;

pub type Reply = Result<Value, MethodError>;

/// Method of both protocols.
pub struct Method {
    pub name: &'static str,
    /// Scope of the connection; `None` needs none.
    pub scope: Option<OperatorScope>,
    pub run: fn(Call, Value) -> BoxFuture<'static, Reply>,
}

/// Declares a method: name, scope, handler, and the fields that are ignored.
macro_rules! method {
    ($name:literal, $scope:expr, $handler:path) => {
        method!($name, $scope, $handler, [])
    };
    ($name:literal, $scope:expr, $handler:path, [$($field:literal),* $(,)?]) => {
        $crate::ws::methods::Method {
            name: $name,
            scope: $scope,
            run: |call, params| Box::pin(async move {
                let params = $crate::ws::methods::parse($name, &[$($field),*], params)?;
                $handler(call, params).await
            }),
        }
    };
}
use method;

/// Scopes, as the table writes them.
const READ: Option<OperatorScope> = Some(OperatorScope::Read);
const WRITE: Option<OperatorScope> = Some(OperatorScope::Write);
const ADMIN: Option<OperatorScope> = Some(OperatorScope::Admin);
const EVENTS: Option<OperatorScope> = Some(OperatorScope::Events);

/// Families of methods.
const FAMILIES: &[&[Method]] = &[
    absent::METHODS,
    agent::METHODS,
    agents::METHODS,
    approvals::METHODS,
    channels::METHODS,
    chat::METHODS,
    commands::METHODS,
    config::METHODS,
    cron::METHODS,
    devices::METHODS,
    event_log::METHODS,
    models::METHODS,
    sessions::METHODS,
    skills::METHODS,
    status::METHODS,
    tasks::METHODS,
    tenant::METHODS,
    usage::METHODS,
];

/// Families of LurkBot's protocol only.
const LURKBOT_FAMILIES: &[&[Method]] = &[subscriptions::METHODS];

/// Names of LurkBot's protocol for methods that have another name here.
const LURKBOT_NAMES: &[(&str, &str)] = &[
    ("agents.identity", "agent.identity.get"),
    ("sessions.history", "chat.history"),
    ("cron.wake", "wake"),
];

/// Method of this name in a protocol; `None` if there is none.
pub fn find(protocol: Protocol, name: &str) -> Option<&'static Method> {
    static BY_NAME: LazyLock<HashMap<&str, &Method>> =
        LazyLock::new(|| all().map(|method| (method.name, method)).collect());
    if protocol == Protocol::LurkBot {
        let mut own = LURKBOT_FAMILIES.iter().flat_map(|family| family.iter());
        if let Some(method) = own.find(|method| method.name == name) {
            return Some(method);
        }
    }
    let other = LURKBOT_NAMES.iter().find(|(lurkbot, _)| *lurkbot == name);
    let name = match (protocol, other) {
        (Protocol::LurkBot, Some((_, name))) => name,
        (Protocol::LurkBot | Protocol::OpenClaw(_), _) => name,
    };
    BY_NAME.get(name).copied()
}

/// Names of the methods that a connection may call.
pub fn names(protocol: Protocol, grants: Grants) -> Vec<&'static str> {
    let may = |method: &&Method| method.scope.is_none_or(|scope| grants.has(scope));
    let mut names: Vec<_> = all().filter(may).map(|method| method.name).collect();
    if protocol == Protocol::LurkBot {
        let known = |(lurkbot, name): &(&'static str, &'static str)| {
            names.contains(name).then_some(*lurkbot)
        };
        let own = LURKBOT_FAMILIES.iter().flat_map(|family| family.iter());
        let other: Vec<_> = LURKBOT_NAMES.iter().filter_map(known).collect();
        names.extend(other);
        names.extend(own.filter(may).map(|method| method.name));
    }
    names
}

fn all() -> impl Iterator<Item = &'static Method> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Parses the parameters of a method.
fn parse<T: DeserializeOwned>(
    method: &str,
    ignored: &[&str],
    mut params: Value,
) -> Result<T, MethodError> {
    match &mut params {
        Value::Null => params = json!({}),
        Value::Object(fields) => {
            for field in ignored {
                fields.remove(*field);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(MethodError::invalid(format!(
                "invalid {method} params: must be an object"
            )));
        }
    }
    serde_path_to_error::deserialize(params)
        .map_err(|error| MethodError::invalid(format!("invalid {method} params: {error}")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_method_is_declared_once() {
        let names: BTreeSet<_> = all().map(|method| method.name).collect();

        assert_eq!(names.len(), all().count());
        for (lurkbot, name) in LURKBOT_NAMES {
            assert!(!names.contains(lurkbot), "{lurkbot}");
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn a_parameter_that_is_wrong_is_named() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Params {
            #[serde(rename = "limit")]
            _limit: u32,
        }
        let told = |params| parse::<Params>("x.list", &["old"], params).unwrap_err().message;

        assert!(parse::<Params>("x.list", &["old"], json!({"limit": 1, "old": 2})).is_ok());
        assert!(told(json!({"limit": "1"})).starts_with("invalid x.list params: limit: invalid"));
        assert!(told(json!({"limit": 1, "new": 2})).contains("unknown field `new`"));
        assert!(told(json!([])).contains("must be an object"));
        assert!(told(Value::Null).contains("missing field `limit`"));
    }
}
