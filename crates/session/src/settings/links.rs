//! Conversations and time zones of accounts that become one person, or are separated again.

use holdfast_types::{SessionId, TenantId};

use crate::{Error, Settings};

/// New keys of the direct conversations of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyChanges {
    /// Channel of the account.
    pub channel: String,
    /// Old and new keys.
    pub keys: Vec<(String, String)>,
}

impl Settings<'_> {
    /// Renames conversations. One whose new key is taken keeps its old one, and stays on record. A
    /// key without a channel (`agent:…:dm:any:…`) is only renamed if the conversation was last held
    /// on the account's channel. Can be repeated.
    pub async fn rename_sessions(
        self,
        tenant: TenantId,
        changes: &KeyChanges,
    ) -> Result<u64, Error> {
        const SQL: &str = "
            update session.sessions s set key = n.latter
            from unnest($2::text[], $3::text[]) as n (former, latter)
            where s.tenant_id = $1 and s.key = n.former
              and not exists (
                  select from session.sessions t where t.tenant_id = $1 and t.key = n.latter)
              and (split_part(n.former, ':', 4) <> 'any'
                   or coalesce(s.last_target->>'channel', $4) = $4)";

        let (former, latter): (Vec<&str>, Vec<&str>) =
            changes.keys.iter().map(|(old, new)| (old.as_str(), new.as_str())).unzip();
        let mut tx = self.pools.tenant(tenant).await?;
        let renamed = holdfast_pg::query(SQL)
            .bind(tenant.as_uuid())
            .bind(former)
            .bind(latter)
            .bind(&changes.channel)
            .execute(tx.conn())
            .await?
            .rows_affected();
        tx.commit().await?;
        Ok(renamed)
    }

    /// Gives the time zones of people to the person who they are, unless that person has set one,
    /// and records the event `AccountsLinked`. Can be repeated.
    pub async fn join_people(
        self,
        tenant: TenantId,
        session: SessionId,
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
        record_event(&mut tx, session, "AccountsLinked").await?;
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
