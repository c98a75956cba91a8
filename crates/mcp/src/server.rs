//! Offering tools to others.
//!
//! Each request stands alone: no session is kept between two, so that any process may answer any
//! of them. Who calls is put into the request's extensions by whoever let it in, as a
//! [`Serve::Who`]; a request without one is refused.

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

use crate::Answer;

/// Who offers tools, and does what they are for.
pub trait Serve: Send + Sync + 'static {
    /// Whoever calls, as the door knows them.
    type Who: Clone + Send + Sync + 'static;

    /// What a client is told first.
    fn about(&self) -> About;

    /// What this caller may use.
    fn tools(&self, who: &Self::Who) -> Vec<Offered>;

    /// Does it. What does not work is an [`Answer`] that says so.
    fn call(
        &self,
        who: Self::Who,
        tool: &str,
        input: Map<String, Value>,
        context: Context,
    ) -> impl Future<Output = Answer> + Send;
}

/// What a client is told first.
#[derive(Debug, Clone)]
pub struct About {
    /// The server's name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// How to use it, for the client's model.
    pub instructions: &'static str,
}

/// A tool that is offered.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Its name, what it does and what it takes.
    pub spec: ToolSpec,
    /// It changes nothing.
    pub reads: bool,
}

/// The call's way back to its client.
pub struct Context {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    /// Cancelled when the client does not want the answer any more.
    pub cancelled: CancellationToken,
}

impl Context {
    /// Whether the client wants to be told how it goes.
    #[must_use]
    pub const fn wants_progress(&self) -> bool {
        self.token.is_some()
    }

    /// Tells the client how it goes, if it wants to know; `progress` only grows.
    pub async fn progress(&self, progress: u32, message: &str) {
        if let Some(token) = &self.token {
            let told = ProgressNotificationParam::new(token.clone(), progress.into());
            // Whoever is gone need not know.
            let _gone = self.peer.notify_progress(told.with_message(message)).await;
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("wants_progress", &self.wants_progress()).finish()
    }
}

/// How the door is kept.
#[derive(Debug, Clone, Default)]
pub struct Door {
    /// The origins of web pages that may call, as in `https://app.example.com:443`. A request
    /// that comes from another page is refused; most clients are no pages and send none.
    pub origins: Vec<String>,
    /// The most bytes of a request.
    pub body_limit: usize,
    /// Ends all that is being answered.
    pub stop: CancellationToken,
}

/// What answers requests: a `tower` service.
pub type Service<S> = StreamableHttpService<Handler<S>, NeverSessionManager>;

/// Makes what answers requests.
pub fn service<S: Serve>(serve: Arc<S>, door: Door) -> Service<S> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // Who calls shows a key, which no page that was led here by a false name has.
        .disable_allowed_hosts()
        .with_allowed_origins(door.origins)
        .enforce_origin_validation()
        .with_max_request_body_bytes(door.body_limit)
        .with_cancellation_token(door.stop);
    let make = move || Ok(Handler(Arc::clone(&serve)));
    StreamableHttpService::new(make, Arc::new(NeverSessionManager::default()), config)
}

/// One request's.
pub struct Handler<S>(Arc<S>);

impl<S> fmt::Debug for Handler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl<S: Serve> Handler<S> {
    fn who(context: &RequestContext<RoleServer>) -> Result<S::Who, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let who = parts.and_then(|parts| parts.extensions.get::<S::Who>());
        who.cloned().ok_or_else(|| ErrorData::internal_error("nobody was let in", None))
    }
}

impl<S: Serve> ServerHandler for Handler<S> {
    fn get_info(&self) -> ServerConfig {
        let About { name, version, instructions } = self.0.about();
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
        let tools = self.0.tools(&who).into_iter().map(tool_of).collect();
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
        let way_back = Context {
            token: context.meta.get_progress_token(),
            peer: context.peer,
            cancelled: context.ct,
        };
        let answer = self.0.call(who, &request.name, input, way_back).await;
        Ok(answer.write().into())
    }
}

fn tool_of(Offered { spec, reads }: Offered) -> rmcp::model::Tool {
    let schema = match spec.input {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    let name: Cow<'static, str> = spec.name.into();
    let hints = ToolAnnotations::new().read_only(reads);
    rmcp::model::Tool::new(name, spec.description, Arc::new(schema)).with_annotations(hints)
}
