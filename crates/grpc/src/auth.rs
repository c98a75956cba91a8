//! Authentication of calls between the services of the mesh.
//!
//! A tower layer for a gRPC server under axum. The caller sends a signed context. API keys are for
//! the gateway, which authenticates by itself.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll},
    time::{SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, Request, Response};
use tonic::Status;
use tower::{Layer, Service};

use crate::{CONTEXT_HEADER, CallTarget, Caller, InvalidContext, Principal, Scope, Scopes, Signer};

/// Layer that puts the verified [`Caller`], with [`Scope::Service`] only, into each request, or
/// answers it with an error.
#[derive(Debug, Clone)]
pub struct MeshAuthLayer {
    signer: Signer,
    audience: &'static str,
    callers: &'static [&'static str],
}

impl MeshAuthLayer {
    /// For the service `audience`, which only `callers` may call.
    #[must_use]
    pub const fn new(
        signer: Signer,
        audience: &'static str,
        callers: &'static [&'static str],
    ) -> Self {
        Self { signer, audience, callers }
    }

    fn caller(&self, headers: &HeaderMap, method: &str) -> Result<Caller, Status> {
        let context = headers.get(CONTEXT_HEADER).ok_or_else(|| {
            Status::unauthenticated("this service is for services of the mesh: call the gateway")
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let target = CallTarget { audience: self.audience, method };
        let (tenant, name) =
            self.signer.verify(context.to_str().unwrap_or_default(), target, now)?;
        if !self.callers.contains(&name.as_str()) {
            return Err(InvalidContext::WrongService.into());
        }
        let scopes = Scopes::EMPTY.with(Scope::Service);
        Ok(Caller {
            tenant,
            principal: Principal::Service,
            person: None,
            agent: None,
            via: None,
            scopes,
            name,
        })
    }
}

impl From<InvalidContext> for Status {
    fn from(error: InvalidContext) -> Self {
        crate::status(&error)
    }
}

impl<S> Layer<S> for MeshAuthLayer {
    type Service = MeshAuthService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        MeshAuthService { layer: self.clone(), inner }
    }
}

/// Service made by [`MeshAuthLayer`]; its requests carry a verified caller.
#[derive(Debug, Clone)]
pub struct MeshAuthService<S> {
    layer: MeshAuthLayer,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for MeshAuthService<S>
where
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
            match layer.caller(request.headers(), request.uri().path()) {
                Ok(caller) => request.extensions_mut().insert(caller),
                Err(refusal) => return Ok(refusal.into_http()),
            };
            inner.call(request).await
        })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_kit::config;
    use holdfast_types::TenantId;
    use tonic::Code;
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    const SEARCH: &str = "/holdfast.memory.v1.Memory/Search";

    fn signer() -> Signer {
        let secret = "0123456789abcdef".into();
        Signer::new(&config::Mesh { secret, ..config::Mesh::default() }).unwrap()
    }

    /// Caller that the service behind the layer sees, if any.
    async fn ask(header: (&str, &str)) -> Result<Option<Caller>, Status> {
        let behind = service_fn(|request: Request<()>| async move {
            let mut answer = Response::new(tonic::body::Body::default());
            if let Some(caller) = request.extensions().get::<Caller>() {
                answer.extensions_mut().insert(caller.clone());
            }
            Ok::<_, std::convert::Infallible>(answer)
        });
        let layer = MeshAuthLayer::new(signer(), "memory-service", &["gateway"]);
        let request = Request::builder().uri(SEARCH).header(header.0, header.1).body(()).unwrap();

        let answer = layer.layer(behind).oneshot(request).await.unwrap();

        match Status::from_header_map(answer.headers()) {
            Some(refusal) => Err(refusal),
            None => Ok(answer.extensions().get::<Caller>().cloned()),
        }
    }

    #[tokio::test]
    async fn whoever_is_no_service_is_refused() {
        for (header, told) in [
            (("x-other", "1"), "call the gateway"),
            (("authorization", "Bearer hf_good"), "call the gateway"),
            ((CONTEXT_HEADER, "v1.x"), "malformed"),
        ] {
            let refusal = ask(header).await.unwrap_err();

            assert_eq!(refusal.code(), Code::Unauthenticated, "{header:?}");
            assert!(refusal.message().contains(told), "{header:?}: {}", refusal.message());
        }
    }

    #[tokio::test]
    async fn a_service_is_believed_by_its_signed_context() {
        let tenant = TenantId::generate();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let target = CallTarget { audience: "memory-service", method: SEARCH };
        let sign = |service| signer().sign(tenant, service, target, now);

        let caller = ask((CONTEXT_HEADER, &sign("gateway"))).await.unwrap().unwrap();
        let refused = ask((CONTEXT_HEADER, &sign("scheduler"))).await.unwrap_err();

        assert_eq!((caller.tenant, caller.name.as_str()), (tenant, "gateway"));
        assert_eq!(caller.scopes, Scopes::EMPTY.with(Scope::Service));
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
}
