//! Two people who are one, and the identities by which a person is known.

use holdfast_types::{PersonId, TenantId, TenantRole};

use super::{MAX_IDENTITIES, People, check_limit};
use crate::{Actor, Error, Identity, Person, PersonIdentity, store};

/// Channel of the names that programs give to their users, among identities.
const PROGRAMS: &str = "api";

impl People<'_> {
    /// Returns by what a person is known.
    pub async fn identities(
        self,
        tenant: TenantId,
        person: PersonId,
    ) -> Result<Vec<PersonIdentity>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let identities = store::people::merging::identities(&mut tx, person).await?;
        tx.finish_reading();
        Ok(identities)
    }

    /// Makes the record of a person lead to another one, with its accounts, keys and devices. Can be
    /// repeated.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such person, [`Error::Invalid`] if it is the same one, the
    /// other one is merged or refused, or an owner would become somebody with fewer rights.
    pub async fn merge(
        self,
        tenant: TenantId,
        actor: Actor,
        (from, into): (PersonId, PersonId),
    ) -> Result<(Person, Person), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let find = async |tx: &mut _, id| {
            let found = store::people::one(tx, id).await?;
            found.ok_or_else(|| Error::not_found("person", id))
        };
        let merged = find(&mut tx, from).await?;
        let person = find(&mut tx, into).await?;
        let refusal = if from == into {
            Some("a person cannot be merged into themselves".to_owned())
        } else if let Some(other) = merged.merged_into.filter(|other| *other != into) {
            Some(format!("this person was merged into {other}: split them first"))
        } else if let Some(other) = person.merged_into {
            Some(format!("the other person was merged into {other}: name that one"))
        } else if person.disabled_at.is_some() {
            Some("the other person is refused: enable them first".to_owned())
        } else if merged.operates {
            Some("this person operates the installation: merge the other one into them".to_owned())
        } else if merged.role == TenantRole::Owner && person.role != TenantRole::Owner {
            Some(
                "this person is an owner, and the other one is none: merge the other one into them"
                    .to_owned(),
            )
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return Err(Error::Invalid(refusal));
        }
        store::people::merging::merge(&mut tx, from, into).await?;
        store::audit::record(&mut tx, actor, "person.merge", format!("{from} {into}")).await?;
        tx.commit().await?;
        self.forget(tenant, &merged).await?;
        Ok((merged, person))
    }

    /// Makes a person who was merged one of their own again.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if they were not merged into this one.
    pub async fn separate(
        self,
        tenant: TenantId,
        actor: Actor,
        (merged, from): (PersonId, PersonId),
    ) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !store::people::merging::separate(&mut tx, merged, from).await? {
            return Err(Error::not_found("merged person", merged));
        }
        store::audit::record(&mut tx, actor, "person.split", format!("{from} {merged}")).await?;
        let person = store::people::one(&mut tx, merged).await?;
        tx.commit().await?;
        match person {
            Some(person) => self.forget(tenant, &person).await,
            None => Ok(()),
        }
    }

    /// Makes a user of programs a person.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such person, [`Error::Conflict`] if the user is another one,
    /// [`Error::Invalid`] for a malformed name, [`Error::TooMany`] at the limit of identities.
    pub async fn link_program_user(
        self,
        tenant: TenantId,
        actor: Actor,
        (person, user): (PersonId, &str),
    ) -> Result<(), Error> {
        let identity = Identity {
            channel: PROGRAMS.to_owned(),
            peer: user.to_owned(),
            canonical: Identity::canonical_of_person(person),
        }
        .check()?;
        if identity.peer.contains(['/', '=']) || identity.peer != user {
            return Err(Error::Invalid(
                "write the user as programs do, without spaces around it, `/` and `=`".to_owned(),
            ));
        }
        let mut tx = self.0.begin_change(tenant).await?;
        let found = store::people::one(&mut tx, person).await?;
        let found = found.ok_or_else(|| Error::not_found("person", person))?;
        if let Some(other) = found.merged_into {
            let message = format!("this person was merged into {other}: name that one");
            return Err(Error::Invalid(message));
        }
        let known = store::identities::links::canonical(&mut tx, PROGRAMS, &identity.peer).await?;
        if known.is_some_and(|known| known != identity.canonical) {
            return Err(Error::Conflict(
                "this user is another person: split them first".to_owned(),
            ));
        }
        let have = store::identities::count_except(&mut tx, &identity).await?;
        check_limit("identities", have, MAX_IDENTITIES)?;
        store::identities::put(&mut tx, &identity).await?;
        store::audit::record(&mut tx, actor, "person.link", person).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(())
    }

    /// Separates an account or a user of programs, such as `telegram:42` or `api:anna`, from a person.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if it is none of theirs.
    pub async fn unlink(
        self,
        tenant: TenantId,
        actor: Actor,
        (person, identity): (PersonId, &str),
    ) -> Result<Identity, Error> {
        let missing = || Error::not_found("identity", identity);
        let (channel, peer) = identity.split_once(':').ok_or_else(missing)?;
        let mut tx = self.0.begin_change(tenant).await?;
        let canonical = store::identities::links::canonical(&mut tx, channel, peer).await?;
        let canonical = canonical
            .filter(|known| *known == Identity::canonical_of_person(person))
            .ok_or_else(missing)?;
        store::identities::delete(&mut tx, channel, peer).await?;
        store::audit::record(&mut tx, actor, "person.split", person).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(Identity { channel: channel.to_owned(), peer: peer.to_owned(), canonical })
    }

    /// Checks that a person's record can be deleted.
    ///
    /// # Errors
    ///
    /// As [`delete`](Self::delete).
    pub async fn check_deletion(self, tenant: TenantId, id: PersonId) -> Result<Person, Error> {
        let person = self.get(tenant, id).await?;
        // Nobody else could do what they do.
        if person.operates {
            return Err(Error::Invalid(
                "this person operates the installation, and cannot be erased".to_owned(),
            ));
        }
        Ok(person)
    }

    /// Deletes a person's record, and those merged into them, with their keys and devices. What they
    /// said is erased before.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such person, [`Error::Invalid`] if they operate the
    /// installation.
    pub async fn delete(
        self,
        tenant: TenantId,
        actor: Actor,
        id: PersonId,
    ) -> Result<Person, Error> {
        let person = self.check_deletion(tenant, id).await?;
        let mut tx = self.0.begin_change(tenant).await?;
        store::people::merging::delete(&mut tx, id).await?;
        store::audit::record(&mut tx, actor, "person.erase", id).await?;
        tx.commit().await?;
        self.forget(tenant, &person).await?;
        Ok(person)
    }
}
