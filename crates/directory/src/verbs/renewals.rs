//! Operations for the renewal of OAuth tokens.

use secrecy::ExposeSecret as _;

use super::Credentials;
use crate::{
    Error, NewTokens, Purpose, RefreshGrant, RenewableTokens, RenewalClaim, RenewedTokens,
    SecretUse, TokenEndpoint, provider::credential::SealedCredential, store,
};

impl Credentials<'_> {
    /// Requests to exchange the refresh token of a version. One process at a time gets the claim,
    /// for [`RENEWAL_LEASE`](crate::RENEWAL_LEASE).
    ///
    /// # Errors
    ///
    /// [`Error::Unsealable`] or [`Error::Corrupt`] if the stored tokens cannot be opened.
    pub async fn begin_renewal(
        self,
        which: &RenewableTokens,
        version: i64,
    ) -> Result<RenewalClaim, Error> {
        let RenewableTokens { tenant, provider, name } = which;
        let mut tx = self.0.pools.tenant(*tenant).await?;
        let claimed = store::renewals::claim(&mut tx, (provider, name), version).await?;
        let found = match claimed {
            Some(row) => Some(row),
            None => store::renewals::get(&mut tx, (provider, name)).await?,
        };
        let Some(found) = found else { return Ok(RenewalClaim::Impossible) };
        let data_key = self.0.data_key(&mut tx).await?;
        let is_yours = found.is_claimed;
        tx.commit().await?;
        let purpose = Purpose::Credential { provider, name };
        let opened = data_key.open(purpose, &found.secret, SecretUse::TokenRenewal).await?;
        let opened = SealedCredential::parse(opened.expose_secret())?;
        let (access, refresh, client_secret) = opened.into_parts();
        if is_yours {
            let (Some(refresh), Some(token_url), Some(client_id)) =
                (refresh, found.token_url, found.client_id)
            else {
                return Ok(RenewalClaim::Impossible);
            };
            let at = TokenEndpoint { token_url, client_id, client_secret };
            return Ok(RenewalClaim::Claimed(RefreshGrant { refresh, at }));
        }
        if found.version != version {
            let expires = found.expires_at.map(|at| at.to_jiff());
            return Ok(RenewalClaim::Renewed(RenewedTokens {
                version: found.version,
                access,
                expires,
            }));
        }
        Ok(if found.is_claimable { RenewalClaim::Busy } else { RenewalClaim::Impossible })
    }

    /// Stores new tokens in place of the exchanged ones. Returns `None` if another process replaced
    /// them meanwhile; its tokens are kept.
    pub async fn store_renewed_tokens(
        self,
        which: &RenewableTokens,
        version: i64,
        grant: &RefreshGrant,
        new: &NewTokens,
    ) -> Result<Option<RenewedTokens>, Error> {
        let RenewableTokens { tenant, provider, name } = which;
        let mut tx = self.0.pools.tenant(*tenant).await?;
        let data_key = self.0.data_key(&mut tx).await?;
        let refresh = new.refresh.as_ref().unwrap_or(&grant.refresh);
        let secret = grant.at.client_secret.as_ref();
        let purpose = Purpose::Credential { provider, name };
        let renewed = SealedCredential::renewed(&new.access, refresh, secret);
        let sealed = data_key.seal(purpose, &renewed).await?;
        let kept = store::renewals::replace_tokens(
            &mut tx,
            (provider, name),
            version,
            (&sealed, new.lifetime),
        )
        .await?;
        tx.commit().await?;
        Ok(kept.map(|(version, expires)| RenewedTokens {
            version,
            access: new.access.clone(),
            expires: expires.map(|at| at.to_jiff()),
        }))
    }

    /// Records that an exchange failed. With a reason a person must sign in again; without one the
    /// exchange is tried again in a few seconds.
    pub async fn record_renewal_failure(
        self,
        which: &RenewableTokens,
        version: i64,
        trouble: Option<&str>,
    ) -> Result<(), Error> {
        let RenewableTokens { tenant, provider, name } = which;
        let mut tx = self.0.pools.tenant(*tenant).await?;
        store::renewals::record_failure(&mut tx, (provider, name), version, trouble).await?;
        tx.commit().await?;
        Ok(())
    }
}
