//! The service `Channels`: a tenant's channel accounts.

use holdfast_directory::{Account, NewAccount};
use holdfast_proto::gateway::v1::{
    self as pb, CreateAccountRequest, CreateAccountResponse, DeleteAccountRequest,
    DeleteAccountResponse, ListAccountsRequest, ListAccountsResponse, UpdateAccountRequest,
    UpdateAccountResponse, channels_server::Channels as Service,
};
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use super::{State, actor, invalid, non_empty, required, timestamp};
use crate::{Error, audit};

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

        let accounts = self.0.directory.accounts().list(caller.tenant, channel.as_deref()).await;

        let accounts = accounts.map_err(Error::from)?.into_iter().map(account_of).collect();
        Ok(Response::new(ListAccountsResponse { accounts }))
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
        settings: account.settings.to_string(),
        created_at: Some(timestamp(account.created_at)),
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
