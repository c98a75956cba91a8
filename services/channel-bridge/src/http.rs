//! Requests of platforms, and responses to them.
//!
//! A platform gets a success only after the gateway has stored the message. A caller that cannot
//! authenticate learns nothing else: not even whether there is such an account.

use std::{net::IpAddr, time::Duration};

use axum::{
    Json,
    body::Body,
    http::{HeaderMap, Method, StatusCode, header, request},
    response::{IntoResponse as _, Response},
};
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use holdfast_doors::{ClientNetwork, client_address, counted_client};
use holdfast_kit::BudgetShare;
use holdfast_types::TenantId;
use serde_json::json;
use tokio::time::timeout;

use crate::meter;

/// Time in which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);

/// A request to an account. The body is read when the account asks for it.
#[derive(Debug)]
pub struct InboundRequest {
    pub method: Method,
    /// Path below `/<channel>/<account>/`; usually empty.
    pub path: String,
    /// Query without the question mark; empty if there is none.
    pub query: String,
    pub headers: HeaderMap,
    /// Address of the client; that of the proxy, if it is not trusted or names no client.
    pub client: IpAddr,
    /// Network under which the client is counted; `None` if the proxy names no client.
    pub counted: Option<ClientNetwork>,
    body: Body,
    share: BudgetShare<TenantId>,
}

impl InboundRequest {
    /// `path` is that below the account; the body is charged to `share`.
    pub(crate) fn new(
        head: request::Parts,
        path: String,
        body: Body,
        share: BudgetShare<TenantId>,
    ) -> Self {
        let query = head.uri.query().unwrap_or_default().to_owned();
        let client = client_address(&head.extensions, &head.headers);
        let counted = counted_client(&head.extensions, &head.headers);
        let request::Parts { method, headers, .. } = head;
        Self { method, path, query, headers, client, counted, body, share }
    }

    /// Returns a header as text; empty if it is missing or not text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Reads the body, which is charged to its tenant. A second call returns an empty one.
    ///
    /// # Errors
    ///
    /// The response, if the body is larger, too slow, or there is no memory for it.
    pub async fn read_body(&mut self, largest: usize) -> Result<Bytes, Response> {
        let body = std::mem::take(&mut self.body);
        read(body, largest, &self.share).await
    }
}

/// Response while other bodies use up the memory for bodies.
fn busy() -> Response {
    let response = error_response(StatusCode::TOO_MANY_REQUESTS, "not now: send it again");
    ([(header::RETRY_AFTER, "1")], response).into_response()
}

/// Response to a caller that is not the account's platform.
pub fn unauthorized(channel: &'static str) -> Response {
    meter::update(channel, "unauthorized");
    error_response(StatusCode::UNAUTHORIZED, "not authenticated")
}

pub fn error_response(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({"error": error}))).into_response()
}

async fn read(
    body: Body,
    largest: usize,
    share: &BudgetShare<TenantId>,
) -> Result<Bytes, Response> {
    let too_large = || {
        let error = format!("the body cannot be read, or has more than {largest} bytes");
        error_response(StatusCode::PAYLOAD_TOO_LARGE, &error)
    };
    let whole = async {
        let (mut frames, mut read) = (body.into_data_stream(), BytesMut::new());
        while let Some(frame) = frames.next().await {
            let frame = frame.map_err(|_| too_large())?;
            if read.len() + frame.len() > largest {
                return Err(too_large());
            }
            let bytes = u64::try_from(frame.len()).unwrap_or(u64::MAX);
            share.grow(bytes).map_err(|_spent| busy())?;
            read.extend_from_slice(&frame);
        }
        Ok(read.freeze())
    };
    match timeout(BODY_TIMEOUT, whole).await {
        Ok(read) => read,
        Err(_) => {
            Err(error_response(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))
        }
    }
}
