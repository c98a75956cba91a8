//! Operations on channel accounts.

use holdfast_pg::TenantTx;
use holdfast_types::{AccountId, TenantId};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use super::check_limit;
use crate::{
    Account, AccountStatus, Actor, DataKey, Directory, Error, ListedAccount, NewAccount,
    NewWidgetMessage, OpenAccount, Purpose, ReportedStatus, SecretUse, WidgetMessage, channel,
    store,
};

const MAX_ACCOUNTS: i64 = 200;

/// Channel accounts.
#[derive(Debug, Clone, Copy)]
pub struct Accounts<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn accounts(&self) -> Accounts<'_> {
        Accounts(self)
    }
}

impl Accounts<'_> {
    /// Returns the tenant's accounts, of one channel or of all.
    pub async fn list(
        self,
        tenant: TenantId,
        channel: Option<&str>,
    ) -> Result<Vec<Account>, Error> {
        if channel.is_some_and(|channel| channel::kind(channel).is_none()) {
            return Ok(Vec::new());
        }
        let mut tx = self.0.pools.tenant(tenant).await?;
        let accounts = store::accounts::all(&mut tx, channel).await?;
        tx.commit().await?;
        Ok(accounts)
    }

    /// Returns an account with its secrets, for the bridge that serves it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such account, [`Error::Unsealable`] if its secrets
    /// cannot be opened.
    pub async fn get(self, tenant: TenantId, id: AccountId) -> Result<OpenAccount, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let missing = || Error::not_found("channel account", id);
        let account = store::accounts::get(&mut tx, id).await?.ok_or_else(missing)?;
        let sealed = store::accounts::secrets(&mut tx, id).await?.ok_or_else(missing)?;
        let data_key = self.0.data_key(&mut tx).await?;
        tx.commit().await?;
        let secrets = open(&data_key, id, &sealed).await?;
        Ok(OpenAccount { account, secrets })
    }

    /// Creates an account.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the account cannot be served, [`Error::Taken`] if the name is used,
    /// [`Error::TooMany`] at the limit.
    pub async fn create(
        self,
        tenant: TenantId,
        actor: Actor,
        new: NewAccount,
    ) -> Result<Account, Error> {
        let new = new.check()?;
        let Some(secrets) = &new.secrets else {
            return Err(Error::Invalid("a new account needs its `secrets`".to_owned()));
        };
        new.check_usable(secrets)?;
        let id = AccountId::generate();
        let mut tx = self.0.begin_change(tenant).await?;
        check_limit("channel accounts", store::accounts::count(&mut tx).await?, MAX_ACCOUNTS)?;
        let sealed = self.seal_secrets(&mut tx, id, secrets).await?;
        let made = store::accounts::insert(&mut tx, id, &new, &sealed).await;
        let account = made.map_err(|error| refuse(&new, error))?;
        store::audit::record(&mut tx, actor, "account.create", id).await?;
        tx.commit().await?;
        Ok(account)
    }

    /// Replaces the values of an account. The channel never changes.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such account, [`Error::Invalid`] if it cannot be
    /// served, [`Error::Taken`] if the name is used.
    pub async fn update(
        self,
        tenant: TenantId,
        actor: Actor,
        id: AccountId,
        mut new: NewAccount,
    ) -> Result<Account, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let old = store::accounts::get(&mut tx, id).await?;
        let old = old.ok_or_else(|| Error::not_found("channel account", id))?;
        if new.channel.is_empty() {
            new.channel.clone_from(&old.channel);
        }
        // A caller that writes back what it was shown changes no secret.
        if new.secrets.is_none() && new.settings == channel::concealed(&old.settings) {
            new.settings.clone_from(&old.settings);
        }
        let new = new.check()?;
        if old.channel != new.channel {
            return Err(Error::Invalid(format!(
                "this account is on {}, and an account's channel never changes: make another",
                old.channel
            )));
        }
        let sealed = match &new.secrets {
            Some(secrets) => {
                new.check_usable(secrets)?;
                Some(self.seal_secrets(&mut tx, id, secrets).await?)
            }
            // With unchanged settings a rename, enabling or disabling must succeed, even if
            // stricter checks were added since the settings were stored.
            None if new.settings == old.settings => None,
            None => {
                let sealed = store::accounts::secrets(&mut tx, id).await?;
                let sealed = sealed.ok_or_else(|| Error::not_found("channel account", id))?;
                let data_key = self.0.data_key(&mut tx).await?;
                new.check_usable(&open(&data_key, id, &sealed).await?)?;
                None
            }
        };
        let changed = store::accounts::update(&mut tx, id, &new, sealed.as_deref()).await;
        let account = changed.map_err(|error| refuse(&new, error))?;
        store::audit::record(&mut tx, actor, "account.update", id).await?;
        tx.commit().await?;
        Ok(account)
    }

    /// Deletes an account and its secrets.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such account.
    pub async fn delete(self, tenant: TenantId, actor: Actor, id: AccountId) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::accounts::delete(&mut tx, id).await? {
            return Err(Error::not_found("channel account", id));
        }
        store::audit::record(&mut tx, actor, "account.delete", id).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns what bridges last reported about the tenant's accounts.
    pub async fn statuses(self, tenant: TenantId) -> Result<Vec<ReportedStatus>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let statuses = store::accounts::statuses(&mut tx).await?;
        tx.commit().await?;
        Ok(statuses)
    }

    /// Returns where an account goes on reading at its platform, if that was stored.
    pub async fn position(
        self,
        tenant: TenantId,
        id: AccountId,
        name: &str,
    ) -> Result<Option<String>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let position = store::accounts::positions::get(&mut tx, id, name).await?;
        tx.commit().await?;
        Ok(position)
    }

    /// Stores where an account goes on reading; does nothing if the account was deleted.
    pub async fn set_position(
        self,
        tenant: TenantId,
        id: AccountId,
        name: &str,
        position: &str,
    ) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        store::accounts::positions::put(&mut tx, id, name, position).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Stores a message of a web widget once for its key, and returns its position.
    pub async fn add_widget_message(
        self,
        tenant: TenantId,
        id: AccountId,
        new: NewWidgetMessage<'_>,
    ) -> Result<i64, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let seq = store::accounts::widget_messages::add(&mut tx, id, new).await?;
        tx.commit().await?;
        Ok(seq)
    }

    /// Returns the newest messages of a widget's visitor after a position, the oldest first.
    pub async fn widget_messages(
        self,
        tenant: TenantId,
        id: AccountId,
        visitor: &str,
        after: i64,
    ) -> Result<Vec<WidgetMessage>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let messages = store::accounts::widget_messages::after(&mut tx, id, visitor, after).await?;
        tx.commit().await?;
        Ok(messages)
    }

    /// Records what a bridge knows about an account; does nothing if the account was deleted.
    pub async fn record_status(
        self,
        tenant: TenantId,
        id: AccountId,
        status: &AccountStatus,
    ) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        store::accounts::put_status(&mut tx, id, status).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns the accounts that bridges must serve on these channels: enabled accounts of all
    /// active tenants.
    pub async fn all(self, channels: &[&str]) -> Result<Vec<ListedAccount>, Error> {
        let mut tx = self.0.pools.system().await?;
        let accounts = store::accounts::to_serve(&mut tx, channels).await?;
        tx.commit().await?;
        Ok(accounts)
    }

    /// Returns the tenant of an account that a webhook call names; `None` if there is no such
    /// account, or if it must not be served.
    pub async fn tenant_of(self, id: AccountId) -> Result<Option<TenantId>, Error> {
        let mut tx = self.0.pools.system().await?;
        let tenant = store::accounts::tenant_of(&mut tx, id).await?;
        tx.commit().await?;
        Ok(tenant)
    }

    async fn seal_secrets(
        self,
        tx: &mut TenantTx,
        id: AccountId,
        secrets: &Value,
    ) -> Result<Vec<u8>, Error> {
        let data_key = self.0.data_key(tx).await?;
        data_key.seal(Purpose::AccountSecrets(id), secrets.to_string().as_bytes()).await
    }
}

async fn open(data_key: &DataKey<'_>, id: AccountId, sealed: &[u8]) -> Result<Value, Error> {
    let purpose = Purpose::AccountSecrets(id);
    let secrets = data_key.open(purpose, sealed, SecretUse::Account(id)).await?;
    serde_json::from_slice(secrets.expose_secret())
        .map_err(|_| Error::Unsealable("a channel account's secrets"))
}

fn refuse(new: &NewAccount, error: sqlx::Error) -> Error {
    if holdfast_pg::on_constraint("accounts_name_key", &error) {
        Error::taken("an account", &new.name)
    } else {
        error.into()
    }
}
