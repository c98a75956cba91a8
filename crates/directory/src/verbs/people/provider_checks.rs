//! Whether a person still is one of their identity provider's people.

use std::time::Duration;

use holdfast_types::{PersonId, TenantId};
use secrecy::ExposeSecret as _;

use super::People;
use crate::{Actor, Error, ProviderAnswer, ProviderSignIn, Purpose, SecretUse, store};

/// Time after which a provider that did not answer is asked again.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// A question to an identity provider that one process may ask now.
#[derive(Debug)]
pub struct ProviderCheck {
    tenant: TenantId,
    person: PersonId,
    /// Time between two questions.
    interval: Duration,
    pub sign_in: ProviderSignIn,
    /// The refresh token as it is stored.
    sealed: Vec<u8>,
}

impl People<'_> {
    /// Begins to ask the provider of a person about them; `None` if it was asked within the interval, or
    /// cannot be asked.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] if the stored token cannot be opened.
    pub async fn begin_provider_check(
        self,
        tenant: TenantId,
        person: PersonId,
        interval: Duration,
    ) -> Result<Option<ProviderCheck>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let claimed =
            store::people::provider_sign_ins::claim(&mut tx, person, interval.as_secs_f64())
                .await?;
        let Some(claimed) = claimed else { return Ok(None) };
        let data_key = self.0.data_key(&mut tx).await?;
        tx.commit().await?;
        let purpose = Purpose::RefreshToken(person.as_uuid());
        let usage = SecretUse::SignIn(person);
        let sign_in = ProviderSignIn {
            issuer: claimed.issuer,
            client_id: claimed.client_id,
            refresh_token: data_key.open_text(purpose, &claimed.refresh_token, usage).await?,
        };
        let sealed = claimed.refresh_token;
        Ok(Some(ProviderCheck { tenant, person, interval, sign_in, sealed }))
    }

    /// Stores what the provider said. A person whom it refuses has no sessions any more.
    pub async fn end_provider_check(
        self,
        check: &ProviderCheck,
        answer: ProviderAnswer,
    ) -> Result<(), Error> {
        let ProviderCheck { tenant, person, interval, ref sealed, .. } = *check;
        let mut tx = self.0.begin_change(tenant).await?;
        match answer {
            ProviderAnswer::Accepted(None) => {}
            ProviderAnswer::Accepted(Some(token)) => {
                let data_key = self.0.data_key(&mut tx).await?;
                let purpose = Purpose::RefreshToken(person.as_uuid());
                let new = data_key.seal(purpose, token.expose_secret().as_bytes()).await?;
                store::people::provider_sign_ins::replace(&mut tx, person, (sealed, &new)).await?;
            }
            // Whoever signed in meanwhile has another token.
            ProviderAnswer::Refused => {
                if store::people::provider_sign_ins::delete(&mut tx, person, sealed).await? {
                    store::keys::console::delete_of_person(&mut tx, person).await?;
                    let actor = Actor::Person(person);
                    store::audit::record(&mut tx, actor, "console.end", "provider").await?;
                }
            }
            ProviderAnswer::Unavailable => {
                let seconds = interval.saturating_sub(RETRY_AFTER).as_secs_f64();
                store::people::provider_sign_ins::postpone(&mut tx, person, seconds).await?;
            }
        }
        tx.commit().await?;
        self.0.forget_callers(tenant);
        Ok(())
    }
}
