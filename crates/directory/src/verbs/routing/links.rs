//! Links between accounts of one person, which the person confirms by a code (decision 0087).
//!
//! A code is asked for on one account and sent from another. The other account is then linked to the
//! person of the first, whose rights in policies it gets. So an account can only be linked to one that
//! has all rights of its own: whoever talks somebody into sending a code gains nothing by it.

use holdfast_types::{MAX_LINKED_PERSON_BYTES, TenantId, linked_peer, linked_person};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{MAX_IDENTITIES, Routes, check_limit};
use crate::{
    Actor, CodeOrigin, Error, Identity, IssuedLink, LinkOutcome, PersonAccount,
    store::{self, identities::links},
};

/// Characters of codes: none that is mistaken for another. 32, so that a byte chooses evenly.
const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";
const CODE_LENGTH: usize = 8;
const CODE_LIFETIME_SECONDS: f64 = 600.0;

/// Unknown codes that an account may send within [`CODE_LIFETIME_SECONDS`].
const MAX_FAILURES: i32 = 5;

impl Routes<'_> {
    /// Creates a code for an account or a person, which expires, and invalidates its earlier one.
    /// `None` if an administrator has set the account's identity.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the person's name is too long.
    pub async fn issue_link_code(
        self,
        tenant: TenantId,
        mut link: IssuedLink,
    ) -> Result<Option<(String, Timestamp)>, Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        if let CodeOrigin::Account { account, .. } = &link.origin
            && let Some(canonical) =
                links::canonical(&mut tx, &account.identity_channel(), &account.peer).await?
        {
            let Some(person) = linked_person(&canonical) else { return Ok(None) };
            person.clone_into(&mut link.person);
        }
        if link.person.len() > MAX_LINKED_PERSON_BYTES {
            return Err(Error::Invalid("the account's id is too long to be linked".to_owned()));
        }
        let random: [u8; CODE_LENGTH] = rand::random();
        let code: String =
            random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect();
        let hash = code_hash(tenant, &code);
        let expires_at = links::put(&mut tx, &hash, &link, CODE_LIFETIME_SECONDS).await?;
        tx.commit().await?;
        Ok(Some((code, expires_at)))
    }

    /// Links an account to the person whose code it has sent. `person` is the account's own name as
    /// a person, `roles` are its rights. The same code of the same account again returns the same.
    ///
    /// # Errors
    ///
    /// [`Error::TooMany`] at the limit of identities.
    pub async fn use_link_code(
        self,
        tenant: TenantId,
        actor: Actor,
        code: &str,
        (account, person, roles): (&PersonAccount, &str, &[String]),
    ) -> Result<LinkOutcome, Error> {
        let (hash, me) = (code_hash(tenant, code), account.hash(tenant));
        let mut tx = self.0.begin_change(tenant).await?;
        if links::failures(&mut tx, &me, CODE_LIFETIME_SECONDS).await? >= MAX_FAILURES {
            return Ok(LinkOutcome::TooManyAttempts);
        }
        let Some((link, is_repeated)) = links::usable(&mut tx, &hash, &me).await? else {
            links::add_failure(&mut tx, &me, CODE_LIFETIME_SECONDS).await?;
            tx.commit().await?;
            return Ok(LinkOutcome::Unknown);
        };
        if is_repeated {
            return Ok(LinkOutcome::Linked(Box::new(link)));
        }
        if link.origin.is_account(tenant, &me) {
            return Ok(LinkOutcome::SameAccount);
        }
        let own = links::canonical(&mut tx, &account.identity_channel(), &account.peer).await?;
        match own.as_deref() {
            Some(own) if linked_person(own).is_none() => return Ok(LinkOutcome::NamedByAdmin),
            Some(own) if *own != linked_peer(person) => return Ok(LinkOutcome::LinkedAlready),
            Some(_) | None => {}
        }
        let others = links::accounts_of(&mut tx, &linked_peer(person)).await?;
        if others
            .iter()
            .any(|one| one.peer != account.peer || one.channel != account.identity_channel())
        {
            return Ok(LinkOutcome::HasLinks);
        }
        if roles.iter().any(|role| role != "guest" && !link.roles.contains(role)) {
            return Ok(LinkOutcome::MoreRights);
        }
        let canonical = linked_peer(&link.person);
        let mut linked = vec![account.identity(&canonical)];
        if let CodeOrigin::Account { account, .. } = &link.origin {
            linked.push(account.identity(&canonical));
        }
        for one in linked {
            let have = store::identities::count_except(&mut tx, &one).await?;
            check_limit("identities", have, MAX_IDENTITIES)?;
            store::identities::put(&mut tx, &one).await?;
        }
        links::mark_used(&mut tx, &hash, &me).await?;
        // Not the ids: they are those of people, and an erasure keeps the audit.
        let subject = format!("{} and {}", link.origin.name(), account.channel);
        store::audit::record(&mut tx, actor, "identity.link", subject).await?;
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(LinkOutcome::Linked(Box::new(link)))
    }

    /// Returns the person to whom an account is linked, with all accounts of that person.
    pub async fn links_of(
        self,
        tenant: TenantId,
        account: &PersonAccount,
    ) -> Result<Option<(String, Vec<Identity>)>, Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        let own = links::canonical(&mut tx, &account.identity_channel(), &account.peer).await?;
        let Some(canonical) = own.filter(|own| linked_person(own).is_some()) else {
            return Ok(None);
        };
        let accounts = links::accounts_of(&mut tx, &canonical).await?;
        tx.finish_reading();
        Ok(linked_person(&canonical).map(|person| (person.to_owned(), accounts)))
    }

    /// Removes links. Links that are gone already are no error.
    pub async fn remove_links(
        self,
        tenant: TenantId,
        actor: Actor,
        accounts: &[Identity],
    ) -> Result<(), Error> {
        let mut tx = self.0.begin_change(tenant).await?;
        let mut channels = Vec::new();
        for one in accounts {
            if store::identities::delete(&mut tx, &one.channel, &one.peer).await? {
                channels.push(one.channel.as_str());
            }
        }
        if !channels.is_empty() {
            let subject = channels.join(" and ");
            store::audit::record(&mut tx, actor, "identity.unlink", subject).await?;
        }
        tx.commit().await?;
        self.0.routings.forget(&tenant);
        Ok(())
    }

    /// Deletes codes that link to a person who is erased.
    pub async fn forget_link_codes(self, tenant: TenantId, person: &str) -> Result<(), Error> {
        let mut tx = self.0.pools.tenant(tenant).await?;
        links::forget(&mut tx, person).await?;
        Ok(tx.commit().await?)
    }
}

/// Hash of a code as people write it: in any case, with spaces or dashes.
fn code_hash(tenant: TenantId, code: &str) -> Vec<u8> {
    let code: String =
        code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_uppercase();
    Sha256::new().chain_update(tenant.as_uuid()).chain_update(code).finalize().to_vec()
}
