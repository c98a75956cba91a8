//! Operations on invitations.

use holdfast_types::{InvitationId, TenantId, TenantRole};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;

use super::People;
use crate::{
    Actor, Error, Invitation, key::console::check_name, store, store::people::invitations as table,
    token, verbs::check_limit,
};

/// Maximum number of a tenant's invitations that were not accepted.
const MAX_INVITATIONS: i64 = 1_000;

/// Time for which an invitation can be accepted.
const INVITATION_LIFETIME: SignedDuration = SignedDuration::from_hours(72);

impl People<'_> {
    /// Invites a person: whoever uses the returned token first becomes this person, with this role.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed name, [`Error::TooMany`] at the limit of invitations.
    pub async fn invite(
        self,
        tenant: TenantId,
        actor: Actor,
        (name, role): (&str, TenantRole),
    ) -> Result<(Invitation, SecretString), Error> {
        check_name(name)?;
        let invitation = Invitation {
            id: InvitationId::generate(),
            name: name.to_owned(),
            role,
            invited_by: actor.to_string(),
            inviter: String::new(),
            created_at: Timestamp::now(),
            expires_at: Timestamp::now() + INVITATION_LIFETIME,
        };
        let id = invitation.id.as_uuid();
        let (secret, digest) = self.0.peppers.generate(id)?;
        let mut tx = self.0.begin_change(tenant).await?;
        check_limit("invitations", table::prune(&mut tx).await?, MAX_INVITATIONS)?;
        table::insert(&mut tx, &invitation, &digest).await?;
        let subject = format!("{} {role}", invitation.id);
        store::audit::record(&mut tx, actor, "person.invite", subject).await?;
        tx.commit().await?;
        Ok((invitation, token::write_console_link(id, &secret)))
    }

    /// Returns the invitations that were not accepted, the newest first.
    pub async fn invitations(self, tenant: TenantId) -> Result<Vec<Invitation>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let invitations = table::all(&mut tx).await?;
        tx.commit().await?;
        Ok(invitations)
    }

    /// Revokes an invitation.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such invitation.
    pub async fn revoke_invitation(
        self,
        tenant: TenantId,
        actor: Actor,
        id: InvitationId,
    ) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let taken = table::take(&mut tx, id.as_uuid()).await?;
        taken.ok_or_else(|| Error::not_found("invitation", id))?;
        store::audit::record(&mut tx, actor, "person.uninvite", id).await?;
        tx.commit().await?;
        Ok(())
    }
}
