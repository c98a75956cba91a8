//! Conversations and time zones of accounts that become one person, or are separated again.

use holdfast_types::{PersonId, SessionId, TenantId};
use uuid::Uuid;

use crate::{Error, Settings};

/// New keys of the direct conversations of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Channel of the account; `None` if the conversations of all channels are meant.
    pub channel: Option<String>,
    /// Old and new keys, of direct conversations and of conversations with a name.
    pub keys: Vec<(String, String)>,
}

impl Settings<'_> {
    /// Renames conversations, which get the kind of their new key. One whose new key is taken keeps
    /// its old one, and stays on record. A key without a channel (`agent:…:dm:any:…`) is only renamed
    /// if the conversation was last held on the channel of the changes. Can be repeated.
    pub async fn rename_sessions(
        self,
        tenant: TenantId,
        changes: &KeyChanges,
    ) -> Result<u64, Error> {
        const SQL: &str = "
            update session.sessions s set key = n.latter, kind = split_part(n.latter, ':', 3)
            from unnest($2::text[], $3::text[]) as n (former, latter)
            where s.tenant_id = $1 and s.key = n.former
              and not exists (
                  select from session.sessions t where t.tenant_id = $1 and t.key = n.latter)
              and ($4::text is null or split_part(n.former, ':', 4) <> 'any'
                   or coalesce(s.last_target->>'channel', $4) = $4)";

        let (former, latter): (Vec<&str>, Vec<&str>) =
            changes.keys.iter().map(|(old, new)| (old.as_str(), new.as_str())).unzip();
        let mut tx = self.pools.tenant(tenant).await?;
        let renamed = holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(former)
            .bind(latter)
            .bind(changes.channel.as_deref())
            .execute(tx.conn())
            .await?
            .rows_affected();
        tx.commit().await?;
        Ok(renamed)
    }

    /// Forgets where on a channel these conversations were last held. The next message there tells it
    /// again.
    pub async fn forget_places(self, tenant: TenantId, keys: &[String]) -> Result<(), Error> {
        const SQL: &str = "
            update session.sessions set last_target = null
            where tenant_id = $1 and key = any($2) and last_target is not null";
        let mut tx = self.pools.tenant(tenant).await?;
        holdfast_pg::query(SQL).bind(tenant.as_uuid()).bind(keys).execute(tx.conn()).await?;
        Ok(tx.commit().await?)
    }

    /// Returns the conversations of a person, with their keys.
    pub async fn conversations_of_person(
        self,
        tenant: TenantId,
        person: PersonId,
    ) -> Result<Vec<(SessionId, String)>, Error> {
        const SQL: &str = "select session_id, key from session.sessions \
                           where tenant_id = $1 and person_id = $2 order by session_id";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, String)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(person.as_uuid())
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(|(id, key)| (id.into(), key)).collect())
    }

    /// Returns the keys of the conversations with these names: `agent:main:api:anna` is that of
    /// `agent:main:api:anna/trip`, too.
    pub async fn conversations_named(
        self,
        tenant: TenantId,
        names: &[String],
    ) -> Result<Vec<String>, Error> {
        const SQL: &str = "
            select s.key from session.sessions s
            where s.tenant_id = $1 and exists (
                select from unnest($2::text[]) as n (name)
                where s.key = n.name or starts_with(s.key, n.name || '/'))
            order by s.key";
        let mut tx = self.pools.tenant(tenant).await?;
        let keys = holdfast_pg::query_scalar(SQL)
            .bind(tenant.as_uuid())
            .bind(names)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(keys)
    }

    /// Returns conversations that programs, or the console of earlier versions, have named and that
    /// are no person's, with the authors of their messages, in the order of their ids.
    pub async fn conversations_of_nobody(
        self,
        tenant: TenantId,
        after: Option<SessionId>,
        limit: i64,
    ) -> Result<Vec<(SessionId, String, Vec<String>)>, Error> {
        const SQL: &str = "
            select s.session_id, s.key, array(
                select distinct e.body #>> '{body,author,id}' from session.entries e
                where e.tenant_id = $1 and e.session_id = s.session_id and e.kind = 'heard'
                  and e.body #>> '{body,author,id}' is not null)
            from session.sessions s
            where s.tenant_id = $1 and s.session_id > $2 and s.kind = 'api' and s.person_id is null
              and s.key !~ '^agent:[^:]+:api:='
            order by s.session_id limit $3";
        let mut tx = self.pools.tenant(tenant).await?;
        let rows: Vec<(Uuid, String, Vec<String>)> = holdfast_pg::query_as(SQL)
            .bind(tenant.as_uuid())
            .bind(after.map_or(Uuid::nil(), SessionId::as_uuid))
            .bind(limit)
            .fetch_all(tx.conn())
            .await?;
        tx.finish_reading();
        Ok(rows.into_iter().map(|(id, key, authors)| (id.into(), key, authors)).collect())
    }

    /// Gives the time zones of people to the person who they are, unless that person has set one,
    /// and records the event `AccountsLinked` in the conversation in which it was asked for, if there
    /// is one. Can be repeated.
    pub async fn join_people(
        self,
        tenant: TenantId,
        asked_in: Option<SessionId>,
        former: &[String],
        person: &str,
    ) -> Result<(), Error> {
        const ZONES: &str = "
            insert into session.zones (tenant_id, agent_id, person, zone)
            select $1, agent_id, $3, zone from session.zones
            where tenant_id = $1 and person = any($2) and person <> $3
            on conflict (agent_id, person, tenant_id) do nothing";
        const FORGET: &str = "
            delete from session.zones
            where tenant_id = $1 and person = any($2) and person <> $3";

        let mut tx = self.pools.tenant(tenant).await?;
        for sql in [ZONES, FORGET] {
            holdfast_pg::query(sql)
                .bind(tenant.as_uuid())
                .bind(former)
                .bind(person)
                .execute(tx.conn())
                .await?;
        }
        if let Some(session) = asked_in {
            record_event(&mut tx, session, "AccountsLinked").await?;
        }
        Ok(tx.commit().await?)
    }

    /// Records the event `AccountsUnlinked`.
    pub async fn record_unlinking(self, tenant: TenantId, session: SessionId) -> Result<(), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        record_event(&mut tx, session, "AccountsUnlinked").await?;
        Ok(tx.commit().await?)
    }
}

/// Records an event without the ids of people.
async fn record_event(
    tx: &mut holdfast_pg::TenantTx,
    session: SessionId,
    name: &str,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into session.events (tenant_id, family, session_id, name, payload)
        values ($1, 'people', $2, $3, '{}')";
    let tenant = tx.tenant().as_uuid();
    holdfast_pg::query(SQL)
        .bind(tenant)
        .bind(session.as_uuid())
        .bind(name)
        .execute(tx.conn())
        .await?;
    Ok(())
}
