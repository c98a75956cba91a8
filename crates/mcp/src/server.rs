//! Server that offers tools.
//!
//! Requests are stateless, so any process can answer any of them. The authentication layer puts the
//! caller into the request's extensions as a [`Serve::Who`]; a request without one is refused.

use std::{borrow::Cow, fmt, sync::Arc};

use holdfast_types::ToolSpec;
use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult,
        PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ServerCapabilities,
        ServerConfig, ToolAnnotations,
    },
    service::{Peer, RequestContext},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
    },
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::ToolResult;

pub trait ToolProvider: Send + Sync + 'static {
    /// Authenticated caller.
    type Who: Clone + Send + Sync + 'static;

    /// Description of the server, sent at initialization.
    fn about(&self) -> ServerDescription;

    /// Tools that this caller may use.
    fn tools(&self, who: &Self::Who) -> Vec<OfferedTool>;

    /// Calls a tool. Failures are returned as an [`ToolResult`].
    fn call(
        &self,
        who: Self::Who,
        tool: &str,
        input: Map<String, Value>,
        context: CallContext,
    ) -> impl Future<Output = ToolResult> + Send;
}

/// Description of the server, sent at initialization.
#[derive(Debug, Clone)]
pub struct ServerDescription {
    pub name: &'static str,
    pub version: &'static str,
    /// Usage instructions for the client's model.
    pub instructions: &'static str,
}

#[derive(Debug, Clone)]
pub struct OfferedTool {
    pub spec: ToolSpec,
    /// Whether the tool only reads; sent as the read-only hint.
    pub is_read_only: bool,
}

/// Progress and cancellation of a call.
pub struct CallContext {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    /// Cancelled when the client cancels the call.
    pub cancelled: CancellationToken,
}

impl CallContext {
    /// Whether the client asked for progress notifications.
    #[must_use]
    pub const fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    /// Sends a progress notification if the client asked for them. `progress` must grow with each.
    pub async fn progress(&self, progress: u32, message: &str) {
        if let Some(token) = &self.token {
            let told = ProgressNotificationParam::new(token.clone(), progress.into());
            // The client may have disconnected; that is not an error.
            let _gone = self.peer.notify_progress(told.with_message(message)).await;
        }
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("wants_progress", &self.wants_progress()).finish()
    }
}

/// Settings of the HTTP service.
#[derive(Debug, Clone, Default)]
pub struct HttpSettings {
    /// Allowed values of the `Origin` header, such as `https://app.example.com:443`. Requests with
    /// another origin are refused; clients that are not web pages usually send none.
    pub origins: Vec<String>,
    /// Maximum size of a request, in bytes.
    pub body_limit: usize,
    /// Ends all running requests when cancelled.
    pub stop: CancellationToken,
}

/// `tower` service that answers MCP requests.
pub type Service<S> = StreamableHttpService<Handler<S>, NeverSessionManager>;

pub fn http_service<S: ToolProvider>(serve: Arc<S>, door: HttpSettings) -> Service<S> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // DNS rebinding does not help an attacker: a request needs a key, which a web page does not
        // have.
        .disable_allowed_hosts()
        .with_allowed_origins(door.origins)
        .enforce_origin_validation()
        .with_max_request_body_bytes(door.body_limit)
        .with_cancellation_token(door.stop);
    let make = move || Ok(Handler(Arc::clone(&serve)));
    StreamableHttpService::new(make, Arc::new(NeverSessionManager::default()), config)
}

pub struct Handler<S>(Arc<S>);

impl<S> fmt::Debug for Handler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl<S: ToolProvider> Handler<S> {
    fn who(context: &RequestContext<RoleServer>) -> Result<S::Who, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let who = parts.and_then(|parts| parts.extensions.get::<S::Who>());
        who.cloned().ok_or_else(|| ErrorData::internal_error("nobody was let in", None))
    }
}

impl<S: ToolProvider> ServerHandler for Handler<S> {
    fn get_info(&self) -> ServerConfig {
        let ServerDescription { name, version, instructions } = self.0.about();
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(name, version))
            .with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let who = Self::who(&context)?;
        let tools = self.0.tools(&who).into_iter().map(rmcp_tool).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let who = Self::who(&context)?;
        if !self.0.tools(&who).iter().any(|tool| tool.spec.name == request.name) {
            let name: String = request.name.chars().take(80).collect();
            let message = format!("there is no tool `{name}` for this key: see `tools/list`");
            return Err(ErrorData::invalid_params(message, None));
        }
        let input = request.arguments.unwrap_or_default();
        let way_back = CallContext {
            token: context.meta.get_progress_token(),
            peer: context.peer,
            cancelled: context.ct,
        };
        let answer = self.0.call(who, &request.name, input, way_back).await;
        Ok(answer.write().into())
    }
}

fn rmcp_tool(OfferedTool { spec, is_read_only: reads }: OfferedTool) -> rmcp::model::Tool {
    let schema = match spec.input {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    let name: Cow<'static, str> = spec.name.into();
    let hints = ToolAnnotations::new().read_only(reads);
    rmcp::model::Tool::new(name, spec.description, Arc::new(schema)).with_annotations(hints)
}
