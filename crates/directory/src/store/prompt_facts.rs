//! Facts of a tenant that its agents' prompts need, from several tables in one query.

use std::collections::BTreeMap;

use holdfast_llm::servers::WHISPER;
use holdfast_pg::TenantTx;
use holdfast_types::AccountId;
use serde::Deserialize;
use serde_json::Value;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{ELEVENLABS, Product, SEARCH_PROVIDERS, channel::supported_actions};

#[derive(Debug, Default)]
pub(crate) struct PromptFacts {
    pub(crate) product: Product,
    /// Actions that each channel account supports.
    pub(crate) actions: BTreeMap<AccountId, &'static [&'static str]>,
    /// Whether a provider with a key offers speech.
    pub(crate) has_speech: bool,
    /// Whether a search provider has a key.
    pub(crate) has_search: bool,
}

#[derive(sqlx::FromRow)]
struct Row {
    product: Option<Json<Product>>,
    accounts: Option<Json<BTreeMap<Uuid, AccountRow>>>,
    has_speech: bool,
    has_search: bool,
}

#[derive(Deserialize)]
struct AccountRow {
    channel: String,
    settings: Value,
}

pub(crate) async fn get(tx: &mut TenantTx) -> sqlx::Result<PromptFacts> {
    const SQL: &str = "
        select (select product from control.tenants where tenant_id = $1) as product,
               (select jsonb_object_agg(account_id, jsonb_build_object(
                    'channel', channel,
                    'settings', jsonb_build_object('actions', settings->'actions')))
                from control.accounts where tenant_id = $1) as accounts,
               exists (
                    select from control.providers
                    where tenant_id = $1 and api_key is not null
                      and (name = $2 or (kind in ('openai', 'openai-responses')
                                         and name <> all ($3) and name <> $4))) as has_speech,
               exists (
                    select from control.providers
                    where tenant_id = $1 and api_key is not null and name = any ($3)) as has_search";
    let tenant = tx.tenant().as_uuid();
    let search = SEARCH_PROVIDERS.map(str::to_owned);
    let asked = holdfast_pg::query_as(SQL).bind(tenant).bind(ELEVENLABS).bind(search);
    let row: Row = asked.bind(WHISPER).fetch_one(tx.conn()).await?;
    let accounts = row.accounts.map(|accounts| accounts.0).unwrap_or_default();
    let actions = |(id, account): (Uuid, AccountRow)| {
        (AccountId::from(id), supported_actions(&account.channel, &account.settings))
    };
    Ok(PromptFacts {
        product: row.product.map(|product| product.0).unwrap_or_default(),
        actions: accounts.into_iter().map(actions).collect(),
        has_speech: row.has_speech,
        has_search: row.has_search,
    })
}
