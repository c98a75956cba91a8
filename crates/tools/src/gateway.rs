//! The `gateway` tool: read-only methods of the gateway.
//!
//! The methods work for the call's tenant only. None of them changes settings, keys, approvals or
//! secrets, or shows them (spec TOL-022).

use std::{future::Future, sync::Arc, time::Duration};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Call, Tool, ToolError};

/// Maximum timeout of a method.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Access to the gateway's methods; implemented by agent-runner and by a fake.
pub trait GatewayMethods: Send + Sync + 'static {
    /// Calls a method for the call's tenant, limited to what the call's conversation may see.
    ///
    /// # Errors
    ///
    /// `Tell` if the object does not exist, the parameters are wrong, the call took too long, or
    /// the conversation may not see it.
    fn ask(
        &self,
        call: &Call,
        method: GatewayMethod,
        params: GatewayParams,
        limit: Duration,
    ) -> impl Future<Output = Result<Value, ToolError>> + Send;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayMethod {
    GetStatus,
    ListSessions,
    GetSession,
    GetHistory,
    ListRuns,
    GetRun,
    ListAgents,
    GetAgent,
}

impl GatewayMethod {
    pub const ALL: [Self; 8] = [
        Self::GetStatus,
        Self::ListSessions,
        Self::GetSession,
        Self::GetHistory,
        Self::ListRuns,
        Self::GetRun,
        Self::ListAgents,
        Self::GetAgent,
    ];

    /// Name in the gateway's contracts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GetStatus => "Operations/GetStatus",
            Self::ListSessions => "Sessions/ListSessions",
            Self::GetSession => "Sessions/GetSession",
            Self::GetHistory => "Sessions/GetHistory",
            Self::ListRuns => "Sessions/ListRuns",
            Self::GetRun => "Sessions/GetRun",
            Self::ListAgents => "Agents/ListAgents",
            Self::GetAgent => "Agents/GetAgent",
        }
    }

    /// Finds a method by its name: `Sessions/GetRun`, `sessions.getrun` and `GetRun` are the same.
    fn find(name: &str) -> Option<Self> {
        let plain = |name: &str| -> String {
            name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
        };
        let wanted = plain(name);
        Self::ALL.into_iter().find(|method| {
            let (_, short) = method.as_str().split_once('/').unwrap_or_default();
            wanted == plain(method.as_str()) || wanted == plain(short)
        })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayParams {
    /// Name or id of an agent.
    pub agent: Option<String>,
    /// Id or key of a session.
    pub session: Option<String>,
    pub run_id: Option<String>,
    /// Kind of the sessions to list.
    pub kind: Option<String>,
    /// Maximum number of results, 1 to 100.
    pub limit: Option<u32>,
}

/// Look at how this installation stands for you: calls one method of the gateway that only reads.
/// Methods: Operations/GetStatus; Sessions/ListSessions (agent, kind, limit), Sessions/GetSession
/// (session), Sessions/GetHistory (session, limit), Sessions/ListRuns (session, limit),
/// Sessions/GetRun (run_id); Agents/ListAgents, Agents/GetAgent (agent).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewayInput {
    /// The method, as Sessions/ListSessions.
    method: String,
    /// Its parameters.
    #[serde(default)]
    params: Map<String, Value>,
    /// At most so many milliseconds; 30000 is the most.
    #[serde(default, rename = "timeoutMs", alias = "timeout_ms")]
    timeout_ms: Option<u64>,
}

#[derive(Debug)]
pub struct Gateway<M>(pub Arc<M>);

impl<M: GatewayMethods> Tool for Gateway<M> {
    const NAME: &'static str = "gateway";
    const EFFECT: Effect = Effect::Reads;
    const TIMEOUT: Option<Duration> = Some(MAX_TIMEOUT);
    type Input = GatewayInput;

    async fn call(&self, call: Call, input: GatewayInput) -> Result<String, ToolError> {
        let GatewayInput { method, params, timeout_ms } = input;
        let Some(method) = GatewayMethod::find(&method) else {
            let all = GatewayMethod::ALL.map(GatewayMethod::as_str).join(", ");
            let shown: String = method.chars().filter(|c| !c.is_control()).take(64).collect();
            return Err(ToolError::Tell(format!(
                "`{shown}` is no method that may be called here; there are: {all}"
            )));
        };
        let params: GatewayParams = serde_json::from_value(Value::Object(params))
            .map_err(|error| ToolError::Tell(format!("the parameters are not right: {error}")))?;
        if !params.limit.is_none_or(|limit| (1..=100).contains(&limit)) {
            return Err(ToolError::Tell("`limit` must be from 1 to 100".to_owned()));
        }
        let limit = timeout_ms.map_or(MAX_TIMEOUT, Duration::from_millis).min(MAX_TIMEOUT);
        let answer = self.0.ask(&call, method, params, limit).await?;
        Ok(answer.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Registry,
        mesh::tests::{said, tell, world},
    };

    /// Returns its arguments.
    struct Echo;

    impl GatewayMethods for Echo {
        async fn ask(
            &self,
            _: &Call,
            method: GatewayMethod,
            params: GatewayParams,
            limit: Duration,
        ) -> Result<Value, ToolError> {
            let millis = u64::try_from(limit.as_millis()).unwrap();
            Ok(json!([method.as_str(), params.session, millis]))
        }
    }

    #[tokio::test]
    async fn a_method_is_called_with_its_parameters_and_for_no_longer_than_it_may() {
        let (call, _, _) = world();
        let tools = Registry::default().with(Gateway(Arc::new(Echo)));
        let ask = |input: Value| {
            let (tools, call) = (&tools, call.clone());
            async move { tools.call(call, "gateway", &input.to_string()).await }
        };

        let long = json!({"method": "Sessions/GetSession", "params": {"session": "ses_1"},
                          "timeoutMs": 90_000});
        assert_eq!(said(ask(long).await), r#"["Sessions/GetSession","ses_1",30000]"#);
        let short = json!({"method": "getstatus", "timeout_ms": 500});
        assert_eq!(said(ask(short).await), r#"["Operations/GetStatus",null,500]"#);
        for (input, told) in [
            (json!({"method": "Keys/CreateKey"}), "no method that may be called here"),
            (json!({"method": "Policies/PutPolicy"}), "no method that may be called here"),
            (json!({"method": "config.set"}), "no method that may be called here"),
            (json!({"method": "approvals.resolve"}), "no method that may be called here"),
            (json!({"method": "GetRun", "params": {"tenant": "acme"}}), "unknown field `tenant`"),
            (json!({"method": "ListRuns", "params": {"limit": 0}}), "from 1 to 100"),
        ] {
            let said = tell(ask(input).await);
            assert!(said.contains(told), "{said}");
        }
    }

    #[test]
    fn no_method_changes_anything() {
        for method in GatewayMethod::ALL {
            let (_, verb) = method.as_str().split_once('/').unwrap();
            assert!(verb.starts_with("Get") || verb.starts_with("List"), "{verb}");
        }
    }
}
