//! Context of one request: who asks, and the gRPC handlers that answer.

use std::sync::Arc;

use futures::future::BoxFuture;
use holdfast_grpc::Caller;
use holdfast_types::TenantId;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Response, Status};
use uuid::Uuid;

use super::{
    Service, connection::Connection, error::MethodError, hub::TenantHub, request::response,
};
use crate::permissions::rights::ConversationRight;
use crate::{
    audit, control,
    ingest::Destination,
    permissions::{self, operator_scopes::Grants},
};

/// One request to a method.
#[derive(Debug, Clone)]
pub struct Call {
    pub service: Arc<Service>,
    pub hub: Arc<TenantHub>,
    pub connection: Arc<Connection>,
    pub caller: Caller,
    /// Scopes of the connection that its credential still has.
    pub grants: Grants,
    /// Id in logs and in the audit log.
    pub request: Uuid,
    /// Id of the request's frame.
    pub frame: String,
    /// Cancelled when the response waits to be sent, or there is none.
    pub answered: CancellationToken,
}

impl Call {
    pub fn tenant(&self) -> TenantId {
        self.caller.tenant
    }

    pub fn state(&self) -> &control::State {
        &self.service.state
    }

    /// Calls a gRPC handler: with the permission, the audit and the errors of its method.
    pub fn rpc<'a, M, R, F>(
        &'a self,
        method: &'static str,
        message: M,
        call: impl FnOnce(tonic::Request<M>) -> F + Send + 'a,
    ) -> BoxFuture<'a, Result<R, MethodError>>
    where
        M: Send + 'a,
        R: Send + 'a,
        F: Future<Output = Result<Response<R>, Status>> + Send + 'a,
    {
        // Futures of handlers are large, and each method has several.
        Box::pin(async move {
            let handled = async {
                let mut request = tonic::Request::new(message);
                request.extensions_mut().insert(self.caller.clone());
                call(request).await.map(Response::into_inner)
            };
            self.audited(method, handled).await.map_err(MethodError::from)
        })
    }

    /// Does something that a gRPC method also does, with its permission and its audit.
    pub fn as_method<'a, R: Send + 'a>(
        &'a self,
        method: &'static str,
        work: impl Future<Output = Result<R, crate::Error>> + Send + 'a,
    ) -> BoxFuture<'a, Result<R, MethodError>> {
        Box::pin(async move {
            let work = async { work.await.map_err(Status::from) };
            self.audited(method, work).await.map_err(MethodError::from)
        })
    }

    async fn audited<R>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<R, Status>>,
    ) -> Result<R, Status> {
        let doorman = &self.service.doorman;
        let Some(rule) = permissions::of_method(method) else {
            return Err(Status::internal(format!("`{method}` has no rule")));
        };
        if let Err(error) = rule.permits(&self.caller) {
            let status = Status::from(error);
            let target = (rule, self.request);
            audit::record(doorman, &self.caller, target, status.code(), "").await;
            return Err(status);
        }
        let code = |done: &Result<R, Status>| done.as_ref().map_or_else(Status::code, |_| Code::Ok);
        audit::audited(doorman, &self.caller, (rule, self.request), work, code).await
    }

    /// Agent and session that a request names, either of which may be empty, if the caller has the
    /// right to the session.
    pub async fn place(
        &self,
        agent: &str,
        key: &str,
        right: ConversationRight,
    ) -> Result<Destination, MethodError> {
        let ingest = &self.service.ingest;
        Ok(ingest.destination_of_key(&self.caller, agent, key, right).await?)
    }

    /// Sends a first response, which another one follows under the same id.
    pub fn respond_early(&self, payload: Value) {
        let protocol = self.connection.protocol;
        self.connection.queue.push(response(protocol, &self.frame, Ok(payload)));
    }
}

/// Calls a handler of a gRPC service: `rpc!(call, "Service/Method", handler.method(message))`.
macro_rules! rpc {
    ($call:expr, $name:literal, $handler:expr, $method:ident, $message:expr) => {{
        let handler = $handler;
        $call
            .rpc($name, $message, move |request| async move { handler.$method(request).await })
            .await
    }};
}
pub(super) use rpc;
