//! System events are given to a conversation's next turn, once (spec CRN-022).

use holdfast_session::{Error, MAX_EVENT_CHARS, MAX_PENDING_EVENTS, NewSystemEvent, StepWrite};
use holdfast_types::{
    CallRecord, Entry, Media, Note, RunId, SessionKey, SessionPost, SystemEvent, Wait,
};

use crate::world::{Tenant, World, completion, thought};

fn event(key: &SessionKey, n: usize, text: &str) -> NewSystemEvent {
    NewSystemEvent {
        key: key.clone(),
        idem_key: format!("job:{n}"),
        text: text.to_owned(),
        outside: false,
        signed: None,
    }
}

async fn waiting(
    world: &World,
    tenant: &Tenant<'_>,
    key: &SessionKey,
) -> anyhow::Result<Vec<String>> {
    const SQL: &str = "
        select text from session.system_events
        where tenant_id = $1 and key = $2 and gone_at is null order by event_id";

    let mut tx = world.pools()?.tenant(tenant.id).await?;
    let texts = holdfast_pg::query_scalar(SQL).bind(tenant.id.as_uuid()).bind(key.as_str());
    let texts = texts.fetch_all(tx.conn()).await?;
    tx.finish_reading();
    Ok(texts)
}

#[tokio::test]
async fn the_newest_twenty_wait_and_what_is_said_twice_in_a_row_is_said_once() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let tenant = world.tenant();
    let key: SessionKey = "agent:main:main".parse()?;

    for n in 0..25 {
        let text = format!("event {}", n / 2);
        world.sessions.add_system_event(tenant.id, &event(&key, n, &text)).await?;
    }
    let few = waiting(&world, &tenant, &key).await?;
    for n in 25..50 {
        world.sessions.add_system_event(tenant.id, &event(&key, n, &format!("late {n}"))).await?;
    }
    let many = waiting(&world, &tenant, &key).await?;

    assert_eq!(few.len(), 13);
    assert_eq!(few[12], "event 12");
    assert_eq!(i64::try_from(many.len())?, MAX_PENDING_EVENTS);
    assert_eq!((many[0].as_str(), many[19].as_str()), ("late 30", "late 49"));
    Ok(())
}

#[tokio::test]
async fn an_event_is_taken_by_the_write_that_says_so_and_is_never_told_again() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let tenant = world.tenant();
    let message = tenant.message("s", "k", "hello");
    let key = message.key.clone();
    assert!(world.sessions.add_system_event(tenant.id, &event(&key, 1, "tea")).await?);
    world.sessions.ingest(tenant.id, message).await?;

    let first = world.claim_one().await?;
    let told: Vec<SystemEvent> =
        world.sessions.load(&first, 100).await?.events.into_iter().map(|e| e.event).collect();
    world.lapse().await?;
    world.sweep().await?;
    let second = world.claim_one().await?;
    let again: Vec<SystemEvent> =
        world.sessions.load(&second, 100).await?.events.into_iter().map(|e| e.event).collect();
    let entries = vec![SystemEvent::entry(&told)];
    let append = || StepWrite {
        run: Some(RunId::generate()),
        entries: entries.clone(),
        ..StepWrite::default()
    };
    let stale = world.sessions.append(&first, append()).await;
    let waits = waiting(&world, &tenant, &key).await?;
    world.sessions.append(&second, append()).await?;

    assert_eq!(told.iter().map(|event| event.text.as_str()).collect::<Vec<_>>(), ["tea"]);
    assert_eq!(told, again);
    assert!(matches!(stale, Err(Error::Fenced { .. })), "{stale:?}");
    assert_eq!(waits, ["tea"]);
    assert!(waiting(&world, &tenant, &key).await?.is_empty());
    // The scheduler lost the response and repeats the request.
    assert!(!world.sessions.add_system_event(tenant.id, &event(&key, 1, "tea")).await?);
    assert!(waiting(&world, &tenant, &key).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_a_turn_posts_elsewhere_is_told_with_its_end_or_not_at_all() -> anyhow::Result<()> {
    let world = World::start().await?;
    let tenant = world.tenant();
    let main: SessionKey = "agent:main:main".parse()?;
    world.sessions.ingest(tenant.id, tenant.message("s", "k", "look")).await?;
    let first = world.claim_one().await?;
    let run = RunId::generate();
    let posted = SessionPost { key: main.clone(), text: "Cron: all is well".into(), outside: true };
    let completion = || {
        let entries = vec![posted.entry(), thought("all is well")];
        holdfast_session::Completion { entries, done: vec![1], reply: Some(1), ..completion(run) }
    };

    world.lapse().await?;
    world.sweep().await?;
    let second = world.claim_one().await?;
    assert!(world.sessions.complete(&first, completion()).await.is_err());
    assert!(waiting(&world, &tenant, &main).await?.is_empty());
    world.sessions.complete(&second, completion()).await?;

    assert_eq!(waiting(&world, &tenant, &main).await?, ["Cron: all is well"]);
    Ok(())
}

#[tokio::test]
async fn events_of_another_tenant_and_of_another_conversation_are_not_told() -> anyhow::Result<()> {
    let world = World::start().await?;
    let (tenant, other) = (world.tenant(), world.tenant());
    let message = tenant.message("s", "k", "hello");
    let key = message.key.clone();
    world.sessions.ingest(tenant.id, message).await?;
    let elsewhere: SessionKey = "agent:main:main".parse()?;

    world.sessions.add_system_event(other.id, &event(&key, 1, "theirs")).await?;
    world.sessions.add_system_event(tenant.id, &event(&elsewhere, 1, "elsewhere")).await?;
    let long = "語".repeat(MAX_EVENT_CHARS + 1);
    world.sessions.add_system_event(tenant.id, &event(&key, 2, &long)).await?;
    let claim = world.claim_one().await?;
    let told = world.sessions.load(&claim, 100).await?.events;

    assert_eq!(told.len(), 1);
    assert_eq!(told[0].event.text.chars().count(), MAX_EVENT_CHARS);
    // An entry that names another tenant's event does not take that event.
    let sql = format!(
        "select event_id from session.system_events where tenant_id = '{}'",
        other.id.as_uuid()
    );
    let theirs =
        SystemEvent { id: world.number(&sql).await?, text: "theirs".into(), at: 0, outside: false };
    let entries = vec![SystemEvent::entry(&[theirs]), thought("hm")];
    let run = RunId::generate();
    let ended = holdfast_session::Completion {
        entries,
        done: vec![1],
        wait: Wait::Anything,
        ..completion(run)
    };
    world.sessions.complete(&claim, ended).await?;
    assert_eq!(waiting(&world, &other, &key).await?, ["theirs"]);
    Ok(())
}

#[tokio::test]
async fn a_session_that_heard_text_from_outside_is_marked_until_it_is_reset() -> anyhow::Result<()>
{
    let world = World::start().await?;
    let tenant = world.tenant();
    world.sessions.ingest(tenant.id, tenant.message("s", "k", "hello")).await?;
    let claim = world.claim_one().await?;
    let run = RunId::generate();
    let write = async |entry: Entry| {
        let write = StepWrite { run: Some(run), entries: vec![entry], ..StepWrite::default() };
        world.sessions.append(&claim, write).await?;
        anyhow::Ok(world.sessions.load(&claim, 0).await?.outside)
    };
    let returned = |outside| Entry::Returned {
        call: "c".to_owned(),
        output: "a page".to_owned(),
        failed: false,
        media: Media::default(),
        record: CallRecord { outside, ..CallRecord::default() },
    };

    assert!(!write(returned(false)).await?);
    assert!(write(returned(true)).await?);
    assert!(write(Entry::summary("it says: do X", 0)).await?);
    assert!(!write(Entry::noted(Note::Reset, "anew")).await?);
    // The prompt has such text, and the turn's messages are stored already.
    world.sessions.mark_prompt_outside(&claim).await?;
    assert!(world.sessions.load(&claim, 0).await?.outside);
    let fenced = holdfast_session::Claim { epoch: claim.epoch + 1, ..claim.clone() };
    assert!(world.sessions.mark_prompt_outside(&fenced).await.is_err());
    assert!(!write(Entry::noted(Note::Reset, "anew")).await?);
    let told = SystemEvent { id: 1, text: "do X".into(), at: 0, outside: true };
    assert!(write(SystemEvent::entry(&[told])).await?);
    Ok(())
}

#[tokio::test]
async fn the_mark_of_an_event_is_told_with_it() -> anyhow::Result<()> {
    let world = World::start().await?;
    let tenant = world.tenant();
    let message = tenant.message("s", "k", "hello");
    for (n, outside) in [false, true].into_iter().enumerate() {
        let text = format!("event {n}");
        let new = NewSystemEvent { outside, ..event(&message.key, n, &text) };
        world.sessions.add_system_event(tenant.id, &new).await?;
    }
    world.sessions.ingest(tenant.id, message).await?;

    let claim = world.claim_one().await?;
    let told = world.sessions.load(&claim, 0).await?.events;

    assert_eq!(told.iter().map(|told| told.event.outside).collect::<Vec<_>>(), [false, true]);
    Ok(())
}
