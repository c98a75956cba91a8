//! Client of an MCP server.
//!
//! ```text
//!  over_http ─┐                    ┌─ tools ─▶ list of tools, all pages
//!             ├─ initialize ─ Client ─ call ──▶ result
//!  over_pipes ┘                    └─ has_changed? the list must be loaded again
//! ```
//!
//! **What can go wrong.** A server may not answer: every operation has a timeout. A call that is
//! dropped or times out is cancelled on the server (`notifications/cancelled`), which it may
//! ignore. The outcome of such a call is unknown.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderName, HeaderValue};
use rmcp::{
    ClientHandler, RoleClient, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
        PaginatedRequestParams,
    },
    service::{NotificationContext, RunningService},
    transport::{
        IntoTransport, StreamableHttpClientTransport, async_rw::AsyncRwTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};

use crate::{Error, ToolList, ToolResult};

/// Maximum number of pages of the tool list that are loaded.
const MAX_TOOL_PAGES: usize = 32;

/// Maximum size of a server's message, in bytes.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Timeout of an orderly close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connection to a server; closed when dropped.
pub struct Client {
    running: RunningService<RoleClient, Listener>,
    changed: Arc<AtomicBool>,
}

impl Client {
    /// Connects over streamable HTTP. `client` must enforce which addresses may be reached, and
    /// should not follow redirects.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached within `patience`, or does not speak the protocol.
    pub async fn over_http(
        client: reqwest::Client,
        url: &str,
        headers: &[(String, SecretString)],
        patience: Duration,
    ) -> Result<Self, Error> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(url);
        config.custom_headers = header_map(headers)?;
        config.max_sse_event_size = MAX_MESSAGE_BYTES;
        let transport = StreamableHttpClientTransport::with_client(client, config);
        Self::start(transport, patience).await
    }

    /// Connects to a process over its standard output (`read`) and input (`write`).
    ///
    /// # Errors
    ///
    /// If it does not answer within `patience`, or does not speak the protocol.
    pub async fn over_pipes(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
        patience: Duration,
    ) -> Result<Self, Error> {
        let transport = AsyncRwTransport::<RoleClient, _, _>::new(read, write)
            .with_max_line_length(MAX_MESSAGE_BYTES);
        Self::start(transport, patience).await
    }

    async fn start<E, A>(
        transport: impl IntoTransport<RoleClient, E, A>,
        patience: Duration,
    ) -> Result<Self, Error>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let changed = Arc::new(AtomicBool::new(false));
        let listener = Listener { changed: Arc::clone(&changed) };
        let running = with_timeout(patience, Box::pin(listener.serve(transport))).await?;
        let running = running.map_err(|error| Error::of_start(&error))?;
        Ok(Self { running, changed })
    }

    /// Lists the server's tools, at most 256, and those that are left out.
    ///
    /// # Errors
    ///
    /// If the server does not answer within `patience`, or answers with an error.
    pub async fn tools(&self, patience: Duration) -> Result<ToolList, Error> {
        self.changed.store(false, Ordering::Release);
        with_timeout(patience, async {
            let (mut list, mut cursor) = (ToolList::default(), None);
            for _ in 0..MAX_TOOL_PAGES {
                let page = PaginatedRequestParams::default().with_cursor(cursor);
                let listed = self.running.list_tools(Some(page)).await;
                let listed = listed.map_err(|error| Error::of_call(&error))?;
                listed.tools.into_iter().for_each(|tool| list.add(tool));
                cursor = listed.next_cursor.filter(|cursor| !cursor.is_empty());
                if cursor.is_none() || list.is_full() {
                    break;
                }
            }
            list.has_more = cursor.is_some();
            Ok(list)
        })
        .await?
    }

    /// Calls a tool by the server's name for it. Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or answers with a protocol error. A tool's own failure is an
    /// [`ToolResult`].
    pub async fn call(
        &self,
        tool: &str,
        input: Map<String, Value>,
        patience: Duration,
    ) -> Result<ToolResult, Error> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        let called = with_timeout(patience, Box::pin(self.running.call_tool_once(params))).await?;
        match called.map_err(|error| Error::of_call(&error))? {
            CallToolResponse::Complete(result) => Ok(ToolResult::read(result)),
            // We declared neither capability at initialization.
            _ => Err(Error::Garbled("it wants more input, or a task to be followed".to_owned())),
        }
    }

    /// Whether the server announced a change of its tools since the last [`tools`](Self::tools).
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.running.is_closed() || self.running.is_transport_closed()
    }

    /// Closes the connection in order, within 2 s.
    pub async fn close(mut self) {
        // The result does not matter: the connection is dropped now.
        let _over = self.running.close_with_timeout(CLOSE_TIMEOUT).await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

async fn with_timeout<T>(patience: Duration, doing: impl Future<Output = T>) -> Result<T, Error> {
    timeout(patience, doing).await.map_err(|_| Error::Silent { waited: patience })
}

fn header_map(
    headers: &[(String, SecretString)],
) -> Result<HashMap<HeaderName, HeaderValue>, Error> {
    let header = |(name, value): &(String, SecretString)| {
        let wrong = || Error::Header(name.chars().take(80).collect());
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok((header, value))
    };
    headers.iter().map(header).collect()
}

/// Receives a server's notifications. Requests from the server are refused.
struct Listener {
    changed: Arc<AtomicBool>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("holdfast", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.store(true, Ordering::Release);
    }
}
