//! The service `Credentials`: the keys of a provider that has several.

use holdfast_directory::{CredentialKind, CredentialSummary, NewCredential, TokenEndpoint};
use holdfast_proto::gateway::v1::{
    self as pb, DeleteCredentialRequest, DeleteCredentialResponse, EnableCredentialRequest,
    EnableCredentialResponse, ListCredentialsRequest, ListCredentialsResponse,
    OrderCredentialsRequest, OrderCredentialsResponse, PutCredentialRequest, PutCredentialResponse,
    credentials_server::Credentials as Service,
};
use jiff::Timestamp;
use tonic::{Request, Response, Status};

use super::{State, actor, check_address, invalid, non_empty, required, timestamp};
use crate::{Error, audit};

/// Implements `holdfast.gateway.v1.Credentials`.
#[derive(Debug)]
pub struct Credentials(pub State);

#[tonic::async_trait]
impl Service for Credentials {
    async fn list_credentials(
        &self,
        request: Request<ListCredentialsRequest>,
    ) -> Result<Response<ListCredentialsResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let cards =
            self.0.directory.credentials().list(caller.tenant).await.map_err(Error::from)?;

        let now = Timestamp::now();
        let credentials = cards.into_iter().map(|card| credential_of(card, now)).collect();
        Ok(Response::new(ListCredentialsResponse { credentials }))
    }

    async fn put_credential(
        &self,
        request: Request<PutCredentialRequest>,
    ) -> Result<Response<PutCredentialResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let credential = required("credential", request.credential)?;
        check_address(&self.0.egress, &credential.token_url)?;
        let new = NewCredential {
            provider: credential.provider,
            name: credential.name,
            kind: CredentialKind::parse(&credential.kind).map_err(Error::from)?,
            secret: request.secret.into(),
            refresh: non_empty(request.refresh).map(Into::into),
            expires: credential.expires_at.map(moment).transpose()?,
            renewed_at: TokenEndpoint {
                token_url: credential.token_url,
                client_id: credential.client_id,
                client_secret: non_empty(request.client_secret).map(Into::into),
            },
        };

        let put = self.0.directory.credentials().put(caller.tenant, actor(&caller), &new).await;

        put.map_err(Error::from)?;
        Ok(Response::new(PutCredentialResponse {}))
    }

    async fn delete_credential(
        &self,
        request: Request<DeleteCredentialRequest>,
    ) -> Result<Response<DeleteCredentialResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let (directory, by) = (&self.0.directory, actor(&caller));

        let deleted = directory
            .credentials()
            .delete(caller.tenant, by, &request.provider, &request.name)
            .await;

        deleted.map_err(Error::from)?;
        Ok(Response::new(DeleteCredentialResponse {}))
    }

    async fn order_credentials(
        &self,
        request: Request<OrderCredentialsRequest>,
    ) -> Result<Response<OrderCredentialsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.provider);
        let (directory, by) = (&self.0.directory, actor(&caller));
        let order = (request.names.as_slice(), request.strict);

        let ordered =
            directory.credentials().set_order(caller.tenant, by, &request.provider, order).await;

        ordered.map_err(Error::from)?;
        Ok(Response::new(OrderCredentialsResponse {}))
    }

    async fn enable_credential(
        &self,
        request: Request<EnableCredentialRequest>,
    ) -> Result<Response<EnableCredentialResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let (directory, by) = (&self.0.directory, actor(&caller));

        let enabled = directory
            .credentials()
            .enable(caller.tenant, by, &request.provider, &request.name)
            .await;

        enabled.map_err(Error::from)?;
        Ok(Response::new(EnableCredentialResponse {}))
    }
}

fn credential_of(card: CredentialSummary, now: Timestamp) -> pb::Credential {
    let stats = &card.stats;
    let until = |at: Option<i64>| {
        at.and_then(|at| Timestamp::from_millisecond(at).ok()).filter(|until| now < *until)
    };
    let (state, until) = match (until(stats.disabled_until), until(stats.cooldown_until)) {
        _ if card.trouble.is_some() => ("needs_person", None),
        // A token that is renewed automatically is not shown as expired.
        _ if card.renewed_at.is_none() && card.expires.is_some_and(|end| end <= now) => {
            ("expired", None)
        }
        (Some(until), _) => ("disabled", Some(until)),
        (None, Some(until)) => ("cooling", Some(until)),
        (None, None) => ("ready", None),
    };
    let failures = stats.failure_counts.iter();
    let (token_url, client_id) = card.renewed_at.unwrap_or_default();
    pb::Credential {
        failures: failures.map(|(why, count)| format!("{}={count}", why.as_str())).collect(),
        provider: card.provider,
        name: card.name,
        kind: card.kind.as_str().to_owned(),
        expires_at: card.expires.map(timestamp),
        state: state.to_owned(),
        until: until.map(timestamp),
        place: u32::try_from(card.place).unwrap_or_default(),
        strict: card.strict,
        token_url,
        client_id,
        trouble: card.trouble.unwrap_or_default(),
    }
}

fn moment(at: prost_types::Timestamp) -> Result<Timestamp, Error> {
    Timestamp::new(at.seconds, at.nanos)
        .map_err(|_| invalid("`expires_at` is no moment: write seconds since 1970".to_owned()))
}

#[cfg(test)]
mod tests {
    use holdfast_llm::{Reason, credentials::Stats};

    use super::*;

    fn card(stats: Stats, expires: Option<Timestamp>) -> CredentialSummary {
        CredentialSummary {
            provider: "openai".into(),
            name: "work".into(),
            kind: CredentialKind::Token,
            expires,
            stats,
            place: 2,
            strict: true,
            renewed_at: None,
            trouble: None,
        }
    }

    #[test]
    fn a_key_is_ready_cooling_disabled_or_expired() {
        let now = Timestamp::from_second(1_000).unwrap();
        let failed = |reason| Stats::default().after_failure(reason, 1_000_000);
        let shown = |stats, expires| credential_of(card(stats, expires), now);

        let ready = shown(Stats::default(), None);
        let cooling = shown(failed(Reason::Auth), None);
        let disabled = shown(failed(Reason::Billing), None);

        assert_eq!((ready.state.as_str(), ready.place, ready.strict), ("ready", 2, true));
        assert_eq!((cooling.state.as_str(), cooling.until.unwrap().seconds), ("cooling", 1_060));
        assert_eq!(cooling.failures, ["auth=1"]);
        assert_eq!(
            (disabled.state.as_str(), disabled.until.unwrap().seconds),
            ("disabled", 19_000)
        );
        assert_eq!(shown(failed(Reason::Auth), Some(now)).state, "expired");
    }

    #[test]
    fn a_token_that_renews_itself_is_ready_until_a_person_is_needed() {
        let now = Timestamp::from_second(1_000).unwrap();
        let renewed = CredentialSummary {
            renewed_at: Some(("https://a/token".into(), "c".into())),
            ..card(Stats::default(), Some(now))
        };
        let refused =
            CredentialSummary { trouble: Some("invalid_grant".into()), ..renewed.clone() };

        let shown = credential_of(renewed, now);
        assert_eq!((shown.state.as_str(), shown.token_url.as_str()), ("ready", "https://a/token"));
        let shown = credential_of(refused, now);
        assert_eq!(
            (shown.state.as_str(), shown.trouble.as_str()),
            ("needs_person", "invalid_grant")
        );
    }
}
