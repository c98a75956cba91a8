//! A request that has an effect is served once, and only if it is signed for its receiver and for the
//! address of its answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Message, ServerAddr};
use futures::StreamExt as _;
use holdfast_bus::{Bus, Error, Questions, RequestKeys, Subject};
use holdfast_types::{SessionId, TenantId};
use tokio::time::timeout;

use crate::world::{REQUEST_KEY, World, config, connected, soon};

/// Wait for messages that should not arrive.
const SILENCE: Duration = Duration::from_millis(300);

/// A bus with the login of a runner.
async fn runner_without_keys(world: &World) -> Bus {
    let namespace = &world.namespace;
    let config = config(namespace.service_url("agent-runner"), namespace.prefix());
    let bus = Bus::connect(&config, "holdfast-runner").await.unwrap();
    connected(&bus).await;
    bus
}

async fn runner(world: &World, key: [u8; 32]) -> Bus {
    let bus = runner_without_keys(world).await;
    RequestKeys::new([key]).install(&bus);
    bus
}

/// A program that has the login of a runner and none of the keys.
async fn stranger(world: &World) -> Client {
    let server: ServerAddr = world.namespace.service_url("agent-runner").parse().unwrap();
    let options = match (server.username(), server.password()) {
        (Some(user), Some(password)) => {
            ConnectOptions::with_user_and_password(user.to_owned(), password.to_owned())
        }
        _ => ConnectOptions::new(),
    };
    options.custom_inbox_prefix("_INBOX.holdfast-runner").connect(server.clone()).await.unwrap()
}

/// Serves questions: answers each with the number of all that were served.
fn serve(mut questions: Questions, served: &Arc<AtomicU32>) {
    let served = Arc::clone(served);
    tokio::spawn(async move {
        while let Some((_, asker)) = questions.next::<String>().await {
            asker.answer(&(served.fetch_add(1, Ordering::SeqCst) + 1)).await;
        }
    });
}

/// Asks until there is an answer.
async fn ask(bus: &Bus, subject: &Subject) -> u32 {
    soon(async {
        loop {
            let answers: Vec<u32> =
                bus.ask(subject, &"write", Duration::from_secs(1), 1).await.unwrap();
            if let Some(answer) = answers.first() {
                break *answer;
            }
        }
    })
    .await
}

/// Returns a request that was served.
async fn recorded_request(world: &World, asker: &Bus, by: &Client, subject: &Subject) -> Message {
    let subject_text = format!("{}.{subject}", world.namespace.prefix());
    let mut requests = by.subscribe(subject_text).await.unwrap();
    soon(async {
        loop {
            ask(asker, subject).await;
            if let Ok(Some(message)) = timeout(SILENCE, requests.next()).await {
                break message;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_request_is_served_once_for_its_receiver_and_answered_to_its_sender() {
    let world = World::new().await;
    let (asker, receiver) = (runner(&world, REQUEST_KEY).await, runner(&world, REQUEST_KEY).await);
    let (tenant, served) = (TenantId::generate(), Arc::default());
    let subject = Subject::jobs(tenant, SessionId::generate());
    let other = Subject::jobs(tenant, SessionId::generate());
    for subject in [&subject, &other] {
        serve(receiver.questions(subject).await.unwrap(), &served);
        ask(&asker, subject).await;
    }
    let stranger = stranger(&world).await;
    let recorded = recorded_request(&world, &asker, &stranger, &subject).await;
    let before = served.load(Ordering::SeqCst);
    let inbox = stranger.new_inbox();
    let mut answers = stranger.subscribe(inbox.clone()).await.unwrap();

    let (to, headers) = (recorded.subject.clone(), recorded.headers.clone().unwrap());
    let (reply, payload) = (recorded.reply.clone().unwrap(), recorded.payload.clone());
    let elsewhere = format!("{}.{other}", world.namespace.prefix());
    let own = async_nats::Subject::from(inbox);
    stranger.publish_with_reply(to.clone(), own.clone(), payload.clone()).await.unwrap();
    for (to, reply, payload) in [
        (to.clone(), reply.clone(), payload.clone()),
        (to.clone(), own.clone(), payload.clone()),
        (to.clone(), reply.clone(), "\"erase\"".into()),
        (elsewhere.clone().into(), reply.clone(), payload.clone()),
        (elsewhere.into(), own, payload),
    ] {
        let headers = headers.clone();
        stranger.publish_with_reply_and_headers(to, reply, headers, payload).await.unwrap();
    }
    stranger.flush().await.unwrap();

    assert!(timeout(SILENCE, answers.next()).await.is_err());
    assert_eq!(served.load(Ordering::SeqCst), before);
    assert_eq!(ask(&asker, &subject).await, before + 1);
}

#[tokio::test]
async fn a_login_without_the_keys_asks_nothing() {
    let world = World::new().await;
    let served = Arc::default();
    let (receiver, other) = (runner(&world, REQUEST_KEY).await, runner(&world, [2; 32]).await);
    let asker = runner(&world, REQUEST_KEY).await;
    let subject = Subject::jobs(TenantId::generate(), SessionId::generate());
    serve(receiver.questions(&subject).await.unwrap(), &served);
    let before = ask(&asker, &subject).await;
    let without = runner_without_keys(&world).await;

    let with_other_keys: Vec<u32> = other.ask(&subject, &"write", SILENCE, 1).await.unwrap();
    let refused = without.ask::<u32>(&subject, &"write", SILENCE, 1).await;

    assert!(with_other_keys.is_empty(), "{with_other_keys:?}");
    assert!(matches!(refused, Err(Error::NoRequestKeys)), "{refused:?}");
    assert_eq!(ask(&asker, &subject).await, before + 1);
}

#[tokio::test]
async fn a_request_waits_for_a_receiver_that_reads_its_keys() {
    let world = World::new().await;
    let (asker, late) = (runner(&world, REQUEST_KEY).await, runner_without_keys(&world).await);
    let subject = Subject::jobs(TenantId::generate(), SessionId::generate());
    serve(late.questions(&subject).await.unwrap(), &Arc::default());
    late.flush().await;

    let (answer, ()) = tokio::join!(ask(&asker, &subject), async {
        tokio::time::sleep(SILENCE).await;
        RequestKeys::load(&late, || std::future::ready(Ok::<_, Error>([REQUEST_KEY])));
    });

    assert!(answer >= 1);
}
