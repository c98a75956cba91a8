//! Tests of the handlers, with a real Postgres.

mod of_models;
mod what_comes_back;
mod who_may;

use std::{sync::Arc, time::Duration};

use holdfast_bus::Bus;
use holdfast_directory::{Actor, Directory};
use holdfast_egress::Guard;
use holdfast_grpc::{Caller, Principal, Scope, Scopes};
use holdfast_kit::config::Secrets;
use holdfast_pg::Pools;
use holdfast_proposals::Proposals;
use holdfast_rollback::StepRollback;
use holdfast_schedule::store::{Calendar, Jobs};
use holdfast_session::{Acceptance, NewMessage, Sessions};
use holdfast_skills::SkillLibrary;
use holdfast_testkit::Database;
use holdfast_types::{Body, DmScope, GroupScope, KeyId, QueueMode, Source, TenantId};
use holdfast_work::Work;
use holdfast_workspace::Workspaces;
use tonic::{Code, Request, Response, Status};
use uuid::Uuid;

use super::{State, page_size, parse_word, parse_word_or_default, timestamp, word_of};

struct World {
    state: State,
    database: Database,
}

impl World {
    async fn new() -> Self {
        let database = Database::create_from(&holdfast_pg::fingerprint(), async |url| {
            holdfast_pg::migrate(&url).await?;
            Ok(())
        })
        .await
        .unwrap();
        let url = database.service_url("gateway").into();
        let config = holdfast_pg::Config { url, ..Default::default() };
        let pools = Pools::lazy(&config, "test").unwrap();
        let secrets = Secrets {
            kek: "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=".into(),
            pepper: "pepper of the tests".into(),
            ..Secrets::default()
        };
        let directory = Directory::new(pools.clone(), &secrets).unwrap();
        // No NATS server: notifications are dropped, and all else works.
        let nats = holdfast_bus::Config { url: "nats://127.0.0.1:1".into(), ..Default::default() };
        let bus = Bus::connect(&nats, "test").await.unwrap();
        let workspaces = Workspaces::new(pools.clone());
        let jobs = Jobs::new(pools.clone(), Arc::new(Calendar::default()));
        let library = SkillLibrary::new(workspaces.clone(), Arc::default());
        let work = Work::new(pools.clone());
        let proposals = Proposals::new(pools.clone(), directory.clone(), workspaces.clone());
        let sessions = Sessions::new(pools.clone());
        let rollback = StepRollback::new(pools, sessions.clone(), workspaces.clone(), None);
        let egress = Guard::with_system_resolver([]).unwrap();
        let state = State {
            directory,
            sessions,
            bus,
            workspaces,
            jobs,
            work,
            proposals,
            rollback,
            memory: None,
            library,
            provider_egress: egress.clone(),
            egress,
            node_command_key: Arc::default(),
        };
        Self { state, database }
    }

    async fn tenant(&self, name: &str) -> TenantId {
        self.state.directory.tenants().create(Actor::Operator, name).await.unwrap().0.id
    }

    async fn say(&self, tenant: TenantId, session: &str) -> Acceptance {
        let agent = self.state.directory.agents().default_agent(tenant).await.unwrap();
        let message = NewMessage {
            key: session.parse().unwrap(),
            agent: agent.id,
            label: None,
            source: Source::Internal("test".into()),
            idem_key: Uuid::now_v7().to_string(),
            body: Body::text("hello"),
            target: None,
            mode: QueueMode::Steer,
            debounce: Duration::ZERO,
            trace: None,
        };
        self.state.sessions.ingest(tenant, message).await.unwrap()
    }
}

fn request<T>(tenant: TenantId, scopes: Scopes, message: T) -> Request<T> {
    let mut request = Request::new(message);
    let principal = Principal::Key(KeyId::generate());
    request.extensions_mut().insert(Caller {
        tenant,
        principal,
        person: None,
        agent: None,
        via: None,
        scopes,
        name: "test".into(),
    });
    request
}

/// All scopes that a tenant's own keys can have.
fn admin<T>(tenant: TenantId, message: T) -> Request<T> {
    request(tenant, [Scope::Chat, Scope::Read, Scope::Admin].into_iter().collect(), message)
}

fn platform<T>(tenant: TenantId, message: T) -> Request<T> {
    request(tenant, Scopes::EMPTY.with(Scope::Platform), message)
}

fn code<T>(answer: Result<Response<T>, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[test]
fn a_word_stands_for_one_value_and_an_empty_one_for_the_default() {
    for scope in
        [DmScope::Main, DmScope::PerPeer, DmScope::PerChannelPeer, DmScope::PerAccountChannelPeer]
    {
        assert_eq!(parse_word::<DmScope>("x", &word_of(&scope), "").unwrap(), scope);
    }
    assert_eq!(word_of(&GroupScope::GroupUser), "group-user");
    assert_eq!(parse_word_or_default::<QueueMode>("x", "", "").unwrap(), QueueMode::Steer);
    let wrong =
        parse_word_or_default::<QueueMode>("queue_mode", "later", "steer or followup").unwrap_err();
    assert_eq!(wrong.to_string(), "`queue_mode` is `later`: write steer or followup");
}

#[test]
fn a_limit_has_a_usual_value_and_a_most() {
    assert_eq!(page_size(0, 50, 200).unwrap(), 50);
    assert_eq!(page_size(200, 50, 200).unwrap(), 200);
    assert!(page_size(201, 50, 200).is_err());
}

#[test]
fn a_moment_is_written_in_seconds_and_nanoseconds() {
    let at: jiff::Timestamp = "2026-01-02T03:04:05.006Z".parse().unwrap();

    let written = timestamp(at);

    assert_eq!((written.seconds, written.nanos), (1_767_323_045, 6_000_000));
}
