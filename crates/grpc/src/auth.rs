//! Authentication of gRPC requests.
//!
//! A tower layer for a gRPC server, with tonic's own server or under axum. The caller sends a
//! bearer token (`authorization: Bearer …`); a service of the mesh sends a signed context instead.
//! Health and reflection need no authentication.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};

use holdfast_types::{Fault, Kind};
use http::{HeaderMap, Request, Response, header::AUTHORIZATION};
use tonic::Status;
use tower::{Layer, Service};

use crate::{CONTEXT_HEADER, Caller, Scope, Scopes, Signer, status};

const OPEN_SERVICES: [&str; 3] = [
    "/grpc.health.v1.Health/",
    "/grpc.reflection.v1.ServerReflection/",
    "/grpc.reflection.v1alpha.ServerReflection/",
];

/// Lookup of the caller that a bearer token belongs to.
pub trait Authenticate: Send + Sync + 'static {
    /// Returns the caller that `token` belongs to.
    ///
    /// # Errors
    ///
    /// [`AuthError::Refused`] if the token is not valid, [`AuthError::Unavailable`] if it cannot be
    /// checked now.
    fn authenticate(&self, token: &str) -> impl Future<Output = Result<Caller, AuthError>> + Send;
}

/// Reason why a token is refused.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// Invalid token. The message is shown to the caller, so it does not tell whether the key
    /// exists.
    #[error("the key is not valid: it may be mistyped, revoked or expired; make a new one")]
    Refused,
    /// The store of keys cannot be reached.
    #[error("the key cannot be checked now")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Fault for AuthError {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused => Kind::Unauthenticated,
            Self::Unavailable(_) => Kind::Unavailable,
        }
    }
}

/// Layer that puts the verified [`Caller`] into each request, or answers it with an error.
#[derive(Debug)]
pub struct AuthLayer<A> {
    authenticate: Arc<A>,
    mesh: Option<Signer>,
}

impl<A: Authenticate> AuthLayer<A> {
    /// Layer that accepts bearer tokens only.
    pub fn new(authenticate: A) -> Self {
        Self { authenticate: Arc::new(authenticate), mesh: None }
    }

    /// Also accepts services of the mesh, as callers with [`Scope::Service`] only.
    #[must_use]
    pub fn with_mesh(self, signer: Signer) -> Self {
        Self { mesh: Some(signer), ..self }
    }
}

impl<A> Clone for AuthLayer<A> {
    fn clone(&self) -> Self {
        Self { authenticate: Arc::clone(&self.authenticate), mesh: self.mesh.clone() }
    }
}

impl<A, S> Layer<S> for AuthLayer<A> {
    type Service = AuthService<A, S>;

    fn layer(&self, inner: S) -> Self::Service {
        AuthService { layer: self.clone(), inner }
    }
}

/// Service made by [`AuthLayer`]; its requests carry a verified caller.
#[derive(Debug)]
pub struct AuthService<A, S> {
    layer: AuthLayer<A>,
    inner: S,
}

impl<A, S: Clone> Clone for AuthService<A, S> {
    fn clone(&self) -> Self {
        Self { layer: self.layer.clone(), inner: self.inner.clone() }
    }
}

impl<A, S, B, R> Service<Request<B>> for AuthService<A, S>
where
    A: Authenticate,
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // `poll_ready` was called on this instance, so this instance must be called, not the clone.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            if !OPEN_SERVICES.iter().any(|open| request.uri().path().starts_with(open)) {
                match layer.caller(request.headers()).await {
                    Ok(caller) => request.extensions_mut().insert(caller),
                    Err(refusal) => return Ok(refusal.into_http()),
                };
            }
            inner.call(request).await
        })
    }
}

impl<A: Authenticate> AuthLayer<A> {
    async fn caller(&self, headers: &HeaderMap) -> Result<Caller, Status> {
        if let (Some(signer), Some(context)) = (&self.mesh, headers.get(CONTEXT_HEADER)) {
            return service(signer, context.to_str().unwrap_or_default());
        }
        let token = bearer(headers)?;
        self.authenticate.authenticate(token).await.map_err(|error| status(&error))
    }
}

fn service(signer: &Signer, context: &str) -> Result<Caller, Status> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (tenant, name) =
        signer.verify(context, now).map_err(|error| Status::unauthenticated(error.to_string()))?;
    Ok(Caller { tenant, key: None, scopes: Scopes::EMPTY.with(Scope::Service), name })
}

fn bearer(headers: &HeaderMap) -> Result<&str, Status> {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Err(Status::unauthenticated(
            "no key was sent: send `authorization: Bearer hf_…` with the call",
        ));
    };
    let token = header.to_str().ok().and_then(|header| {
        let (scheme, token) = header.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    match token {
        Some(token) if !token.is_empty() => Ok(token),
        _ => Err(Status::unauthenticated(
            "`authorization` is malformed: write `Bearer`, a space, and the key",
        )),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_types::TenantId;
    use tonic::Code;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    struct OneKey(TenantId);

    impl Authenticate for OneKey {
        async fn authenticate(&self, token: &str) -> Result<Caller, AuthError> {
            match token {
                "hf_good" => Ok(Caller {
                    tenant: self.0,
                    key: None,
                    scopes: Scopes::EMPTY.with(Scope::Chat),
                    name: "test".into(),
                }),
                "hf_slow" => Err(AuthError::Unavailable("the database is away".into())),
                _ => Err(AuthError::Refused),
            }
        }
    }

    const SECRET: &str = "0123456789abcdef";

    /// Caller that the service behind the layer sees, if any.
    async fn ask(
        tenant: TenantId,
        path: &str,
        header: (&str, &str),
    ) -> Result<Option<Caller>, Status> {
        let behind = service_fn(|request: Request<()>| async move {
            let mut answer = Response::new(tonic::body::Body::default());
            if let Some(caller) = request.extensions().get::<Caller>() {
                answer.extensions_mut().insert(caller.clone());
            }
            Ok::<_, std::convert::Infallible>(answer)
        });
        let layer = AuthLayer::new(OneKey(tenant)).with_mesh(Signer::new(&SECRET.into()).unwrap());
        let request = Request::builder().uri(path).header(header.0, header.1).body(()).unwrap();

        let answer = layer.layer(behind).oneshot(request).await.unwrap();

        match Status::from_header_map(answer.headers()) {
            Some(refusal) => Err(refusal),
            None => Ok(answer.extensions().get::<Caller>().cloned()),
        }
    }

    const CHAT: &str = "/holdfast.gateway.v1.ChatService/Send";

    #[tokio::test]
    async fn a_good_key_makes_its_tenant_the_caller() {
        let tenant = TenantId::generate();

        for header in ["Bearer hf_good", "bearer  hf_good"] {
            let caller = ask(tenant, CHAT, ("authorization", header)).await.unwrap().unwrap();

            assert_eq!(caller.tenant, tenant);
        }
    }

    #[tokio::test]
    async fn everyone_else_is_refused_and_told_what_to_do() {
        let tenant = TenantId::generate();
        for (header, told) in [
            (("x-other", "1"), "no key was sent"),
            (("authorization", "hf_good"), "malformed"),
            (("authorization", "Basic hf_good"), "malformed"),
            (("authorization", "Bearer "), "malformed"),
            (("authorization", "Bearer hf_bad"), "make a new one"),
            ((CONTEXT_HEADER, "v1.x"), "malformed"),
        ] {
            let refusal = ask(tenant, CHAT, header).await.unwrap_err();

            assert_eq!(refusal.code(), Code::Unauthenticated, "{header:?}");
            assert!(refusal.message().contains(told), "{header:?}: {}", refusal.message());
        }
        let away = ask(tenant, CHAT, ("authorization", "Bearer hf_slow")).await.unwrap_err();
        assert_eq!(away.code(), Code::Unavailable);
    }

    #[tokio::test]
    async fn health_and_reflection_are_open_and_have_no_caller() {
        for path in ["/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/X"] {
            let caller = ask(TenantId::generate(), path, ("x-other", "1")).await.unwrap();

            assert_eq!(caller, None);
        }
        let near = ask(TenantId::generate(), "/grpc.health.v1.Healthy/X", ("x-other", "1")).await;
        assert!(near.is_err());
    }

    #[tokio::test]
    async fn a_service_is_believed_by_its_signed_context() {
        let tenant = TenantId::generate();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let context = Signer::new(&SECRET.into()).unwrap().sign(tenant, "scheduler", now);

        let caller =
            ask(TenantId::generate(), CHAT, (CONTEXT_HEADER, &context)).await.unwrap().unwrap();

        assert_eq!((caller.tenant, caller.name.as_str()), (tenant, "scheduler"));
        assert_eq!(caller.scopes, Scopes::EMPTY.with(Scope::Service));
    }
}
