//! The service `EventWebhooks`: the settings of webhooks, their dead letters, replay. Runners send
//! the events.

use holdfast_directory::{EventWebhook, NewEventWebhook};
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, CreateEventWebhookRequest, CreateEventWebhookResponse, DeleteEventWebhookRequest,
    DeleteEventWebhookResponse, ListEventDeadLettersRequest, ListEventDeadLettersResponse,
    ListEventWebhooksRequest, ListEventWebhooksResponse, ReplayEventsRequest, ReplayEventsResponse,
    RotateEventWebhookSecretRequest, RotateEventWebhookSecretResponse, UpdateEventWebhookRequest,
    UpdateEventWebhookResponse, event_webhooks_server::EventWebhooks as Service,
    replay_events_request::What,
};
use holdfast_session::{EventCursor, WebhookKey};
use holdfast_types::TenantId;
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status};

use super::convert::{filter, parse_cursor, shown};
use crate::{
    Error,
    control::{State, actor, check_address, page_size, require_text, required, timestamp},
    permissions::{Permission, require},
};

/// Maximum number of dead letters of an answer.
const MAX_DEAD_LETTERS: u32 = 500;

/// Implements `holdfast.gateway.v1.EventWebhooks`.
#[derive(Debug)]
pub struct EventWebhooks(pub State);

#[tonic::async_trait]
impl Service for EventWebhooks {
    async fn list_event_webhooks(
        &self,
        request: Request<ListEventWebhooksRequest>,
    ) -> Result<Response<ListEventWebhooksResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let webhooks = self.0.directory.event_webhooks().list(caller.tenant).await;

        let mut answer = ListEventWebhooksResponse::default();
        for webhook in webhooks.map_err(Error::from)? {
            answer.webhooks.push(self.view(caller.tenant, webhook).await?);
        }
        Ok(Response::new(answer))
    }

    async fn create_event_webhook(
        &self,
        request: Request<CreateEventWebhookRequest>,
    ) -> Result<Response<CreateEventWebhookResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let tenant = caller.tenant;
        let (new, _) = self.settings(&caller, request.webhook).await?;

        let log = self.0.sessions.event_log();
        let bounds = log.bounds(tenant).await.map_err(Error::from)?;
        let webhooks = self.0.directory.event_webhooks();
        let (webhook, secret) =
            webhooks.create(tenant, actor(&caller), new).await.map_err(Error::from)?;
        let start = if request.from_earliest { bounds.deleted } else { bounds.newest };
        let key = WebhookKey { tenant, webhook: webhook.id };
        log.start_webhook(key, start).await.map_err(Error::from)?;

        Ok(Response::new(CreateEventWebhookResponse {
            webhook: Some(self.view(tenant, webhook).await?),
            secret: secret.expose_secret().to_owned(),
        }))
    }

    async fn update_event_webhook(
        &self,
        request: Request<UpdateEventWebhookRequest>,
    ) -> Result<Response<UpdateEventWebhookResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let tenant = caller.tenant;
        let webhooks = self.0.directory.event_webhooks();
        let old = webhooks.get(tenant, &request.name).await.map_err(Error::from)?;
        let settings = self.settings(&caller, request.webhook).await?;

        let updated = webhooks.update(tenant, actor(&caller), &request.name, settings).await;
        let updated = updated.map_err(Error::from)?;
        if updated.is_active && !old.is_active {
            let key = WebhookKey { tenant, webhook: old.id };
            self.0.sessions.event_log().resume_webhook(key).await.map_err(Error::from)?;
        }

        let webhook = Some(self.view(tenant, updated).await?);
        Ok(Response::new(UpdateEventWebhookResponse { webhook }))
    }

    async fn delete_event_webhook(
        &self,
        request: Request<DeleteEventWebhookRequest>,
    ) -> Result<Response<DeleteEventWebhookResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let tenant = caller.tenant;

        let webhooks = self.0.directory.event_webhooks();
        let webhook =
            webhooks.delete(tenant, actor(&caller), &request.name).await.map_err(Error::from)?;
        let key = WebhookKey { tenant, webhook };
        self.0.sessions.event_log().forget_webhook(key).await.map_err(Error::from)?;

        Ok(Response::new(DeleteEventWebhookResponse {}))
    }

    async fn rotate_event_webhook_secret(
        &self,
        request: Request<RotateEventWebhookSecretRequest>,
    ) -> Result<Response<RotateEventWebhookSecretResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;

        let webhooks = self.0.directory.event_webhooks();
        let secret = webhooks.rotate(caller.tenant, actor(&caller), &request.name).await;

        let secret = secret.map_err(Error::from)?.expose_secret().to_owned();
        Ok(Response::new(RotateEventWebhookSecretResponse { secret }))
    }

    async fn list_event_dead_letters(
        &self,
        request: Request<ListEventDeadLettersRequest>,
    ) -> Result<Response<ListEventDeadLettersResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let limit = page_size(request.limit, 100, MAX_DEAD_LETTERS)?;
        let key = self.key(caller.tenant, &request.webhook).await?;

        let dead = self.0.sessions.event_log().dead_events(key, limit).await;

        let letter = |held: holdfast_session::HeldEvent| pb::EventDeadLetter {
            attempts: u32::try_from(held.attempts).unwrap_or_default(),
            reason: held.reason,
            dead_at: held.dead_at.map(timestamp),
            event: Some(shown(held.logged, None)),
        };
        let dead_letters = dead.map_err(Error::from)?.into_iter().map(letter).collect();
        Ok(Response::new(ListEventDeadLettersResponse { dead_letters }))
    }

    async fn replay_events(
        &self,
        request: Request<ReplayEventsRequest>,
    ) -> Result<Response<ReplayEventsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let key = self.key(caller.tenant, &request.webhook).await?;
        let what = required("what", request.what)?;

        let log = self.0.sessions.event_log();
        let dead_letters = match what {
            What::AfterCursor(cursor) => {
                let EventCursor(position) = parse_cursor("after_cursor", &cursor)?;
                let bounds = log.bounds(caller.tenant).await.map_err(Error::from)?;
                if position < bounds.deleted || position > bounds.newest {
                    return Err(Error::CursorOutOfRange.into());
                }
                log.start_webhook(key, position).await.map_err(Error::from)?;
                0
            }
            What::DeadLetter(id) => {
                let EventCursor(position) = parse_cursor("dead_letter", &id)?;
                let revived = log.revive_dead(key, Some(position)).await.map_err(Error::from)?;
                if revived == 0 {
                    let missing =
                        holdfast_session::Error::NotFound { what: "dead letter", name: id };
                    return Err(Error::from(missing).into());
                }
                revived
            }
            What::AllDeadLetters(true) => log.revive_dead(key, None).await.map_err(Error::from)?,
            What::AllDeadLetters(false) => return Err(Error::MissingField("what").into()),
        };
        Ok(Response::new(ReplayEventsResponse { dead_letters }))
    }
}

impl EventWebhooks {
    async fn key(&self, tenant: TenantId, name: &str) -> Result<WebhookKey, Error> {
        let webhook = self.0.directory.event_webhooks().get(tenant, name).await?;
        Ok(WebhookKey { tenant, webhook: webhook.id })
    }

    /// Checks the settings that a caller wants. Returns them, and whether events are to be sent.
    async fn settings(
        &self,
        caller: &Caller,
        wanted: Option<pb::EventWebhook>,
    ) -> Result<(NewEventWebhook, bool), Error> {
        let wanted = required("webhook", wanted)?;
        if wanted.include_content {
            require(caller, Permission::Read)?;
        }
        require_text("url", &wanted.url)?;
        check_address(&self.0.egress, &wanted.url)?;
        let filter = filter(&self.0, caller, wanted.filter.unwrap_or_default()).await?;
        let settings = NewEventWebhook {
            name: wanted.name,
            url: wanted.url,
            types: filter.types,
            agent: filter.agent,
            session: filter.session,
            channel: filter.channel,
            include_content: wanted.include_content,
        };
        Ok((settings, !wanted.disabled))
    }

    async fn view(
        &self,
        tenant: TenantId,
        webhook: EventWebhook,
    ) -> Result<pb::EventWebhook, Error> {
        let key = WebhookKey { tenant, webhook: webhook.id };
        let progress = self.0.sessions.event_log().webhook_progress(key).await?.unwrap_or_default();
        let settings = webhook.settings;
        Ok(pb::EventWebhook {
            name: settings.name,
            url: settings.url,
            filter: Some(pb::EventFilter {
                types: settings.types,
                agent: settings.agent.map(|agent| agent.to_string()).unwrap_or_default(),
                session: settings.session.map(|session| session.to_string()).unwrap_or_default(),
                channel: settings.channel.unwrap_or_default(),
            }),
            include_content: settings.include_content,
            disabled: !webhook.is_active,
            reason: webhook.reason,
            failures: u32::try_from(progress.failures).unwrap_or_default(),
            last_error: progress.last_error,
            cursor: EventCursor(progress.position).to_string(),
            succeeded_at: progress.succeeded_at.map(timestamp),
            created_at: Some(timestamp(webhook.created_at)),
        })
    }
}
