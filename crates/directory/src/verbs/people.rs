//! Operations on people.

mod invitations;
mod merging;
mod provider_checks;

use std::time::Instant;

use holdfast_pg::TenantTx;
use holdfast_types::{PersonId, TenantId, TenantRole};
use jiff::{SignedDuration, Timestamp};

use super::{check_limit, routing::MAX_IDENTITIES};
use crate::key::console::check_name;
use crate::{
    Actor, Directory, Error, Person, PersonChanges, PersonPrincipal, SignIn, Tenant, TenantState,
    person::{CachedPerson, FIRST_OWNER, INVITATION, is_language_tag},
    store,
};

pub use provider_checks::ProviderCheck;

/// Maximum number of people of a tenant.
pub(super) const MAX_PEOPLE: i64 = 100_000;
/// Age at which the time of a person's last sign-in is stored again.
const SEEN_INTERVAL: SignedDuration = SignedDuration::from_hours(1);

/// People.
#[derive(Debug, Clone, Copy)]
pub struct People<'d>(&'d Directory);

impl Directory {
    #[must_use]
    pub const fn people(&self) -> People<'_> {
        People(self)
    }
}

impl People<'_> {
    /// Returns the person of a verified token; stores them at the first sign-in. A change of the
    /// role is recorded in the audit log.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if there is no such tenant, [`Error::TenantSuspended`], or
    /// [`Error::PersonDisabled`].
    pub async fn sign_in(self, said: &SignIn) -> Result<PersonPrincipal, Error> {
        self.cached(said, async || self.find_or_store(said).await).await
    }

    /// As [`sign_in`](Self::sign_in), but stores nothing: for connections that stay open while nobody
    /// does anything.
    ///
    /// # Errors
    ///
    /// As [`sign_in`](Self::sign_in), or [`Error::NotFound`] if the person has never signed in.
    pub async fn check(self, said: &SignIn) -> Result<PersonPrincipal, Error> {
        let find = async || {
            let (tenant, known) = self.find(said).await?;
            let person = known.ok_or_else(|| Error::not_found("person", &said.subject))?;
            let person = self.signed_in(tenant.id, person).await?;
            Ok(cached_person(said, &tenant, &person))
        };
        self.cached(said, find).await
    }

    async fn cached(
        self,
        said: &SignIn,
        find: impl AsyncFnOnce() -> Result<CachedPerson, Error>,
    ) -> Result<PersonPrincipal, Error> {
        let key = (said.tenant.clone(), said.issuer.clone(), said.subject.clone());
        let is_current =
            |cached: &CachedPerson| cached.who.role == said.role && cached.who.name == said.name;
        let cached = match self.0.people.get(&key).filter(is_current) {
            Some(cached) => cached,
            None => {
                let begun = Instant::now();
                let found = find().await?;
                self.0.people.put(key, found.clone(), begun);
                found
            }
        };
        if !cached.tenant_active {
            Err(Error::TenantSuspended)
        } else if cached.is_disabled {
            Err(Error::PersonDisabled)
        } else {
            Ok(cached.who)
        }
    }

    async fn find(self, said: &SignIn) -> Result<(Tenant, Option<Person>), Error> {
        let tenant = self.0.tenants().get(&said.tenant).await?;
        let mut tx = self.0.pools.tenant(tenant.id).await?;
        let known = store::people::by_subject(&mut tx, &said.issuer, &said.subject).await?;
        tx.commit().await?;
        Ok((tenant, known))
    }

    /// Returns a person, or the one into whom they were merged; `None` if there is no such person.
    pub async fn find_merged(
        self,
        tenant: TenantId,
        id: PersonId,
    ) -> Result<Option<Person>, Error> {
        match self.get(tenant, id).await {
            Ok(person) => Ok(Some(self.signed_in(tenant, person).await?)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The person whom a sign-in leads to: this one, or the one into whom they were merged.
    async fn signed_in(self, tenant: TenantId, person: Person) -> Result<Person, Error> {
        match person.merged_into {
            Some(into) => self.get(tenant, into).await,
            None => Ok(person),
        }
    }

    async fn find_or_store(self, said: &SignIn) -> Result<CachedPerson, Error> {
        let (tenant, known) = self.find(said).await?;
        let tenant_active = tenant.state == TenantState::Active;
        let is_current = |person: &Person| {
            person.name == said.name
                && person.role == said.role
                && Timestamp::now().duration_since(person.seen_at) < SEEN_INTERVAL
        };
        let person = match known {
            Some(person) if is_current(&person) || !tenant_active => person,
            // A suspended tenant gets no new people; the result is the same.
            None if !tenant_active => return Err(Error::TenantSuspended),
            known => self.store(tenant.id, known, said).await?,
        };
        let person = self.signed_in(tenant.id, person).await?;
        Ok(cached_person(said, &tenant, &person))
    }

    async fn store(
        self,
        tenant: TenantId,
        known: Option<Person>,
        said: &SignIn,
    ) -> Result<Person, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if known.is_none() {
            check_limit("people", store::people::count(&mut tx).await?, MAX_PEOPLE)?;
        }
        let person = store::people::put(&mut tx, said).await?;
        let actor = Actor::Person(person.id);
        match known {
            None => {
                let subject = format!("{} {}", person.id, person.role);
                store::audit::record(&mut tx, actor, "person.create", subject).await?;
            }
            Some(before) if before.role != person.role => {
                let subject = format!("{} {} {}", person.id, before.role, person.role);
                store::audit::record(&mut tx, actor, "person.role", subject).await?;
            }
            Some(_) => {}
        }
        tx.commit().await?;
        Ok(person)
    }

    /// Returns a person.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such person.
    pub async fn get(self, tenant: TenantId, id: PersonId) -> Result<Person, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let person = store::people::one(&mut tx, id).await?;
        tx.commit().await?;
        person.ok_or_else(|| Error::not_found("person", id))
    }

    /// Returns the first owner of a tenant; one who is missing is made. Keys that were made with the
    /// tenant are theirs. If `operates`, they operate the installation from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a malformed name.
    pub async fn first_owner(
        self,
        tenant: TenantId,
        (name, operates): (&str, bool),
    ) -> Result<Person, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let owner = put_first_owner(&mut tx, name).await?;
        store::keys::give_first_key(&mut tx, owner.id).await?;
        if operates {
            store::people::set_operates(&mut tx, owner.id, name).await?;
        }
        tx.commit().await?;
        Ok(owner)
    }

    /// Returns people after `after`, in the order of their first sign-in.
    pub async fn list(
        self,
        tenant: TenantId,
        after: Option<PersonId>,
        limit: i64,
    ) -> Result<Vec<Person>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let people = store::people::page(&mut tx, after, limit).await?;
        tx.commit().await?;
        Ok(people)
    }

    /// Changes a person's record: in this process at once, in others within 5 s.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such person. [`Error::Invalid`] for a malformed name or
    /// language, and for the name or the role of a person of whom an identity provider says them.
    pub async fn update(
        self,
        tenant: TenantId,
        actor: Actor,
        id: PersonId,
        changes: &PersonChanges,
    ) -> Result<Person, Error> {
        if let Some(name) = &changes.name {
            check_name(name)?;
        }
        if let Some(language) = changes.language.as_deref().filter(|tag| !tag.is_empty())
            && !is_language_tag(language)
        {
            return Err(Error::Invalid(
                "a language is a tag as `nb`, `zh-CN` or `pt-BR` (BCP 47)".to_owned(),
            ));
        }
        let mut tx = self.0.begin_change(tenant).await?;
        let changed = store::people::update(&mut tx, id, changes).await?;
        let person = changed.ok_or_else(|| Error::not_found("person", id))?;
        if person.is_of_provider() && (changes.name.is_some() || changes.role.is_some()) {
            tx.rollback().await?;
            return Err(Error::Invalid(format!(
                "{id} signs in at {}, which says their name and their role: change them there",
                person.issuer
            )));
        }
        if person.operates && person.role < TenantRole::Owner {
            tx.rollback().await?;
            return Err(Error::Invalid(format!(
                "{id} operates the installation, and stays an owner"
            )));
        }
        store::audit::record(&mut tx, actor, "person.update", id).await?;
        tx.commit().await?;
        self.forget(tenant, &person).await?;
        Ok(person)
    }

    /// Refuses a person, with their keys, devices and open invitations, or accepts them again: in
    /// this process at once, in others within 5 s.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such person.
    pub async fn set_disabled(
        self,
        tenant: TenantId,
        actor: Actor,
        id: PersonId,
        disabled: bool,
    ) -> Result<Person, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let changed = store::people::set_disabled(&mut tx, id, disabled).await?;
        let person = changed.ok_or_else(|| Error::not_found("person", id))?;
        if disabled {
            store::people::invitations::delete_by(&mut tx, &id.to_string()).await?;
        }
        let action = if disabled { "person.disable" } else { "person.enable" };
        store::audit::record(&mut tx, actor, action, id).await?;
        tx.commit().await?;
        self.forget(tenant, &person).await?;
        Ok(person)
    }

    /// Forgets what this process has cached of a person who was changed.
    async fn forget(self, tenant: TenantId, person: &Person) -> Result<(), Error> {
        let name = self.0.tenants().get(&tenant.to_string()).await?.name;
        // Keys, devices and sessions change with their person.
        self.0.forget_callers(tenant);
        self.0.routings.forget(&tenant);
        // Tokens name the tenant by its name or by its id.
        for tenant in [name, tenant.to_string()] {
            let key = (tenant, person.issuer.clone(), person.subject.clone());
            self.0.people.forget(&key);
        }
        Ok(())
    }
}

/// Returns the first owner of a tenant; stores them if they are missing.
async fn put_first_owner(tx: &mut TenantTx, name: &str) -> Result<Person, Error> {
    let owner = SignIn {
        tenant: tx.tenant().to_string(),
        issuer: INVITATION.to_owned(),
        subject: FIRST_OWNER.to_owned(),
        name: name.to_owned(),
        role: TenantRole::Owner,
    };
    check_name(name)?;
    store::people::put_invited(tx, &owner, &Actor::Operator.to_string()).await
}

fn cached_person(said: &SignIn, tenant: &Tenant, person: &Person) -> CachedPerson {
    let concurrent_calls = tenant.limits.concurrent_calls;
    CachedPerson {
        who: PersonPrincipal {
            tenant: tenant.id,
            person: person.id,
            name: said.name.clone(),
            role: said.role,
            rate: tenant.rate,
            concurrent_calls: concurrent_calls.and_then(|most| u32::try_from(most).ok()),
        },
        is_disabled: person.disabled_at.is_some(),
        tenant_active: tenant.state == TenantState::Active,
    }
}
