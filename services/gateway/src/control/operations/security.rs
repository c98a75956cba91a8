//! The service `Security`: what is open or weak in a tenant and in the installation.

mod checks;
mod installation;
mod tenant;

use holdfast_bus::ProcessReport;
use holdfast_kit::config::{self, reload::Current};
use holdfast_proto::gateway::v1::{
    CheckInstallationRequest, CheckInstallationResponse, CheckSecurityRequest,
    CheckSecurityResponse, SecurityFinding,
    security_server::{Security as Service, SecurityServer},
};
use tonic::{Request, Response, Status, service::Routes};

use super::{RUNNER_STATUS_TIMEOUT, State};
use crate::{Config, Error};

/// Implements `holdfast.gateway.v1.Security`.
#[derive(Debug)]
pub struct Security {
    pub state: State,
    pub settings: Current<Config>,
}

/// Adds the service to `routes`.
pub fn add_service(routes: Routes, security: Security, body_limit: usize) -> Routes {
    routes.add_service(SecurityServer::new(security).max_decoding_message_size(body_limit))
}

#[tonic::async_trait]
impl Service for Security {
    async fn check_security(
        &self,
        request: Request<CheckSecurityRequest>,
    ) -> Result<Response<CheckSecurityResponse>, Status> {
        let (caller, CheckSecurityRequest {}) = holdfast_grpc::caller(request)?;

        let findings = sorted(Box::pin(tenant::check(&self.state, &caller)).await?);

        Ok(Response::new(CheckSecurityResponse { findings }))
    }

    async fn check_installation(
        &self,
        request: Request<CheckInstallationRequest>,
    ) -> Result<Response<CheckInstallationResponse>, Status> {
        let (_, CheckInstallationRequest {}) = holdfast_grpc::caller(request)?;
        let tenants = self.state.directory.tenants().list().await.map_err(Error::from)?;
        let pools = self.state.sessions.runner_pools();
        // Without NATS no runner answers, and nothing is known of runners.
        let reports = ProcessReport::of_all(&self.state.bus, RUNNER_STATUS_TIMEOUT).await;

        let facts = installation::Facts {
            tenants: tenants.len(),
            runners_without_hosting: installation::without_hosting(&reports.unwrap_or_default()),
            secrets_in_environment: installation::SECRETS
                .into_iter()
                .filter(|secret| config::is_in_environment(secret))
                .collect(),
            pools_without_login: pools.without_login().await.map_err(Error::from)?,
        };
        let findings = sorted(installation::check(&self.settings.get(), &facts));

        Ok(Response::new(CheckInstallationResponse { findings }))
    }
}

/// Sorts findings: the most severe first, and otherwise as the checks found them.
fn sorted(mut findings: Vec<SecurityFinding>) -> Vec<SecurityFinding> {
    findings.sort_by_key(|finding| match finding.severity.as_str() {
        "critical" => 0,
        "warning" => 1,
        _ => 2,
    });
    findings
}
