//! Operations on webhooks for events.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_types::TenantId;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use uuid::Uuid;

use crate::{
    Actor, Directory, Error, EventWebhook, NewEventWebhook, OpenEventWebhook, Purpose, SecretUse,
    store, store::tenant_events::webhooks, tenant::event::TenantEventKind, verbs::check_limit,
};

/// Maximum number of webhooks of a tenant.
const MAX_WEBHOOKS: i64 = 20;

/// Webhooks for events.
#[derive(Debug, Clone, Copy)]
pub struct EventWebhooks<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn event_webhooks(&self) -> EventWebhooks<'_> {
        EventWebhooks(self)
    }
}

impl EventWebhooks<'_> {
    /// Returns the tenant's webhooks by name.
    pub async fn list(self, tenant: TenantId) -> Result<Vec<EventWebhook>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let rows = webhooks::read(&mut tx, None).await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(EventWebhook::from).collect())
    }

    /// Returns a webhook by its name.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such webhook.
    pub async fn get(self, tenant: TenantId, name: &str) -> Result<EventWebhook, Error> {
        let found = self.list(tenant).await?.into_iter().find(|found| found.settings.name == name);
        found.ok_or_else(|| not_found(name))
    }

    /// Returns a webhook with its secrets; `None` if it is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if a secret cannot be opened.
    pub async fn open(self, tenant: TenantId, id: Uuid) -> Result<Option<OpenEventWebhook>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let Some(row) = webhooks::read(&mut tx, Some(id)).await?.pop() else {
            tx.finish_reading();
            return Ok(None);
        };
        let data_key = self.0.data_key(&mut tx).await?;
        tx.finish_reading();
        let mut secrets = Vec::new();
        for sealed in [Some(&row.secret), row.old_secret.as_ref()].into_iter().flatten() {
            let (purpose, usage) = (Purpose::EventWebhook(id), SecretUse::Webhook(id));
            secrets.push(data_key.open_text(purpose, sealed, usage).await?);
        }
        Ok(Some(OpenEventWebhook { webhook: row.into(), secrets }))
    }

    /// Creates a webhook. Returns it with its secret, which is not shown again.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a value is not allowed, [`Error::Taken`] if the name is used,
    /// [`Error::TooMany`] at the limit.
    pub async fn create(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewEventWebhook,
    ) -> Result<(EventWebhook, SecretString), Error> {
        new.check()?;
        let mut tx = self.0.begin_change(tenant).await?;
        let known = webhooks::read(&mut tx, None).await?;
        check_limit("webhooks", i64::try_from(known.len()).unwrap_or(i64::MAX), MAX_WEBHOOKS)?;
        let id = Uuid::now_v7();
        let secret = new_secret();
        let data_key = self.0.data_key(&mut tx).await?;
        let purpose = Purpose::EventWebhook(id);
        let sealed = data_key.seal(purpose, secret.expose_secret().as_bytes()).await?;
        let made = webhooks::put(&mut tx, id, &new, (&sealed, "active")).await;
        made.map_err(|error| refuse(&new, error))?;
        store::audit::record(&mut tx, actor, "event_webhook.create", &new.name).await?;
        tx.commit().await?;
        Ok((self.get(tenant, &new.name).await?, secret))
    }

    /// Replaces the settings of a webhook, and enables or disables it.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and [`Error::NotFound`] if the tenant has no such webhook.
    pub async fn update(
        self,
        tenant: TenantId,
        actor: Actor,
        name: &str,
        (new, is_active): (NewEventWebhook, bool),
    ) -> Result<EventWebhook, Error> {
        new.check()?;
        let old = self.get(tenant, name).await?;
        let mut tx = self.0.begin_change(tenant).await?;
        let state = if is_active { "active" } else { "disabled" };
        let put = webhooks::put(&mut tx, old.id, &new, (&[], state)).await;
        put.map_err(|error| refuse(&new, error))?;
        store::audit::record(&mut tx, actor, "event_webhook.update", &new.name).await?;
        tx.commit().await?;
        self.get(tenant, &new.name).await
    }

    /// Replaces the secret of a webhook, and returns the new one. The former one signs too for a
    /// day.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such webhook.
    pub async fn rotate(
        self,
        tenant: TenantId,
        actor: Actor,
        name: &str,
    ) -> Result<SecretString, Error> {
        let old = self.get(tenant, name).await?;
        let secret = new_secret();
        let mut tx = self.0.begin_change(tenant).await?;
        let data_key = self.0.data_key(&mut tx).await?;
        let purpose = Purpose::EventWebhook(old.id);
        let sealed = data_key.seal(purpose, secret.expose_secret().as_bytes()).await?;
        webhooks::rotate(&mut tx, old.id, &sealed).await?;
        store::audit::record(&mut tx, actor, "event_webhook.rotate", name).await?;
        tx.commit().await?;
        Ok(secret)
    }

    /// Disables a webhook that keeps failing, with an event.
    pub async fn disable(self, tenant: TenantId, id: Uuid, reason: &str) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let name = webhooks::read(&mut tx, Some(id)).await?.pop();
        if webhooks::disable(&mut tx, id, reason).await? {
            let name = name.map(|row| EventWebhook::from(row).settings.name);
            let detail = json!({ "webhook": name, "reason": reason });
            store::tenant_events::insert(&mut tx, TenantEventKind::WebhookDisabled, detail).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Deletes a webhook, and returns its id.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such webhook.
    pub async fn delete(self, tenant: TenantId, actor: Actor, name: &str) -> Result<Uuid, Error> {
        let old = self.get(tenant, name).await?;
        let mut tx = self.0.begin_change(tenant).await?;
        webhooks::delete(&mut tx, old.id).await?;
        store::audit::record(&mut tx, actor, "event_webhook.delete", name).await?;
        tx.commit().await?;
        Ok(old.id)
    }
}

/// A secret as Standard Webhooks writes it.
fn new_secret() -> SecretString {
    let bytes: [u8; 32] = rand::random();
    format!("whsec_{}", STANDARD.encode(bytes)).into()
}

fn not_found(name: &str) -> Error {
    Error::not_found("webhook", name)
}

fn refuse(new: &NewEventWebhook, error: sqlx::Error) -> Error {
    if holdfast_pg::on_constraint("event_webhooks_name", &error) {
        return Error::taken("a webhook", &new.name);
    }
    error.into()
}
