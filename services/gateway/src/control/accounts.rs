//! The service `Channels`: a tenant's channel accounts.

use std::time::Duration;

use holdfast_directory::{Account, NewAccount, ReportedStatus, channel};
use holdfast_grpc::Caller;
use holdfast_kit::trace;
use holdfast_proto::gateway::v1::{
    self as pb, CheckAccountRequest, CheckAccountResponse, CreateAccountRequest,
    CreateAccountResponse, DeleteAccountRequest, DeleteAccountResponse, ListAccountsRequest,
    ListAccountsResponse, ListChannelKindsRequest, ListChannelKindsResponse, SendTextRequest,
    SendTextResponse, UpdateAccountRequest, UpdateAccountResponse,
    channels_server::Channels as Service,
};
use holdfast_session::OutboundText;
use holdfast_types::{AccountId, DeliveryId, Target};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tonic::{Request, Response, Status};

use super::{State, actor, invalid, non_empty, required, timestamp};
use crate::{Error, audit, ingest};

/// Implements `holdfast.gateway.v1.Channels`.
#[derive(Debug)]
pub struct Channels(pub State);

#[tonic::async_trait]
impl Service for Channels {
    async fn list_accounts(
        &self,
        request: Request<ListAccountsRequest>,
    ) -> Result<Response<ListAccountsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let channel = non_empty(request.channel.trim().to_lowercase());

        let directory = self.0.directory.accounts();
        let accounts = directory.list(caller.tenant, channel.as_deref()).await;
        let accounts = accounts.map_err(Error::from)?;
        let statuses = directory.statuses(caller.tenant).await.map_err(Error::from)?;

        let with_status = |account: Account| {
            let status = statuses.iter().find(|status| status.account == account.id);
            pb::Account { status: status.map(status_of), ..account_of(account) }
        };
        let accounts = accounts.into_iter().map(with_status).collect();
        Ok(Response::new(ListAccountsResponse { accounts }))
    }

    async fn list_channel_kinds(
        &self,
        request: Request<ListChannelKindsRequest>,
    ) -> Result<Response<ListChannelKindsResponse>, Status> {
        let (_, ListChannelKindsRequest {}) = holdfast_grpc::caller(request)?;

        let kinds = channel::CHANNELS.iter().map(|kind| kind_of(kind)).collect();
        Ok(Response::new(ListChannelKindsResponse { kinds }))
    }

    async fn check_account(
        &self,
        request: Request<CheckAccountRequest>,
    ) -> Result<Response<CheckAccountResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = request.id.parse().map_err(Error::from)?;

        let (account, status) = check(&self.0, &caller, id).await?;

        let account = pb::Account { status: Some(status_of(&status)), ..account_of(account) };
        Ok(Response::new(CheckAccountResponse { account: Some(account) }))
    }

    async fn create_account(
        &self,
        request: Request<CreateAccountRequest>,
    ) -> Result<Response<CreateAccountResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let new = new_account(required("account", request.account)?, &request.secrets)?;

        let account = self.0.directory.accounts().create(caller.tenant, actor(&caller), new).await;

        let account = Some(account_of(account.map_err(Error::from)?));
        Ok(Response::new(CreateAccountResponse { account }))
    }

    async fn update_account(
        &self,
        request: Request<UpdateAccountRequest>,
    ) -> Result<Response<UpdateAccountResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let account = required("account", request.account)?;
        let id = account.id.parse().map_err(Error::from)?;
        let new = new_account(account, &request.secrets)?;

        let by = actor(&caller);
        let account = self.0.directory.accounts().update(caller.tenant, by, id, new).await;

        let account = Some(account_of(account.map_err(Error::from)?));
        Ok(Response::new(UpdateAccountResponse { account }))
    }

    async fn delete_account(
        &self,
        request: Request<DeleteAccountRequest>,
    ) -> Result<Response<DeleteAccountResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.id);
        let id = request.id.parse().map_err(Error::from)?;

        let deleted = self.0.directory.accounts().delete(caller.tenant, actor(&caller), id).await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteAccountResponse {}))
    }

    async fn send_text(
        &self,
        request: Request<SendTextRequest>,
    ) -> Result<Response<SendTextResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let account = find_account(&self.0, &caller, &request).await?;
        audit::set_target(account.id.to_string());
        let outbound = outbound_text(&caller, &account, request)?;

        let queued = self.0.sessions.deliveries().queue_text(caller.tenant, &outbound).await;
        let queued = queued.map_err(Error::from)?;
        self.0.bus.wake_deliver(&account.channel);

        let (delivery_id, duplicate) = (queued.delivery.to_string(), queued.duplicate);
        Ok(Response::new(SendTextResponse { delivery_id, duplicate }))
    }
}

/// State of an account whose platform has not answered yet.
const CONNECTING: &str = "connecting";

/// Time in which a bridge connects an account anew and reports, and the interval of looking.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);
const CHECK_INTERVAL: Duration = Duration::from_millis(300);

/// Stores an account as it is: bridges connect a changed account anew. Returns what they report.
async fn check(
    state: &State,
    caller: &Caller,
    id: AccountId,
) -> Result<(Account, ReportedStatus), Status> {
    let accounts = state.directory.accounts();
    let tenant = caller.tenant;
    let status = async || {
        let all = accounts.statuses(tenant).await.map_err(Error::from)?;
        Ok::<_, Error>(all.into_iter().find(|status| status.account == id))
    };
    let listed = accounts.list(tenant, None).await.map_err(Error::from)?;
    let missing =
        || holdfast_directory::Error::NotFound { what: "channel account", name: id.to_string() };
    let account = listed.into_iter().find(|account| account.id == id);
    let account = account.ok_or_else(missing).map_err(Error::from)?;
    if !account.enabled {
        let told = format!("the account `{}` is disabled: enable it first", account.name);
        return Err(invalid(told).into());
    }
    let before = status().await?.map(|status| status.checked_at);
    let same = NewAccount {
        channel: account.channel.clone(),
        name: account.name.clone(),
        enabled: true,
        settings: account.settings.clone(),
        secrets: None,
    };
    let account = accounts.update(tenant, actor(caller), id, same).await.map_err(Error::from)?;

    let until = Instant::now() + CHECK_TIMEOUT;
    let mut reported = None;
    while Instant::now() < until {
        sleep(CHECK_INTERVAL).await;
        let now = status().await?.filter(|status| Some(status.checked_at) != before);
        if let Some(now) = now {
            if now.state != CONNECTING {
                return Ok((account, now));
            }
            reported = Some(now);
        }
    }
    let silent = || Status::failed_precondition("no bridge has reported: see that one runs");
    reported.map(|reported| (account, reported)).ok_or_else(silent)
}

fn kind_of(kind: &channel::ChannelKind) -> pb::ChannelKind {
    let secret = |name: &&str| pb::ChannelSecret {
        name: (*name).to_owned(),
        required: kind.required_secrets.contains(name),
    };
    let actions = channel::supported_actions(kind.name, &json!({}));
    pb::ChannelKind {
        name: kind.name.to_owned(),
        settings_schema: kind.settings_schema().to_string(),
        secrets: kind.secrets().iter().map(secret).collect(),
        actions: actions.iter().map(|action| (*action).to_owned()).collect(),
    }
}

/// Maximum length of an address and of a thread, in bytes.
const MAX_ADDRESS_BYTES: usize = 256;

/// Maximum length of a text, in bytes. A long one is delivered in several messages.
const MAX_TEXT_BYTES: usize = 64 * 1024;

/// Returns the account that sends a text.
async fn find_account(
    state: &State,
    caller: &Caller,
    request: &SendTextRequest,
) -> Result<Account, Error> {
    let channel = request.channel.trim().to_lowercase();
    let name = non_empty(request.account.trim().to_owned());
    let name = name.unwrap_or_else(|| "default".to_owned());
    let accounts = state.directory.accounts().list(caller.tenant, Some(&channel)).await?;
    let found = accounts.into_iter().find(|account| account.name == name);
    let account = found.ok_or_else(|| {
        let shown: String = format!("{channel}/{name}").chars().take(80).collect();
        holdfast_directory::Error::NotFound { what: "channel account", name: shown }
    })?;
    match account.enabled {
        true => Ok(account),
        false => Err(invalid(format!("the account `{name}` is disabled: enable it first"))),
    }
}

fn outbound_text(
    caller: &Caller,
    account: &Account,
    request: SendTextRequest,
) -> Result<OutboundText, Error> {
    let SendTextRequest { chat, thread, text, request_id, .. } = request;
    let (chat, thread) = (chat.trim().to_owned(), thread.trim().to_owned());
    if chat.is_empty() {
        return Err(invalid("`chat` is empty: write the platform's id of the chat".to_owned()));
    }
    let is_address =
        |text: &str| text.len() <= MAX_ADDRESS_BYTES && !text.contains(|c: char| c.is_control());
    if !is_address(&chat) || !is_address(&thread) {
        return Err(invalid(format!(
            "`chat` and `thread` have {MAX_ADDRESS_BYTES} bytes at most, in one line"
        )));
    }
    if text.trim().is_empty() {
        return Err(invalid("`text` is empty: write what is to be sent".to_owned()));
    }
    if text.len() > MAX_TEXT_BYTES || text.contains('\0') {
        return Err(invalid(format!(
            "`text` has {MAX_TEXT_BYTES} bytes at most, without NUL: shorten it"
        )));
    }
    let target = Target {
        channel: account.channel.clone(),
        account: account.id,
        chat,
        thread: non_empty(thread),
        reply_to: None,
    };
    let idem_key = non_empty(request_id).unwrap_or_else(|| DeliveryId::generate().to_string());
    let source = ingest::source(caller);
    Ok(OutboundText { source, idem_key, target, text, trace: trace::current() })
}

fn new_account(account: pb::Account, secrets: &str) -> Result<NewAccount, Error> {
    Ok(NewAccount {
        channel: account.channel,
        name: account.name,
        enabled: account.enabled,
        settings: parse_json("settings", &account.settings)?.unwrap_or_else(|| json!({})),
        secrets: parse_json("secrets", secrets)?,
    })
}

/// Parses JSON; `None` for an empty text. The error does not repeat the text, which may hold
/// secrets.
fn parse_json(field: &'static str, text: &str) -> Result<Option<Value>, Error> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let value = serde_json::from_str(text).map_err(|error| {
        invalid(format!(
            "`{field}` is no JSON (line {}, column {}): write an object, {{…}}",
            error.line(),
            error.column()
        ))
    })?;
    Ok(Some(value))
}

fn account_of(account: Account) -> pb::Account {
    pb::Account {
        id: account.id.to_string(),
        channel: account.channel,
        name: account.name,
        enabled: account.enabled,
        settings: channel::concealed(&account.settings).to_string(),
        created_at: Some(timestamp(account.created_at)),
        status: None,
    }
}

fn status_of(status: &ReportedStatus) -> pb::AccountStatus {
    pb::AccountStatus {
        state: status.state.clone(),
        detail: status.detail.clone(),
        since: Some(timestamp(status.since)),
        checked_at: Some(timestamp(status.checked_at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_secret_is_told_without_it() {
        let told = parse_json("secrets", r#"{"token": hush}"#).unwrap_err().to_string();

        assert_eq!(told, "`secrets` is no JSON (line 1, column 11): write an object, {…}");
        assert_eq!(parse_json("secrets", " ").unwrap(), None);
    }
}
