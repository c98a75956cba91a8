//! Operations on sessions of the web console, and on one-time links that begin one.

use std::time::{Duration, Instant};

use holdfast_pg::TenantTx;
use holdfast_types::TenantId;
use jiff::{SignedDuration, Timestamp};
use secrecy::ExposeSecret as _;
use tracing::debug;
use uuid::Uuid;

use crate::{
    Actor, Approver, ApproverRights, ConsolePrincipal, ConsoleRights, ConsoleSession,
    ConsoleSessionLimits, Directory, Error, Invitation, IssuedConsoleLink, IssuedConsoleSession,
    KeyPrincipal, LinkOrigin, PersonPrincipal, ProviderSignIn, Purpose, SignIn, SignInMethod,
    key::console::CachedConsoleSession,
    person::INVITATION,
    store,
    store::keys::console as table,
    token,
    verbs::{check_limit, people::MAX_PEOPLE},
};

/// Maximum number of sessions of a tenant.
const MAX_SESSIONS: i64 = 10_000;

/// Maximum number of a tenant's links that were not used.
const MAX_LINKS: i64 = 1_000;

/// Time for which a link can be used.
const LINK_LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Maximum age at which the time of a session's last use is stored again.
const MAX_USED_AGE: SignedDuration = SignedDuration::from_mins(5);

/// Sessions of the web console.
#[derive(Debug, Clone, Copy)]
pub struct ConsoleSessions<'d>(&'d Directory);

impl Directory {
    /// Whether a text has the form of the token of a console session.
    #[must_use]
    pub fn is_console_token(text: &str) -> bool {
        Self::console_session_of(text).is_some()
    }

    /// The session that a token is of; `None` if the text has another form.
    #[must_use]
    pub fn console_session_of(text: &str) -> Option<Uuid> {
        token::read_console_session(text).map(|(session, _)| session)
    }

    #[must_use]
    pub const fn console_sessions(&self) -> ConsoleSessions<'_> {
        ConsoleSessions(self)
    }
}

impl ConsoleSessions<'_> {
    /// Returns the session of a token, with the rights of its holder as they are now, and counts as a
    /// use of it.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub async fn authenticate(self, text: &str, idle: Duration) -> Result<ConsolePrincipal, Error> {
        let known = self.find(text, idle).await?;
        let idle = SignedDuration::try_from(idle).unwrap_or(SignedDuration::MAX);
        let age = Timestamp::now().duration_since(known.used_at);
        // Idle times in tests are seconds.
        if age > MAX_USED_AGE.min(idle / 4)
            && let Err(error) = self.touch(&known.who).await
        {
            // The session is valid, and the next use tries again.
            debug!(error = &error as &dyn std::error::Error, "a session's use was not stored");
        }
        Ok(known.who)
    }

    /// As [`authenticate`](Self::authenticate), but does not count as a use: for connections that
    /// stay open while nobody does anything.
    ///
    /// # Errors
    ///
    /// [`Error::SessionEnded`] if there is no such session, it was not used for `idle`, or its holder
    /// may not sign in any more; [`Error::TenantSuspended`].
    pub async fn check(self, text: &str, idle: Duration) -> Result<ConsolePrincipal, Error> {
        self.find(text, idle).await.map(|known| known.who)
    }

    async fn find(self, text: &str, idle: Duration) -> Result<CachedConsoleSession, Error> {
        let known = self.verified(text).await?;
        let idle = SignedDuration::try_from(idle).unwrap_or(SignedDuration::MAX);
        let now = Timestamp::now();
        if !known.live || known.expires_at <= now || now.duration_since(known.used_at) >= idle {
            return Err(Error::SessionEnded);
        }
        if !known.active {
            return Err(Error::TenantSuspended);
        }
        Ok(known)
    }

    /// The session of a token, which may have ended.
    async fn verified(self, text: &str) -> Result<CachedConsoleSession, Error> {
        let (id, secret) = token::read_console_session(text).ok_or(Error::SessionEnded)?;
        let known = match self.0.console_sessions.get(&id) {
            Some(known) => known,
            None if self.0.unknown.get(&id).is_some() => return Err(Error::SessionEnded),
            None => {
                let _slot = self.0.lookup_slot(id, &secret).await?;
                self.look_up(id).await?
            }
        };
        match self.0.peppers.pepper_of(&known.digest, &secret)? {
            Some(_) => Ok(known),
            None => Err(Error::SessionEnded),
        }
    }

    async fn touch(self, who: &ConsolePrincipal) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(who.tenant).await?;
        table::touch(&mut tx, who.session).await?;
        if let ApproverRights::Person { person, .. } = who.holder {
            store::people::touch(&mut tx, person).await?;
        }
        tx.commit().await?;
        self.0.console_sessions.forget(&who.session);
        Ok(())
    }

    async fn look_up(self, id: Uuid) -> Result<CachedConsoleSession, Error> {
        let begun = Instant::now();
        let mut tx = self.0.pools.system().await?;
        let tenant = table::find(&mut tx, id).await?;
        tx.commit().await?;
        let found = match tenant {
            Some(tenant) => {
                let mut tx = self.0.pools.tenant(tenant).await?;
                let found = table::look_up(&mut tx, id).await?;
                tx.commit().await?;
                found.map(|found| (tenant, found))
            }
            None => None,
        };
        let Some((tenant, found)) = found else {
            self.0.unknown.put(id, (), begun);
            return Err(Error::SessionEnded);
        };
        let (holder, live) = found.holder.rights()?.ok_or(Error::SessionEnded)?;
        let known = CachedConsoleSession {
            digest: found.digest,
            live,
            active: found.holder.is_tenant_active()?,
            used_at: found.used_at.to_jiff(),
            expires_at: found.expires_at.to_jiff(),
            who: ConsolePrincipal {
                tenant,
                session: id,
                name: found.name,
                scopes: found.scopes,
                holder,
                checked_at: found.checked_at.map(|at| at.to_jiff()),
                rate: found.holder.rate(),
                concurrent_calls: found.holder.concurrent_calls(),
            },
        };
        self.0.console_sessions.put(id, known.clone(), begun);
        Ok(known)
    }

    /// Begins a session for the holder of an API key.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at the limit of sessions.
    pub async fn begin_for_key(
        self,
        key: KeyPrincipal,
        limits: ConsoleSessionLimits,
    ) -> Result<IssuedConsoleSession, Error> {
        let (holder, name) = (Approver::Key(key.key), key.name);
        let rights = ConsoleRights { holder, scopes: None, name };
        let mut tx = self.0.begin_change(key.tenant).await?;
        let method = (SignInMethod::Key, LinkOrigin::default());
        let issued = self.begin(&mut tx, &rights, method, limits).await?;
        tx.commit().await?;
        Ok(issued)
    }

    /// Begins a session for a person who has signed in at an identity provider. With a refresh token the
    /// provider is asked about them again; without one the session is short.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at the limit of sessions.
    pub async fn begin_for_person(
        self,
        person: PersonPrincipal,
        provider: Option<&ProviderSignIn>,
        limits: ConsoleSessionLimits,
    ) -> Result<IssuedConsoleSession, Error> {
        let holder = Approver::Person(person.person);
        let rights = ConsoleRights { holder, scopes: None, name: person.name };
        let mut tx = self.0.begin_change(person.tenant).await?;
        let mut origin = LinkOrigin::default();
        match provider {
            Some(provider) => {
                let data_key = self.0.data_key(&mut tx).await?;
                let purpose = Purpose::RefreshToken(person.person.as_uuid());
                let token = provider.refresh_token.expose_secret().as_bytes();
                let sealed = data_key.seal(purpose, token).await?;
                store::people::provider_sign_ins::put(&mut tx, person.person, provider, &sealed)
                    .await?;
            }
            None => origin.expires_at = Some(end_after(limits.unchecked)?),
        }
        let method = (SignInMethod::Oidc, origin);
        let issued = self.begin(&mut tx, &rights, method, limits).await?;
        tx.commit().await?;
        Ok(issued)
    }

    /// Begins a session with a one-time link, which is gone then.
    ///
    /// # Errors
    ///
    /// [`Error::LinkNotValid`], or [`Error::TooMany`] at the limit of sessions.
    pub async fn begin_with_link(
        self,
        text: &str,
        limits: ConsoleSessionLimits,
    ) -> Result<IssuedConsoleSession, Error> {
        let (id, secret) = token::read_console_link(text).ok_or(Error::LinkNotValid)?;
        let (of_link, of_invitation) = {
            let _slot = self.0.lookup_slot(id, &secret).await?;
            let mut tx = self.0.pools.system().await?;
            let of_link = table::find_link(&mut tx, id).await?;
            let of_invitation = match of_link {
                Some(_) => None,
                None => store::people::invitations::find(&mut tx, id).await?,
            };
            tx.commit().await?;
            (of_link, of_invitation)
        };
        if let Some(tenant) = of_invitation {
            return self.accept_invitation(tenant, (id, &secret), limits).await;
        }
        let mut tx = self.0.begin_change(of_link.ok_or(Error::LinkNotValid)?).await?;
        let digest = table::link_digest(&mut tx, id).await?.ok_or(Error::LinkNotValid)?;
        if self.0.peppers.pepper_of(&digest, &secret)?.is_none() {
            return Err(Error::LinkNotValid);
        }
        let (rights, origin) = table::take_link(&mut tx, id).await?.ok_or(Error::LinkNotValid)?;
        let method = (SignInMethod::Link, origin);
        let issued = self.begin(&mut tx, &rights, method, limits).await?;
        tx.commit().await?;
        Ok(issued)
    }

    /// Makes the invited person, and begins their first session.
    async fn accept_invitation(
        self,
        tenant: TenantId,
        (id, secret): (Uuid, &token::Secret),
        limits: ConsoleSessionLimits,
    ) -> Result<IssuedConsoleSession, Error> {
        use store::people::{self, invitations};

        let mut tx = self.0.begin_change(tenant).await?;
        let digest = invitations::digest(&mut tx, id).await?.ok_or(Error::LinkNotValid)?;
        if self.0.peppers.pepper_of(&digest, secret)?.is_none() {
            return Err(Error::LinkNotValid);
        }
        let Invitation { id, name, role, invited_by, .. } =
            invitations::take(&mut tx, id).await?.ok_or(Error::LinkNotValid)?;
        check_limit("people", people::count(&mut tx).await?, MAX_PEOPLE)?;
        let invited = SignIn {
            tenant: tenant.to_string(),
            issuer: INVITATION.to_owned(),
            subject: id.to_string(),
            name,
            role,
        };
        let person = people::put_invited(&mut tx, &invited, &invited_by).await?;
        let subject = format!("{} {role}", person.id);
        let actor = Actor::Person(person.id);
        store::audit::record(&mut tx, actor, "person.create", subject).await?;
        let holder = Approver::Person(person.id);
        let rights = ConsoleRights { holder, scopes: None, name: person.name };
        let method = (SignInMethod::Link, LinkOrigin::default());
        let issued = self.begin(&mut tx, &rights, method, limits).await?;
        tx.commit().await?;
        Ok(issued)
    }

    async fn begin(
        self,
        tx: &mut TenantTx,
        rights: &ConsoleRights,
        (method, origin): (SignInMethod, LinkOrigin),
        limits: ConsoleSessionLimits,
    ) -> Result<IssuedConsoleSession, Error> {
        let others = table::prune(tx, limits.idle.as_secs_f64()).await?;
        check_limit("sessions of the console", others, MAX_SESSIONS)?;
        let id = Uuid::now_v7();
        let (secret, digest) = self.0.peppers.generate(id)?;
        let expires_at = end_after(limits.lifetime)?;
        let expires_at = origin.expires_at.map_or(expires_at, |latest| latest.min(expires_at));
        table::insert(tx, (id, &digest), (rights, method), (origin, expires_at)).await?;
        let subject = format!("{} {}", id.simple(), method.as_str());
        store::audit::record(tx, actor(rights.holder), "console.sign_in", subject).await?;
        Ok(IssuedConsoleSession {
            id,
            token: token::write_console_session(id, &secret),
            expires_at,
        })
    }

    /// From when the sign-in of a session is, and its end: what the session of a link inherits.
    ///
    /// # Errors
    ///
    /// [`Error::SessionEnded`] if there is no such session.
    pub async fn origin(self, tenant: TenantId, session: Uuid) -> Result<LinkOrigin, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let origin = table::origin(&mut tx, session).await?;
        tx.commit().await?;
        origin.ok_or(Error::SessionEnded)
    }

    /// Makes a one-time link that begins a session with these rights.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an unknown scope or a malformed name, [`Error::TooMany`] at the limit
    /// of links.
    pub async fn create_link(
        self,
        tenant: TenantId,
        rights: &ConsoleRights,
        origin: LinkOrigin,
    ) -> Result<IssuedConsoleLink, Error> {
        rights.check()?;
        let id = Uuid::now_v7();
        let (secret, digest) = self.0.peppers.generate(id)?;
        let expires_at = Timestamp::now() + LINK_LIFETIME;
        let mut tx = self.0.begin_change(tenant).await?;
        check_limit("unused links", table::prune_links(&mut tx).await?, MAX_LINKS)?;
        table::insert_link(&mut tx, (id, &digest), (rights, origin), expires_at).await?;
        let actor = actor(rights.holder);
        store::audit::record(&mut tx, actor, "console.link", id.simple()).await?;
        tx.commit().await?;
        Ok(IssuedConsoleLink { token: token::write_console_link(id, &secret), expires_at })
    }

    /// Returns the tenant's sessions that have not ended by age, the newest first.
    pub async fn list(
        self,
        tenant: TenantId,
        idle: Duration,
    ) -> Result<Vec<ConsoleSession>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let sessions = table::all(&mut tx, idle.as_secs_f64()).await?;
        tx.commit().await?;
        Ok(sessions)
    }

    /// Ends a session: in this process at once, in others within 5 s.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] if the tenant has no such session.
    pub async fn end(self, tenant: TenantId, actor: Actor, id: Uuid) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if !table::delete(&mut tx, id).await? {
            return Err(Error::not_found("session of the console", id.simple()));
        }
        store::audit::record(&mut tx, actor, "console.end", id.simple()).await?;
        tx.commit().await?;
        self.0.console_sessions.forget(&id);
        Ok(())
    }

    /// Ends the session of a token. One that has ended already is no error.
    pub async fn sign_out(self, text: &str) -> Result<(), Error> {
        let known = match self.verified(text).await {
            Ok(known) => known,
            Err(Error::SessionEnded) => return Ok(()),
            Err(error) => return Err(error),
        };
        let ConsolePrincipal { tenant, session, holder, .. } = known.who;
        let actor = match holder {
            ApproverRights::Key { key, .. } => Actor::Key(key),
            ApproverRights::Person { person, .. } => Actor::Person(person),
        };
        let mut tx = self.0.begin_change(tenant).await?;
        if table::delete(&mut tx, session).await? {
            store::audit::record(&mut tx, actor, "console.sign_out", session.simple()).await?;
        }
        tx.commit().await?;
        self.0.console_sessions.forget(&session);
        Ok(())
    }
}

/// The time after so long.
fn end_after(lifetime: Duration) -> Result<Timestamp, Error> {
    let lifetime = SignedDuration::try_from(lifetime);
    let end = lifetime.and_then(|life| Timestamp::now().checked_add(life));
    end.map_err(|error| Error::Invalid(format!("the session's lifetime: {error}")))
}

const fn actor(holder: Approver) -> Actor {
    match holder {
        Approver::Key(key) => Actor::Key(key),
        Approver::Person(person) => Actor::Person(person),
    }
}
