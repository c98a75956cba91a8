//! Fake gateway that accepts each message once, or refuses as configured.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

use holdfast_grpc::{CONTEXT_HEADER, CallTarget, Signer};
use holdfast_proto::gateway::v1::{
    AcceptRequest, AcceptResponse,
    ingest_server::{Ingest, IngestServer},
};
use holdfast_session::Acceptance;
use holdfast_types::TenantId;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, transport::Server};

const ACCEPT: CallTarget<'_> =
    CallTarget { audience: "gateway", method: "/holdfast.gateway.v1.Ingest/Accept" };

pub struct FakeGateway {
    pub url: String,
    state: Arc<State>,
    _stop: DropGuard,
}

struct State {
    signer: Signer,
    taken: Mutex<Vec<(TenantId, AcceptRequest)>>,
    keys: Mutex<HashMap<(String, String), i64>>,
    refusal: Mutex<Option<Status>>,
    calls: Mutex<usize>,
    /// Ids of the message and the session that the next answers have.
    ids: Mutex<(String, String)>,
}

impl FakeGateway {
    pub async fn start(secret: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mesh = holdfast_kit::config::Mesh {
            secret: secret.into(),
            ..holdfast_kit::config::Mesh::default()
        };
        let state = Arc::new(State {
            signer: Signer::new(&mesh).unwrap(),
            taken: Mutex::default(),
            keys: Mutex::default(),
            refusal: Mutex::default(),
            calls: Mutex::default(),
            ids: Mutex::new(("msg_1".to_owned(), "ses_1".to_owned())),
        });
        let stop = CancellationToken::new();
        let serving = Server::builder()
            .add_service(IngestServer::from_arc(Arc::new(Door(Arc::clone(&state)))))
            .serve_with_incoming_shutdown(
                TcpListenerStream::new(listener),
                stop.clone().cancelled_owned(),
            );
        tokio::spawn(serving);
        Self { url, state, _stop: stop.drop_guard() }
    }

    /// Refuses every message with this status from now on; `None` accepts them again.
    pub fn refuse(&self, status: Option<Status>) {
        *self.state.refusal.lock().unwrap() = status;
    }

    /// Answers the next messages as if they were this one.
    pub fn accept_as(&self, accepted: &Acceptance) {
        *self.state.ids.lock().unwrap() =
            (accepted.message.to_string(), accepted.session.to_string());
    }

    /// Accepted messages, each once, in order.
    pub fn taken(&self) -> Vec<AcceptRequest> {
        let taken = self.state.taken.lock().unwrap();
        taken.iter().map(|(_, request)| request.clone()).collect()
    }

    pub fn texts(&self) -> Vec<String> {
        self.taken().into_iter().map(|request| request.text).collect()
    }

    pub fn tenants(&self) -> Vec<TenantId> {
        self.state.taken.lock().unwrap().iter().map(|(tenant, _)| *tenant).collect()
    }

    /// Number of calls, whatever their result.
    pub fn calls(&self) -> usize {
        *self.state.calls.lock().unwrap()
    }
}

struct Door(Arc<State>);

#[tonic::async_trait]
impl Ingest for Door {
    async fn accept(
        &self,
        request: Request<AcceptRequest>,
    ) -> Result<Response<AcceptResponse>, Status> {
        *self.0.calls.lock().unwrap() += 1;
        let context = request.metadata().get(CONTEXT_HEADER).and_then(|value| value.to_str().ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (tenant, service) = self
            .0
            .signer
            .verify(context.unwrap_or_default(), ACCEPT, now)
            .map_err(|error| Status::unauthenticated(error.to_string()))?;
        assert_eq!(service, "channel-bridge");
        if let Some(status) = self.0.refusal.lock().unwrap().clone() {
            return Err(status);
        }
        let request = request.into_inner();
        let key = (request.account_id.clone(), request.idempotency_key.clone());
        let mut keys = self.0.keys.lock().unwrap();
        let next = i64::try_from(keys.len()).unwrap() + 1;
        let seq = *keys.entry(key).or_insert(next);
        let duplicate = seq != next;
        if !duplicate {
            self.0.taken.lock().unwrap().push((tenant, request));
        }
        let (message_id, session_id) = self.0.ids.lock().unwrap().clone();
        Ok(Response::new(AcceptResponse {
            message_id,
            session_id,
            seq,
            duplicate,
            agent: "main".into(),
        }))
    }
}
