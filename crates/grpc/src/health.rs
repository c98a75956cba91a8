//! Readiness over gRPC: `grpc.health.v1.Health`.

use holdfast_kit::Readiness;
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

/// Health service for the server as a whole (service name `""`), kept up to date by a task.
pub fn health_service(readiness: &Readiness) -> HealthServer<HealthService> {
    let reporter = HealthReporter::new();
    let service = HealthService::from_health_reporter(reporter.clone());
    tokio::spawn(follow(readiness.clone(), reporter));
    HealthServer::new(service)
}

async fn follow(readiness: Readiness, reporter: HealthReporter) {
    let mut ready = readiness.is_ready();
    loop {
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        reporter.set_service_status("", status).await;
        ready = readiness.changed_from(ready).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tonic::Request;
    use tonic_health::pb::{HealthCheckRequest, health_server::Health as _};

    use super::*;

    #[tokio::test]
    async fn a_draining_server_says_that_it_does_not_serve() {
        let readiness = Readiness::new();
        let reporter = HealthReporter::new();
        let service = HealthService::from_health_reporter(reporter.clone());
        tokio::spawn(follow(readiness.clone(), reporter));

        readiness.drain();

        let asked = async {
            loop {
                let request = Request::new(HealthCheckRequest { service: String::new() });
                let answer = service.check(request).await.unwrap().into_inner();
                if answer.status == ServingStatus::NotServing as i32 {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), asked).await.unwrap();
    }
}
