//! The WebSocket gateway for the page. A browser cannot add headers to such a request: the session is
//! named in the query.

use std::sync::Arc;

use axum::{
    extract::{Query, Request, State},
    response::{IntoResponse as _, Response},
};
use http::header::ORIGIN;
use serde::Deserialize;
use uuid::Uuid;

use super::{Console, cookies};
use crate::{Error, api_error::ApiError, ws};

#[derive(Debug, Deserialize)]
pub struct NamedSession {
    session: Uuid,
}

/// Opens a connection with the cookie of the session.
pub async fn open(
    State(console): State<Console>,
    Query(named): Query<NamedSession>,
    request: Request,
) -> Response {
    let (uri, headers) = (request.uri(), request.headers());
    let checked = console.check_origin(uri, headers).and_then(|()| {
        // Every browser sends it, and other programs have the path `/ws`.
        if !headers.contains_key(ORIGIN) {
            return Err(Error::ForeignPage("a connection of the console needs `Origin`"));
        }
        cookies::find_session(headers, named.session).ok_or(Error::NotSignedIn)
    });
    match checked {
        Ok(token) => ws::open_for_session(Arc::clone(&console.0.sockets), request, token),
        Err(error) => ApiError::from(error).into_response(),
    }
}
