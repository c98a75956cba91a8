//! Using a server.
//!
//! ```text
//!  over_http ─┐                    ┌─ tools ─▶ what it offers, all pages
//!             ├─ initialize ─ Client ─ call ──▶ what came of it
//!  over_pipes ┘                    └─ has_changed? its list is to be asked for again
//! ```
//!
//! **What can go wrong.** A server may be silent: everything here is given a time. A call that is
//! dropped, or whose time is up, is cancelled there (`notifications/cancelled`), which a server may
//! ignore. Whether it did what it was asked is not known then.

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

use crate::{Answer, Error, Tool, tool::MOST_TOOLS};

/// The most pages of a list of tools that are asked for.
const MOST_PAGES: usize = 32;

/// The longest message of a server, in bytes.
const LONGEST_MESSAGE: usize = 16 << 20;

/// How long a connection may take to end in order.
const FAREWELL: Duration = Duration::from_secs(2);

/// A connection to a server. Dropping it ends it.
pub struct Client {
    running: RunningService<RoleClient, Listener>,
    changed: Arc<AtomicBool>,
}

impl Client {
    /// Connects over streamable HTTP. The client decides what may be reached, and follows no
    /// redirects, if its owner is wise.
    ///
    /// # Errors
    ///
    /// If nobody answers there in time, or not with the protocol.
    pub async fn over_http(
        client: reqwest::Client,
        url: &str,
        headers: &[(String, SecretString)],
        patience: Duration,
    ) -> Result<Self, Error> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(url);
        config.custom_headers = sendable(headers)?;
        config.max_sse_event_size = LONGEST_MESSAGE;
        let transport = StreamableHttpClientTransport::with_client(client, config);
        Self::start(transport, patience).await
    }

    /// Connects to a process by its standard output and input.
    ///
    /// # Errors
    ///
    /// If it does not answer in time, or not with the protocol.
    pub async fn over_pipes(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
        patience: Duration,
    ) -> Result<Self, Error> {
        let transport = AsyncRwTransport::<RoleClient, _, _>::new(read, write)
            .with_max_line_length(LONGEST_MESSAGE);
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
        let running = within(patience, Box::pin(listener.serve(transport))).await?;
        let running = running.map_err(|error| Error::of_start(&error))?;
        Ok(Self { running, changed })
    }

    /// What the server offers, in its order. What no model could be told of is left out.
    ///
    /// # Errors
    ///
    /// If it does not answer in time, or with an error.
    pub async fn tools(&self, patience: Duration) -> Result<Vec<Tool>, Error> {
        self.changed.store(false, Ordering::Release);
        within(patience, async {
            let (mut tools, mut cursor) = (Vec::new(), None);
            for _ in 0..MOST_PAGES {
                let page = PaginatedRequestParams::default().with_cursor(cursor);
                let listed = self.running.list_tools(Some(page)).await;
                let listed = listed.map_err(|error| Error::of_call(&error))?;
                tools.extend(listed.tools.into_iter().filter_map(Tool::read));
                cursor = listed.next_cursor.filter(|cursor| !cursor.is_empty());
                if cursor.is_none() || tools.len() >= MOST_TOOLS {
                    break;
                }
            }
            tools.truncate(MOST_TOOLS);
            Ok(tools)
        })
        .await?
    }

    /// Calls a tool by the server's own name for it. Dropping the future cancels the call.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or with an error. A tool that failed is an [`Answer`].
    pub async fn call(
        &self,
        tool: &str,
        input: Map<String, Value>,
        patience: Duration,
    ) -> Result<Answer, Error> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        let called = within(patience, Box::pin(self.running.call_tool_once(params))).await?;
        match called.map_err(|error| Error::of_call(&error))? {
            CallToolResponse::Complete(result) => Ok(Answer::read(result)),
            // It was told that we can do neither.
            _ => Err(Error::Garbled("it wants more input, or a task to be followed".to_owned())),
        }
    }

    /// Whether the server said that what it offers is not what it was.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// Whether the connection is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.running.is_closed() || self.running.is_transport_closed()
    }

    /// Ends the connection in order, as far as that takes no time.
    pub async fn close(mut self) {
        // Whatever comes of it, it is dropped now.
        let _over = self.running.close_with_timeout(FAREWELL).await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

async fn within<T>(patience: Duration, doing: impl Future<Output = T>) -> Result<T, Error> {
    timeout(patience, doing).await.map_err(|_| Error::Silent { waited: patience })
}

fn sendable(headers: &[(String, SecretString)]) -> Result<HashMap<HeaderName, HeaderValue>, Error> {
    let header = |(name, value): &(String, SecretString)| {
        let wrong = || Error::Header(name.chars().take(80).collect());
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok((header, value))
    };
    headers.iter().map(header).collect()
}

/// What a server may tell of its own accord. What it may ask is refused.
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
