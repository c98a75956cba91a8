//! The service `Plans`, for operators.

use holdfast_directory::{NewPlan, Plan, PlanLimits};
use holdfast_proto::gateway::v1::{
    self as pb, DeletePlanRequest, DeletePlanResponse, GetPlanRequest, GetPlanResponse,
    ListPlansRequest, ListPlansResponse, PutPlanRequest, PutPlanResponse,
    plans_server::Plans as Service,
};
use tonic::{Request, Response, Status};

use super::super::{State, required, timestamp};
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.Plans`.
#[derive(Debug)]
pub struct Plans(pub State);

#[tonic::async_trait]
impl Service for Plans {
    async fn list_plans(
        &self,
        request: Request<ListPlansRequest>,
    ) -> Result<Response<ListPlansResponse>, Status> {
        holdfast_grpc::caller(request)?;

        let plans = self.0.directory.plans().list().await.map_err(Error::from)?;

        let plans = plans.into_iter().map(plan_of).collect();
        Ok(Response::new(ListPlansResponse { plans }))
    }

    async fn get_plan(
        &self,
        request: Request<GetPlanRequest>,
    ) -> Result<Response<GetPlanResponse>, Status> {
        let (_, request) = holdfast_grpc::caller(request)?;

        let plan = self.0.directory.plans().get(&request.name).await.map_err(Error::from)?;

        Ok(Response::new(GetPlanResponse { plan: Some(plan_of(plan)) }))
    }

    async fn put_plan(
        &self,
        request: Request<PutPlanRequest>,
    ) -> Result<Response<PutPlanResponse>, Status> {
        let (_, request) = holdfast_grpc::caller(request)?;
        let wanted = required("plan", request.plan)?;
        audit::set_target(&wanted.name);
        let limits = limits(wanted.limits.unwrap_or_default());
        let new = NewPlan {
            name: wanted.name,
            description: wanted.description,
            limits,
            platform_providers: wanted.platform_providers,
        };

        let plans = self.0.directory.plans();
        plans.put(&new).await.map_err(Error::from)?;
        // A tenant that is missed here gets its limits from the upkeep within a minute.
        for tenant in plans.apply().await.map_err(Error::from)? {
            self.0.sessions.usage().open_budget(tenant, None).await.map_err(Error::from)?;
        }
        let plan = plans.get(&new.name).await.map_err(Error::from)?;

        Ok(Response::new(PutPlanResponse { plan: Some(plan_of(plan)) }))
    }

    async fn delete_plan(
        &self,
        request: Request<DeletePlanRequest>,
    ) -> Result<Response<DeletePlanResponse>, Status> {
        let (_, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);

        self.0.directory.plans().delete(&request.name).await.map_err(Error::from)?;

        Ok(Response::new(DeletePlanResponse {}))
    }
}

fn plan_of(plan: Plan) -> pb::Plan {
    pb::Plan {
        name: plan.name,
        description: plan.description,
        limits: Some(limits_of(plan.limits)),
        updated_at: Some(timestamp(plan.updated_at)),
        tenants: plan.tenants,
        platform_providers: plan.platform_providers,
    }
}

pub(super) const fn limits_of(limits: PlanLimits) -> pb::PlanLimits {
    pb::PlanLimits {
        calls_per_minute: limits.calls_per_minute,
        concurrent_calls: limits.concurrent_calls,
        sessions: limits.sessions,
        parallel_runs: limits.parallel_runs,
        tokens_per_day: limits.tokens_per_day,
        micros_per_month: limits.micros_per_month,
        storage_bytes: limits.storage_bytes,
        commands_per_day: limits.commands_per_day,
    }
}

const fn limits(limits: pb::PlanLimits) -> PlanLimits {
    PlanLimits {
        calls_per_minute: limits.calls_per_minute,
        concurrent_calls: limits.concurrent_calls,
        sessions: limits.sessions,
        parallel_runs: limits.parallel_runs,
        tokens_per_day: limits.tokens_per_day,
        micros_per_month: limits.micros_per_month,
        storage_bytes: limits.storage_bytes,
        commands_per_day: limits.commands_per_day,
    }
}
