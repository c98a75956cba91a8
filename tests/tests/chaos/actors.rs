//! Clients in the storm that do more than send: they have reminders, subagents and chains, decide
//! approvals, cancel, pause and delete, and have their messages pruned.

use std::time::Duration;

use futures::future::{FutureExt as _, LocalBoxFuture, join_all};
use holdfast_proto::gateway::v1 as pb;
use holdfast_proto::gateway::v1::chains_client::ChainsClient;
use holdfast_proto::gateway::v1::policies_client::PoliciesClient;
use holdfast_session::Retention;
use holdfast_tests::dice;
use holdfast_tests::load::{Conversation, Senders, TestChannel};
use holdfast_tests::mesh::Mesh;
use holdfast_tests::person::GrpcClient;
use holdfast_tests::script::{self, MessageKind};
use rand::RngExt as _;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long a client waits for a reminder or a subagent before it goes on without it.
const ERRAND_PATIENCE: Duration = Duration::from_secs(15);

/// Number of the webhook conversations that set reminders.
const REMINDED: usize = 87;

/// Lets agents start the chain, and has approvals asked for.
pub(crate) async fn set_up(mesh: &Mesh) -> anyhow::Result<()> {
    for tenant in 0..mesh.tenants.len() {
        let client = GrpcClient::of(mesh, tenant)?;
        // Those whom the policy names are no guests: they set reminders without an approval.
        let friends = [format!("webhook:person-{REMINDED}"), format!("telegram:{}", 1000 + 82)];
        let document = json!({
            "approvals": {"tools": {"act_if_allowed": "always"}},
            "roles": {"friend": friends},
        });
        let document = document.to_string();
        let put = pb::PutPolicyRequest { document, ..pb::PutPolicyRequest::default() };
        let mut policies = PoliciesClient::new(client.channel.clone());
        policies.put_policy(client.request(put)?).await?;
        let (name, spec) = (script::RELAY.to_owned(), script::relay());
        let chain = Some(pb::Chain { name, spec, ..pb::Chain::default() });
        let mut chains = ChainsClient::new(client.channel.clone());
        chains.put_chain(client.request(pb::PutChainRequest { chain })?).await?;
    }
    Ok(())
}

/// All of them act until it is enough. The tenant with the last number, whose turns are interrupted
/// by newer messages, has none: an interrupted turn does not tell of a subagent.
pub(crate) async fn act(
    mesh: &Mesh,
    load: &Senders<'_>,
    enough: &CancellationToken,
) -> Vec<anyhow::Result<()>> {
    let at = |tenant, number, door| Conversation { tenant, number, door };
    let mut actors: Vec<LocalBoxFuture<'_, anyhow::Result<()>>> = Vec::new();
    const REMIND: &[MessageKind] = &[MessageKind::Remind];
    const HAND_ON: &[MessageKind] = &[MessageKind::Spawn, MessageKind::Chain];
    for tenant in 0..3 {
        // The end of a subagent is text from outside, after which a reminder needs an approval.
        let (spawning, reminded) =
            (at(tenant, 80, TestChannel::Webhook), at(tenant, REMINDED, TestChannel::Webhook));
        actors.push(run_errands(mesh, load, spawning, HAND_ON, enough).boxed_local());
        actors.push(run_errands(mesh, load, reminded, REMIND, enough).boxed_local());
    }
    let telegram = at(1, 81, TestChannel::Telegram);
    actors.push(run_errands(mesh, load, telegram, REMIND, enough).boxed_local());
    actors.push(decide(load, at(0, 82, TestChannel::Grpc), enough).boxed_local());
    actors.push(decide(load, at(2, 82, TestChannel::Grpc), enough).boxed_local());
    actors.push(cancel(load, at(2, 83, TestChannel::Grpc), enough).boxed_local());
    actors.push(pause(load, at(1, 84, TestChannel::Grpc), enough).boxed_local());
    actors.push(delete(load, at(0, 85, TestChannel::Grpc), enough).boxed_local());
    actors.push(prune(mesh, load, at(1, 86, TestChannel::Grpc), enough).boxed_local());
    join_all(actors).await
}

/// Has reminders set, or subagents and chains started, one after the other.
async fn run_errands(
    mesh: &Mesh,
    load: &Senders<'_>,
    conversation: Conversation,
    errands: &[MessageKind],
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    let mut draws = dice::stream(&format!("errands {conversation:?}"));
    for &word in errands.iter().cycle() {
        let said = load.say(&conversation, word, draws.random_range(1..=2)).await?;
        let verb = if word == MessageKind::Remind { "reminded" } else { "told" };
        let news = format!("{verb} {}", said.id);
        // A session has eight subagents at once.
        let is_told = || {
            mesh.fakes.receiver.has_taken(news.as_bytes())
                || mesh.fakes.telegram.sends().iter().any(|sent| sent.text.contains(&news))
        };
        let told = async {
            while !is_told() {
                sleep(Duration::from_millis(500)).await;
            }
        };
        let waited = tokio::time::timeout(ERRAND_PATIENCE, told);
        if enough.run_until_cancelled(waited).await.is_none() {
            break;
        }
    }
    Ok(())
}

/// Asks for actions that need an approval, and allows two of three.
async fn decide(
    load: &Senders<'_>,
    conversation: Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    let mut asked = 0;
    while !enough.is_cancelled() {
        asked += 1;
        let allows = asked % 3 != 0;
        let deciding = async {
            loop {
                load.decide(&conversation, |_| allows).await?;
                sleep(Duration::from_millis(300)).await;
            }
        };
        tokio::select! {
            done = load.ask(&conversation, MessageKind::ActIfAllowed) => { done?; }
            failed = deciding => return failed,
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Cancels turns that run or wait.
async fn cancel(
    load: &Senders<'_>,
    conversation: Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    let mut draws = dice::stream("cancel");
    while !enough.is_cancelled() {
        load.say(&conversation, MessageKind::Status, draws.random_range(1..=2)).await?;
        sleep(Duration::from_millis(draws.random_range(0..500))).await;
        load.cancel(&conversation).await?;
        sleep(Duration::from_millis(draws.random_range(300..1500))).await;
    }
    Ok(())
}

/// Pauses its session, sends to it, and lets it go on. It waits for an answer in each third round:
/// turns that are interrupted by pauses may take longer than messages take to arrive, and a full
/// inbox accepts nothing more while the session is paused.
async fn pause(
    load: &Senders<'_>,
    conversation: Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    let mut draws = dice::stream("pause of sessions");
    load.say(&conversation, MessageKind::Say, 1).await?;
    let mut rounds = 0;
    while !enough.is_cancelled() {
        load.pause(&conversation).await?;
        load.say(&conversation, MessageKind::Note, 1).await?;
        load.say(&conversation, MessageKind::Say, draws.random_range(1..=3)).await?;
        sleep(Duration::from_millis(draws.random_range(500..2500))).await;
        load.resume(&conversation).await?;
        rounds += 1;
        if rounds % 3 == 0 {
            load.ask(&conversation, MessageKind::Say).await?;
        }
        sleep(Duration::from_millis(draws.random_range(500..2500))).await;
    }
    Ok(())
}

/// Deletes its session, also while a turn runs.
async fn delete(
    load: &Senders<'_>,
    conversation: Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    let mut draws = dice::stream("delete");
    while !enough.is_cancelled() {
        load.say(&conversation, MessageKind::Say, 1).await?;
        load.say(&conversation, MessageKind::Status, draws.random_range(1..=2)).await?;
        sleep(Duration::from_millis(draws.random_range(0..2000))).await;
        load.delete(&conversation).await?;
        sleep(Duration::from_millis(draws.random_range(0..800))).await;
    }
    Ok(())
}

/// Has an answered message pruned, as after its retention, and sends it again: it is still known.
async fn prune(
    mesh: &Mesh,
    load: &Senders<'_>,
    conversation: Conversation,
    enough: &CancellationToken,
) -> anyhow::Result<()> {
    while !enough.is_cancelled() {
        let said = load.say(&conversation, MessageKind::Say, 1).await?;
        let age = format!(
            "update session.inbox set finished_at = finished_at - interval '40 days'
             where body->>'text' = '{} say' and state = 'done'",
            said.id
        );
        let is_aged = async {
            // Postgres may be down, and the turn takes a while.
            while mesh.admin(&age).await.unwrap_or_default() == 0 {
                sleep(Duration::from_millis(300)).await;
            }
        };
        if tokio::time::timeout(ERRAND_PATIENCE, is_aged).await.is_err() {
            continue;
        }
        load.follow(&said).await?;
        load.expect_pruned(&said);
        // Postgres may be down: then it is pruned the next time.
        let _ = mesh.sessions.upkeep().prune(&Retention::default()).await;
        load.send_copies(&conversation, &said.id, MessageKind::Say, 2).await?;
        sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}
