//! The gRPC services as gRPC-web: the calls of the page.
//!
//! The credential is the cookie of the session that a call names. Other credentials are dropped, so that
//! a call of another page cannot bring one.

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use holdfast_grpc::CONTEXT_HEADER;
use http::{
    HeaderMap, Uri,
    header::{AUTHORIZATION, COOKIE},
};
use secrecy::SecretString;
use tonic::{Status, service::Routes};
use tonic_web::GrpcWebLayer;
use tower::ServiceBuilder;
use uuid::Uuid;

use super::{Console, SESSION_HEADER, cookies};
use crate::{
    Error,
    auth::SessionToken,
    grpc,
    permissions::{self, Permission},
};

/// Router of the services, for `/console/api`.
pub fn router(console: Console, services: Routes) -> Router {
    let doorman = console.0.doorman.clone();
    grpc::admitted(services, doorman)
        .layer(middleware::from_fn_with_state(console, authenticate))
        .layer(ServiceBuilder::new().layer(GrpcWebLayer::new()))
}

/// Middleware: replaces the cookie of a call's session by its token.
async fn authenticate(
    State(console): State<Console>,
    mut request: Request,
    next: Next,
) -> Response {
    // Services of the mesh and nodes have no session.
    let rule = permissions::of_grpc(request.uri().path());
    let is_open =
        rule.is_some_and(|rule| !matches!(rule.permission, Permission::Service | Permission::Node));
    if !is_open {
        return Status::unimplemented("there is no such method").into_http::<Body>();
    }
    let (uri, headers) = (request.uri().clone(), request.headers());
    match console.session_of(&uri, headers) {
        Ok(token) => {
            let headers = request.headers_mut();
            headers.remove(AUTHORIZATION);
            headers.remove(CONTEXT_HEADER);
            headers.remove(COOKIE);
            request.extensions_mut().insert(SessionToken(token));
            next.run(request).await
        }
        Err(error) => Status::from(error).into_http::<Body>().into_response(),
    }
}

impl Console {
    /// Token of the session that a request names.
    ///
    /// # Errors
    ///
    /// [`Error::ForeignPage`], or [`Error::NotSignedIn`] if the browser has no such session.
    pub(super) fn session_of(&self, uri: &Uri, headers: &HeaderMap) -> Result<SecretString, Error> {
        self.check_origin(uri, headers)?;
        let named = headers.get(SESSION_HEADER).and_then(|id| id.to_str().ok());
        let session = named.and_then(|id| Uuid::try_parse(id).ok()).ok_or(Error::NotSignedIn)?;
        cookies::find_session(headers, session).ok_or(Error::NotSignedIn)
    }
}
