//! Texts that are sent to an address on a channel without a conversation.
//!
//! Such a delivery has no session of its own: the id of its session is derived from the address, so
//! that the texts to one address are sent in order. Its request is remembered as a tombstone is, so
//! that a repetition changes nothing.

use holdfast_types::{DeliveryId, RunId, Source, Target, TenantId};
use sha2::{Digest as _, Sha256};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Deliveries, Error};

/// Days for which a request is remembered.
const REQUEST_RETENTION_DAYS: i32 = 30;

/// Attempts to store a delivery whose position another one has taken.
const MAX_ATTEMPTS: u32 = 10;

/// Maximum length of a request's key, in bytes.
const MAX_KEY_BYTES: usize = 256;

/// A text for an address.
#[derive(Debug, Clone)]
pub struct OutboundText {
    /// Key or person that sends the text; keys of requests are unique for each.
    pub source: Source,
    /// Idempotency key of the request.
    pub idem_key: String,
    pub target: Target,
    pub text: String,
    pub trace: Option<String>,
}

/// A text that was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedText {
    pub delivery: DeliveryId,
    /// The request was repeated: nothing was stored.
    pub duplicate: bool,
}

impl Deliveries<'_> {
    /// Queues a text. The caller has checked that the account is the tenant's.
    ///
    /// # Errors
    ///
    /// [`Error::RequestReused`] if the key was used for another text or address. After any other
    /// error the outcome is unknown: repeat the request.
    pub async fn queue_text(
        self,
        tenant: TenantId,
        outbound: &OutboundText,
    ) -> Result<QueuedText, Error> {
        const REQUEST: &str = "
            insert into session.tombstones
                (tenant_id, source, idem_key, hash, session_id, seq, message_id, until)
            values ($1, $2, $3, $4, $5, 0, $6, clock_timestamp() + $7 * interval '1 day')
            on conflict do nothing";
        const STORED_REQUEST: &str = "
            select message_id, hash from session.tombstones
            where tenant_id = $1 and source = $2 and idem_key = $3";

        let length = outbound.idem_key.len();
        if length == 0 || length > MAX_KEY_BYTES {
            return Err(Error::InvalidIdemKey(length));
        }
        // Keys of messages are of the same source without the prefix.
        let source = format!("send:{}", outbound.source.as_text());
        let session = address_id(&outbound.target);
        let hash = request_hash(outbound);
        let delivery = DeliveryId::generate();
        let mut tx = self.pools.tenant(tenant).await?;
        let is_new = holdfast_pg::query(REQUEST)
            .bind(tenant.as_uuid())
            .bind(&source)
            .bind(&outbound.idem_key)
            .bind(&hash)
            .bind(session)
            .bind(delivery.as_uuid())
            .bind(REQUEST_RETENTION_DAYS)
            .execute(tx.conn())
            .await?
            .rows_affected()
            > 0;
        if !is_new {
            let (known, known_hash): (Uuid, Vec<u8>) = holdfast_pg::query_as(STORED_REQUEST)
                .bind(tenant.as_uuid())
                .bind(&source)
                .bind(&outbound.idem_key)
                .fetch_one(tx.conn())
                .await?;
            tx.finish_reading();
            return match known_hash == hash {
                true => Ok(QueuedText { delivery: known.into(), duplicate: true }),
                false => Err(Error::RequestReused(outbound.idem_key.clone())),
            };
        }
        for _ in 0..MAX_ATTEMPTS {
            if insert(&mut tx, (session, delivery), outbound).await? {
                tx.commit().await?;
                return Ok(QueuedText { delivery, duplicate: false });
            }
        }
        Err(Error::Conflict(
            "too many texts are sent to this address at once: repeat it".to_owned(),
        ))
    }
}

/// Stores the delivery; `false` if its position is taken.
async fn insert(
    tx: &mut holdfast_pg::TenantTx,
    (session, delivery): (Uuid, DeliveryId),
    outbound: &OutboundText,
) -> Result<bool, Error> {
    const SQL: &str = "
        insert into session.deliveries
            (tenant_id, session_id, out_seq, delivery_id, run_id, channel, account_id, target, body,
             trace)
        values ($1, $2, (extract(epoch from clock_timestamp()) * 1000000)::bigint, $3, $4, $5, $6,
                $7, $8, $9)
        on conflict do nothing";
    let tenant = tx.tenant();
    let stored = holdfast_pg::query(SQL)
        .bind(tenant.as_uuid())
        .bind(session)
        .bind(delivery.as_uuid())
        .bind(RunId::from(delivery.as_uuid()).as_uuid())
        .bind(&outbound.target.channel)
        .bind(outbound.target.account.as_uuid())
        .bind(Json(&outbound.target))
        .bind(&outbound.text)
        .bind(&outbound.trace)
        .execute(tx.conn())
        .await?;
    Ok(stored.rows_affected() > 0)
}

/// Id that the deliveries to one address have in place of a session's.
fn address_id(target: &Target) -> Uuid {
    let digest = digest([
        "address",
        &target.account.to_string(),
        &target.chat,
        target.thread.as_deref().unwrap_or_default(),
    ]);
    let mut bytes = [0_u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_bytes(bytes).with_version(uuid::Version::Custom).into_uuid()
}

fn request_hash(outbound: &OutboundText) -> Vec<u8> {
    let target = serde_json::to_string(&outbound.target).unwrap_or_default();
    digest([&target, &outbound.text])
}

fn digest<const N: usize>(parts: [&str; N]) -> Vec<u8> {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().to_vec()
}
