//! Tenants in the gateway, and the operator's key of each.

use holdfast_proto::gateway::v1::{
    self as pb, CreateTenantKeyRequest, CreateTenantRequest, DeleteTenantRequest, GetTenantRequest,
    ListKeysRequest, RevokeKeyRequest, UpdateTenantRequest,
};
use holdfast_types::Kind;
use kube::ResourceExt as _;

use super::{Observed, Reconciled, WriteOutcome};
use crate::{
    context::{Context, HasStore, SecretValue, Watched},
    error::{Credential, Failure},
    gateway::{ApiKey, answer, found, platform_answer},
    resources::{CONFIRM_DELETE, Managed, Tenant, TenantSpec},
    tenant_keys::{self, KEY_NAME, StoredKey},
};

impl HasStore for Tenant {
    fn watched(context: &Context) -> &Watched<Self> {
        &context.tenants
    }
}

impl Reconciled for Tenant {
    async fn observe(&self, context: &Context) -> Result<Option<Observed>, Failure> {
        let Some(tenant) = self.find(context).await? else { return Ok(None) };
        if tenant.state == "deleting" {
            return Err(Failure::new(
                "TenantDeleting",
                format!("the gateway still deletes a tenant `{}`", tenant.name),
                "wait until it is gone, or use another `name`; it is tried again",
            ));
        }
        Ok(Some(observed_of(tenant)))
    }

    async fn write(
        &self,
        context: &Context,
        observed: Option<&Observed>,
        _: &[SecretValue],
    ) -> Result<WriteOutcome, Failure> {
        let (gateway, mut tenants) = (&context.gateway, context.gateway.tenants());
        let id = match observed {
            Some(observed) => observed.id.clone(),
            None => {
                let pool = self.spec.pool.clone().unwrap_or_default();
                let request = CreateTenantRequest { name: self.gateway_name(), pool };
                let made = tenants.create_tenant(gateway.platform_request(request)).await;
                let made = platform_answer(made)?;
                // Nobody is given the tenant's first key, so it must not stay.
                if let Some(first) = ApiKey::new(&made.secret) {
                    self.revoke_keys(context, &first, |_| true).await?;
                }
                made.tenant.unwrap_or_default().id
            }
        };
        let request = UpdateTenantRequest {
            tenant: Some(self.spec.to_message(id)),
            no_plan: self.spec.plan.as_deref() == Some(""),
            no_pool: self.spec.pool.as_deref() == Some(""),
            ..UpdateTenantRequest::default()
        };
        let changed = tenants.update_tenant(gateway.platform_request(request)).await;
        let tenant = platform_answer(changed)?.tenant.unwrap_or_default();
        Ok(WriteOutcome { observed: observed_of(tenant), warnings: Vec::new() })
    }

    /// Makes sure that there is a valid key, and lets the tenant's other resources use it.
    async fn after(&self, context: &Context) -> Result<(), Failure> {
        // No key of a suspended tenant can be checked.
        if self.spec.suspended == Some(true) {
            context.forget_key(&self.name_any());
            return Ok(());
        }
        let stored = tenant_keys::read(&context.secrets(), &self.name_any()).await?;
        if let Some(stored) = &stored
            && let Some(key) = ApiKey::new(&stored.key)
            && let Some(keys) = self.keys_by(context, &key).await?
        {
            // Those of an attempt that stored this key and ended before it revoked the others.
            let is_other = |other: &pb::Key| other.name == KEY_NAME && other.id != stored.id;
            if !stored.id.is_empty() {
                revoke(context, &key, &keys, is_other).await?;
            }
            self.wake_others(context, |is_ready| !is_ready);
            return Ok(());
        }
        let request =
            CreateTenantKeyRequest { tenant: self.gateway_name(), name: KEY_NAME.to_owned() };
        let request = context.gateway.platform_request(request);
        let made = platform_answer(context.gateway.tenants().create_tenant_key(request).await)?;
        let id = made.key.unwrap_or_default().id;
        let stored = StoredKey { id: id.clone(), key: made.secret };
        tenant_keys::store(&context.secrets(), self, &stored).await?;
        context.forget_key(&self.name_any());
        // Keys of attempts that ended before their key was stored.
        if let Some(key) = ApiKey::new(&stored.key) {
            self.revoke_keys(context, &key, |other| other.name == KEY_NAME && other.id != id)
                .await?;
        }
        self.wake_others(context, |_| true);
        Ok(())
    }

    async fn release(&self, context: &Context) -> Result<(), Failure> {
        if let Some(stored) = tenant_keys::read(&context.secrets(), &self.name_any()).await?
            && let Some(key) = ApiKey::new(&stored.key)
            && self.find(context).await?.is_some_and(|tenant| tenant.state == "active")
        {
            self.revoke_keys(context, &key, |key| key.name == KEY_NAME).await?;
        }
        context.forget_key(&self.name_any());
        Ok(())
    }

    async fn remove(&self, context: &Context) -> Result<(), Failure> {
        let name = self.gateway_name();
        if self.annotations().get(CONFIRM_DELETE) != Some(&name) {
            return Err(Failure::new(
                "ConfirmationMissing",
                "deleting the tenant deletes all its conversations, files, memories and keys, \
                 and this is not confirmed",
                format!(
                    "annotate the resource with `{CONFIRM_DELETE}: {name}` to delete it, or set \
                     `deletionPolicy: Retain` to keep the tenant"
                ),
            ));
        }
        let request = context.gateway.platform_request(DeleteTenantRequest { name });
        let deleted = found(context.gateway.tenants().delete_tenant(request).await);
        if let Some(deleted) = deleted.transpose() {
            platform_answer(deleted)?;
        }
        context.forget_key(&self.name_any());
        Ok(())
    }
}

impl Tenant {
    async fn find(&self, context: &Context) -> Result<Option<pb::Tenant>, Failure> {
        let request = GetTenantRequest { tenant: self.gateway_name() };
        let request = context.gateway.platform_request(request);
        match found(context.gateway.tenants().get_tenant(request).await).transpose() {
            Some(outcome) => Ok(platform_answer(outcome)?.tenant),
            None => Ok(None),
        }
    }

    /// Lists the tenant's keys with one of them; `None` if the gateway does not accept it.
    async fn keys_by(
        &self,
        context: &Context,
        by: &ApiKey,
    ) -> Result<Option<Vec<pb::Key>>, Failure> {
        let listed = context.gateway.keys().list_keys(by.request(ListKeysRequest {})).await;
        match listed {
            Ok(listed) => Ok(Some(listed.into_inner().keys)),
            Err(status) => match holdfast_grpc::kind(&status) {
                Kind::Unauthenticated => Ok(None),
                _ => Err(Failure::of_call(&status, Credential::Tenant)),
            },
        }
    }

    /// Revokes keys of the tenant with one of them, which is the last to go.
    async fn revoke_keys(
        &self,
        context: &Context,
        by: &ApiKey,
        is_meant: impl Fn(&pb::Key) -> bool + Send,
    ) -> Result<(), Failure> {
        let listed = context.gateway.keys().list_keys(by.request(ListKeysRequest {})).await;
        revoke(context, by, &answer(listed)?.keys, is_meant).await
    }

    /// Reconciles the tenant's other resources at once, if `is_meant` by their readiness.
    fn wake_others(&self, context: &Context, is_meant: impl Fn(bool) -> bool) {
        let name = self.name_any();
        let is_meant = |tenant: Option<&str>, status: Option<&crate::resources::ResourceStatus>| {
            tenant == Some(&*name) && is_meant(status.is_some_and(|status| status.is_ready()))
        };
        context.agents.trigger(|agent| is_meant(agent.tenant(), agent.status.as_ref()));
        context.channels.trigger(|channel| is_meant(channel.tenant(), channel.status.as_ref()));
        context.providers.trigger(|one| is_meant(one.tenant(), one.status.as_ref()));
    }
}

fn observed_of(tenant: pb::Tenant) -> Observed {
    let id = tenant.id.clone();
    let state = serde_json::to_value(TenantSpec::from_message(tenant)).unwrap_or_default();
    Observed { id, state }
}

/// Revokes the valid ones of these keys that are meant.
async fn revoke(
    context: &Context,
    by: &ApiKey,
    keys: &[pb::Key],
    is_meant: impl Fn(&pb::Key) -> bool + Send,
) -> Result<(), Failure> {
    for key in keys.iter().filter(|key| key.revoked_at.is_none() && is_meant(key)) {
        let request = by.request(RevokeKeyRequest { id: key.id.clone() });
        answer(context.gateway.keys().revoke_key(request).await)?;
    }
    Ok(())
}
