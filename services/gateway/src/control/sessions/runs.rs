//! The service `Runs`: the steps of a turn, its prompts, and what goes on now.

mod activity;
mod prompt;
mod trace;

use futures::stream::BoxStream;
use holdfast_proto::gateway::v1::{
    GetRunTraceRequest, GetRunTraceResponse, ListActivityRequest, ListActivityResponse,
    RenderPromptRequest, RenderPromptResponse, WatchActivityRequest, WatchActivityResponse,
    runs_server::Runs as Service,
};
use tonic::{Request, Response, Status};

use super::State;

/// Implements `holdfast.gateway.v1.Runs`.
#[derive(Debug)]
pub struct Runs(pub State);

#[tonic::async_trait]
impl Service for Runs {
    type WatchActivityStream = BoxStream<'static, Result<WatchActivityResponse, Status>>;

    async fn get_run_trace(
        &self,
        request: Request<GetRunTraceRequest>,
    ) -> Result<Response<GetRunTraceResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        Ok(Response::new(trace::read(&self.0, &caller, request).await?))
    }

    async fn render_prompt(
        &self,
        request: Request<RenderPromptRequest>,
    ) -> Result<Response<RenderPromptResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        Ok(Response::new(prompt::render(&self.0, caller.tenant, request).await?))
    }

    async fn list_activity(
        &self,
        request: Request<ListActivityRequest>,
    ) -> Result<Response<ListActivityResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        Ok(Response::new(activity::list(&self.0, caller.tenant, request).await?))
    }

    async fn watch_activity(
        &self,
        request: Request<WatchActivityRequest>,
    ) -> Result<Response<Self::WatchActivityStream>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        Ok(Response::new(activity::watch(&self.0, caller.tenant, request).await?))
    }
}
