//! Operations on plans, and on the limits of tenants.

use std::time::Instant;

use holdfast_types::TenantId;
use serde_json::json;
use tracing::warn;
use uuid::Uuid;

use crate::{
    Directory, Error, LimitLevel, LimitName, NewPlan, Plan, PlanLimits, store,
    tenant::event::TenantEventKind,
};

/// Tenants per read whose limits are brought up to date.
const APPLY_BATCH: i64 = 100;

/// Plans of the installation.
#[derive(Debug, Clone, Copy)]
pub struct Plans<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn plans(&self) -> Plans<'_> {
        Plans(self)
    }
}

impl Plans<'_> {
    /// Returns all plans, by name.
    pub async fn list(self) -> Result<Vec<Plan>, Error> {
        let mut tx = self.0.pools.system().await?;
        let plans = store::plans::find(&mut tx, None).await?;
        tx.finish_reading();
        Ok(plans)
    }

    /// Returns one plan.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such plan.
    pub async fn get(self, name: &str) -> Result<Plan, Error> {
        let mut tx = self.0.pools.system().await?;
        let found = store::plans::find(&mut tx, Some(name)).await?;
        tx.finish_reading();
        found.into_iter().next().ok_or_else(|| Error::not_found("plan", name))
    }

    /// Creates or replaces a plan. [`apply`](Self::apply) puts its limits into effect.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed name or a limit out of range.
    pub async fn put(self, plan: &NewPlan) -> Result<(), Error> {
        plan.check()?;
        let mut tx = self.0.pools.system().await?;
        store::plans::put(&mut tx, plan).await?;
        Ok(tx.commit().await?)
    }

    /// Deletes a plan that no tenant has.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such plan, [`Error::Conflict`] if tenants have it.
    pub async fn delete(self, name: &str) -> Result<(), Error> {
        let mut tx = self.0.pools.system().await?;
        let is_deleted = store::plans::delete(&mut tx, name).await.map_err(|error| {
            if holdfast_pg::on_constraint("plans_in_use", &error) {
                Error::Conflict(format!(
                    "tenants have the plan `{name}`: give them another with `holdfast tenants \
                     set-plan` first"
                ))
            } else {
                error.into()
            }
        })?;
        tx.commit().await?;
        if is_deleted { Ok(()) } else { Err(Error::not_found("plan", name)) }
    }

    /// Puts the current limits of their plans into effect for all tenants that have older ones.
    /// Returns these tenants. A failure leaves the others to the next call.
    pub async fn apply(self) -> Result<Vec<TenantId>, Error> {
        let (mut applied, mut last) = (Vec::new(), TenantId::from(Uuid::nil()));
        loop {
            let mut tx = self.0.pools.system().await?;
            let batch = store::plans::outdated_tenants(&mut tx, last, APPLY_BATCH).await?;
            tx.finish_reading();
            let Some(&newest) = batch.last() else { return Ok(applied) };
            last = newest;
            for tenant in batch {
                let mut tx = match self.0.begin_change(tenant).await {
                    Ok(tx) => tx,
                    // The tenant was deleted meanwhile.
                    Err(Error::NotFound { .. }) => continue,
                    Err(error) => return Err(error),
                };
                store::plans::apply(&mut tx).await?;
                let changed = store::tenants::get(&mut tx).await?;
                let detail = changed.map(|now| json!({"plan": now.plan, "limits": now.limits}));
                let kind = TenantEventKind::LimitsChanged;
                store::tenant_events::insert(&mut tx, kind, detail.unwrap_or_default()).await?;
                tx.commit().await?;
                applied.push(tenant);
            }
        }
    }

    /// Returns the tenants that have limits, with these; or one tenant.
    pub async fn limits(
        self,
        tenant: Option<TenantId>,
    ) -> Result<Vec<(TenantId, PlanLimits)>, Error> {
        let mut tx = self.0.pools.system().await?;
        let limits = store::plans::limits(&mut tx, tenant).await?;
        tx.finish_reading();
        Ok(limits)
    }

    /// Writes an event about a limit that is nearly or fully used up, once in its period. Returns
    /// whether it did.
    ///
    /// A process asks the database once a minute at most for each limit and level.
    pub async fn notice(
        self,
        tenant: TenantId,
        name: LimitName,
        (used, limit): (u64, u64),
    ) -> Result<bool, Error> {
        let level = LimitLevel::of(used, limit);
        let kind = match level {
            LimitLevel::Ok => return Ok(false),
            LimitLevel::Warning => TenantEventKind::QuotaWarning,
            LimitLevel::Exceeded => TenantEventKind::QuotaExceeded,
        };
        let key = (tenant, name, level);
        if self.0.notices.get(&key).is_some() {
            return Ok(false);
        }
        // Before the database is asked: if it fails, refused calls do not ask it again and again.
        self.0.notices.put(key, (), Instant::now());
        let is_monthly = name == LimitName::MicrosPerMonth;
        let mut tx = self.0.pools.tenant(tenant).await?;
        let notice = (name.as_str(), level.as_str(), is_monthly);
        let is_new = store::plans::insert_notice(&mut tx, notice).await?;
        if is_new {
            let detail = json!({"limit": name.as_str(), "used": used, "allowed": limit});
            store::tenant_events::insert(&mut tx, kind, detail).await?;
        }
        tx.commit().await?;
        if is_new {
            let (limit_name, level) = (name.as_str(), level.as_str());
            warn!(tenant.id = %tenant, limit = limit_name, level, used, allowed = limit,
                "a tenant's limit is nearly or fully used up");
        }
        Ok(is_new)
    }
}
