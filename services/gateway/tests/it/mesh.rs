//! What operators and administrators see of the installation: its processes and backends, and what
//! forms of a console are made of.

use std::time::Duration;

use holdfast_directory::{AccountState, AccountStatus};
use holdfast_proto::gateway::v1::{
    self as pb, agents_client::AgentsClient, channels_client::ChannelsClient,
    mesh_client::MeshClient, schedules_client::SchedulesClient,
};
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use crate::world::{World, message, until};

#[tokio::test]
async fn an_operator_sees_the_processes_and_the_backends_and_nobody_else_does() {
    let world = World::start().await.unwrap();
    let mut client = MeshClient::new(world.channel().await.unwrap());
    let key = world.key(&world.anna, &["platform"], None).await.unwrap();
    let operator = world.anna.by(&key);

    // Processes and backends that do not answer soon are not shown, or as unreachable.
    let mesh = until(async || {
        let asked = client.clone().get_mesh(operator.request(pb::GetMeshRequest {})).await;
        let mesh = asked.unwrap().into_inner();
        let is_whole = !mesh.processes.is_empty() && mesh.backends.iter().all(|one| one.reachable);
        is_whole.then_some(mesh)
    });
    let mesh = mesh.await;

    let gateways = mesh.processes.iter().filter(|one| one.service == "gateway");
    let [gateway] = &gateways.collect::<Vec<_>>()[..] else { panic!("{:?}", mesh.processes) };
    assert_eq!(gateway.version, env!("CARGO_PKG_VERSION"));
    assert!(gateway.started_at.is_some() && !gateway.is_stopping);
    for backend in &mesh.backends {
        assert!(backend.reachable && !backend.version.is_empty(), "{backend:?}");
    }
    let names: Vec<&str> = mesh.backends.iter().map(|backend| backend.name.as_str()).collect();
    assert_eq!(names, ["postgres", "nats", "redis"]);
    let queues: Vec<&str> = mesh.queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(queues, ["sessions", "messages", "deliveries", "jobs"]);
    // The runner of these tests does not report.
    let firing = mesh.alerts.iter().filter(|alert| alert.state == "firing");
    assert_eq!(
        firing.map(|alert| alert.name.as_str()).collect::<Vec<_>>(),
        ["HoldfastRunnersAbsent"]
    );
    let refused = client.get_mesh(world.anna.request(pb::GetMeshRequest {})).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn an_operator_sees_whose_work_waits_longest() {
    let world = World::start().await.unwrap();
    let mut client = MeshClient::new(world.channel().await.unwrap());
    let operator = world.anna.by(&world.key(&world.anna, &["platform"], None).await.unwrap());
    let sent = world.send(&world.ben, message("hold this")).await.unwrap();
    world.until_runs(&world.ben, &sent.session_id).await.unwrap();
    let later = world.send(&world.anna, message("hold this, too")).await.unwrap();

    let mesh = client.get_mesh(operator.request(pb::GetMeshRequest {})).await.unwrap().into_inner();

    let queue = mesh.queues.iter().find(|queue| queue.name == "messages").unwrap();
    assert_eq!((queue.waiting, &*queue.oldest_tenant), (2, "ben"));
    assert_eq!(queue.oldest_session, sent.session_id);
    assert_ne!(queue.oldest_session, later.session_id);
    let idle = mesh.queues.iter().find(|queue| queue.name == "deliveries").unwrap();
    assert_eq!((&*idle.oldest_tenant, &*idle.oldest_session), ("", ""));
    world.runner.release(2);
}

#[tokio::test]
async fn every_template_makes_an_agent() {
    let world = World::start().await.unwrap();
    let mut client = AgentsClient::new(world.channel().await.unwrap());
    let request = world.anna.request(pb::ListAgentTemplatesRequest {});

    let templates = client.list_agent_templates(request).await.unwrap().into_inner().templates;

    assert!(templates.len() >= 3, "{templates:?}");
    for template in templates {
        assert!(!template.title.is_empty() && !template.description.is_empty());
        let request = world.anna.request(pb::CreateAgentRequest { agent: template.agent });
        let made = client.create_agent(request).await.unwrap().into_inner();
        assert_eq!(made.agent.unwrap().name, template.name);
    }
}

#[tokio::test]
async fn a_form_for_each_channel_can_be_made() {
    let world = World::start().await.unwrap();
    let mut client = ChannelsClient::new(world.channel().await.unwrap());
    let request = world.anna.request(pb::ListChannelKindsRequest {});

    let kinds = client.list_channel_kinds(request).await.unwrap().into_inner().kinds;

    assert_eq!(kinds.len(), 9);
    for kind in &kinds {
        let schema: Value = serde_json::from_str(&kind.settings_schema).unwrap();
        assert!(schema["properties"].is_object(), "{}", kind.name);
        assert!(!kind.settings_schema.contains("$ref"), "{}", kind.name);
        assert!(!kind.secrets.is_empty() && kind.actions.contains(&"send".to_owned()));
    }
    let telegram = kinds.iter().find(|kind| kind.name == "telegram").unwrap();
    let schema: Value = serde_json::from_str(&telegram.settings_schema).unwrap();
    assert_eq!(schema["properties"]["allow"]["type"], "array", "{schema}");
    let token = pb::ChannelSecret { name: "token".into(), required: true };
    assert!(telegram.secrets.contains(&token), "{:?}", telegram.secrets);
}

#[tokio::test]
async fn an_account_is_checked_by_a_bridge_that_connects_it_anew() {
    let world = World::start().await.unwrap();
    let mut client = ChannelsClient::new(world.channel().await.unwrap());
    let account = pb::Account {
        channel: "telegram".into(),
        name: "work".into(),
        enabled: true,
        settings: r#"{"allow": ["*"]}"#.into(),
        ..Default::default()
    };
    let (secrets, first) = (r#"{"token": "1:a"}"#.to_owned(), account.clone());
    let request = pb::CreateAccountRequest { account: Some(first), secrets };
    let made = client.create_account(world.anna.request(request)).await.unwrap().into_inner();
    let id = made.account.unwrap().id;
    // A bridge notices the new version, and reports.
    let (directory, tenant) = (world.directory.clone(), world.anna.id);
    let before = directory.accounts().all(&["telegram"]).await.unwrap()[0].version;
    let bridge = AbortOnDropHandle::new(tokio::spawn(async move {
        let version = async || directory.accounts().all(&["telegram"]).await.unwrap()[0].version;
        while version().await == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let id = directory.accounts().all(&["telegram"]).await.unwrap()[0].id;
        for (state, detail) in [(AccountState::Connecting, ""), (AccountState::Failing, "refused")]
        {
            let status = AccountStatus { state, detail: detail.to_owned() };
            directory.accounts().record_status(tenant, id, &status).await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }));
    let request = pb::CheckAccountRequest { id: id.clone() };

    let checked = client.check_account(world.anna.request(request.clone())).await.unwrap();

    let status = checked.into_inner().account.unwrap().status.unwrap();
    assert_eq!((status.state.as_str(), status.detail.as_str()), ("failing", "refused"));
    drop(bridge);
    let off = pb::Account { id: id.clone(), enabled: false, ..account };
    let request_off = pb::UpdateAccountRequest { account: Some(off), secrets: String::new() };
    client.update_account(world.anna.request(request_off)).await.unwrap();
    let refused = client.check_account(world.anna.request(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn the_times_of_all_jobs_are_in_one_calendar() {
    let world = World::start().await.unwrap();
    let mut client = SchedulesClient::new(world.channel().await.unwrap());
    for (name, hour) in [("morning", 9), ("evening", 20)] {
        let job = serde_json::json!({
            "name": name,
            "schedule": {"kind": "cron", "expr": format!("0 {hour} * * *"), "tz": "UTC"},
            "payload": {"kind": "systemEvent", "message": "look"},
        });
        let request = pb::AddJobRequest { job: job.to_string(), ..Default::default() };
        client.add_job(world.anna.request(request)).await.unwrap();
    }
    let now = jiff::Timestamp::now().as_second();
    let at = |days: i64| Some(prost_types::Timestamp { seconds: now + days * 86_400, nanos: 0 });
    let range = pb::ListCalendarRequest { from: at(1), until: at(3), ..Default::default() };

    let listed =
        client.list_calendar(world.anna.request(range.clone())).await.unwrap().into_inner();

    assert_eq!(listed.entries.len(), 4, "{:?}", listed.entries);
    assert!(!listed.is_cut);
    let times: Vec<i64> = listed.entries.iter().map(|one| one.at.unwrap().seconds).collect();
    assert!(times.is_sorted());
    for entry in &listed.entries {
        let hour = (entry.at.unwrap().seconds / 3_600) % 24;
        assert_eq!(hour, if entry.name == "morning" { 9 } else { 20 });
        assert_eq!((entry.agent.as_str(), entry.kind.as_str()), ("main", "cron"));
    }
    let foreign = client.list_calendar(world.ben.request(range)).await.unwrap().into_inner();
    assert_eq!(foreign.entries, []);
    let long = pb::ListCalendarRequest { from: at(0), until: at(63), ..Default::default() };
    let refused = client.list_calendar(world.anna.request(long)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}
