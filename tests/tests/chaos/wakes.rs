//! Reminders and jobs under failures: from a request in Telegram to the timely message, while
//! schedulers and runners are killed at the most critical moments.
//!
//! The person asks for two minutes; the model asks the tool for two seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::ensure;
use futures::future::try_join_all;
use holdfast_testkit::{Backends, Reply, Request};
use holdfast_tests::mesh::{Mesh, MeshConfig};
use holdfast_tests::person::{GrpcClient, REPLY_TIMEOUT, TelegramUser, until};
use holdfast_tests::turnstile;
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::RUNNER;

/// Longer than the test: whoever waits for this answer is killed.
const FOR_EVER: Duration = Duration::from_secs(600);

/// Two places at which a scheduler can be held up for as long as somebody has their locks: the
/// first reminder is in the inbox and its firing is not known to be delivered; the second one is
/// about to go into the inbox.
const GATES: &str = "
    create function schedule.held_up() returns trigger language plpgsql as $$
    begin
        perform pg_advisory_xact_lock(tg_argv[0]::bigint);
        return new;
    end $$;
    create trigger held_up before update on schedule.firings for each row
        when (old.state = 'pending' and new.state = 'delivered')
        execute function schedule.held_up(711);
    create trigger held_up before insert on session.inbox for each row
        when (new.body->'fired'->>'chain' = '1')
        execute function schedule.held_up(712);
    select pg_advisory_lock(711), pg_advisory_lock(712)";

/// Who is held up by the lock with this number.
fn held_up(lock: i64) -> String {
    format!(
        "select count(*) from pg_locks
         where locktype = 'advisory' and objid = {lock} and not granted
           and database = (select oid from pg_database where datname = current_database())"
    )
}

#[derive(Debug, Default)]
struct Coach {
    /// Whoever asks what to do about the first reminder waits in vain.
    is_silent: AtomicBool,
    /// How often that was asked.
    asked: AtomicUsize,
}

impl Coach {
    /// Sets a reminder when asked to, and the next one when the first fires.
    fn answer(&self, asked: &Request) -> Reply {
        let is_told = asked.messages().last().is_some_and(|last| last["role"] == "tool");
        match (asked.last_user_text().contains("[Scheduled task fired]"), is_told) {
            (false, false) => sets(),
            (false, true) => Reply::text("I will"),
            // It stops once it was said twice.
            (true, false) if asked.body.to_string().contains("time to stretch") => {
                Reply::text("stretch again")
            }
            (true, false) => {
                self.asked.fetch_add(1, Ordering::SeqCst);
                if self.is_silent.load(Ordering::SeqCst) { Reply::hang(FOR_EVER) } else { sets() }
            }
            (true, true) => Reply::text("time to stretch"),
        }
    }
}

fn sets() -> Reply {
    let input = json!({"time": "in 2 seconds", "content": "stretch", "auto_continue": true});
    Reply::call("a", "scheduler_add", input.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reminder_that_the_agent_renews_comes_to_telegram_once_though_all_who_work_on_it_are_killed()
-> anyhow::Result<()> {
    let _turn = turnstile::lock_shared().await?;
    let plan = MeshConfig { runners: 2, schedulers: 2, ..MeshConfig::small(RUNNER) };
    let mesh = Mesh::prepare(&plan, Backends::get().await?).await?;
    let coach = Arc::new(Coach::default());
    coach.is_silent.store(true, Ordering::SeqCst);
    let answers = Arc::clone(&coach);
    mesh.fakes.model.answer(move |request| answers.answer(request));
    let ([one, other], [first, second]) = (&mesh.runners[..], &mesh.schedulers[..]) else {
        anyhow::bail!("not two of each");
    };
    one.start().await?;
    let rest: Vec<_> = mesh.gateways.iter().chain(&mesh.bridges).chain([first]).collect();
    try_join_all(rest.iter().map(|node| node.start())).await?;
    try_join_all(rest.iter().chain(&[one]).map(|node| node.ready(REPLY_TIMEOUT))).await?;
    // A guest would need an approval for a reminder that wakes the agent.
    GrpcClient::of(&mesh, 0)?.put_owner("telegram:42").await?;
    let person = TelegramUser::of(&mesh, &mesh.tenants[0].bot, 42);
    let mut gates = PgConnection::connect(&mesh.admin_url()).await?;
    sqlx::raw_sql(GATES).execute(&mut gates).await?;

    person.send("remind me in two minutes to stretch, and then decide when to remind me next");
    person.wait_for_messages(1).await?;

    // The scheduler has put the message into the inbox and not written down that it has, and the
    // runner asks the model about it. Both are killed.
    until("it fires", async || Ok(coach.asked.load(Ordering::SeqCst) > 0)).await?;
    until("it is held up", async || Ok(mesh.number(&held_up(711)).await? > 0)).await?;
    second.start().await?;
    second.ready(REPLY_TIMEOUT).await?;
    first.kill().await?;
    one.kill().await?;
    coach.is_silent.store(false, Ordering::SeqCst);
    sqlx::query("select pg_advisory_unlock(711)").execute(&mut gates).await?;
    // The other runner dies when the next reminder is set and the journal does not know it yet.
    other.start_with(&[("HOLDFAST_FAILPOINTS", "runner.after_call=die:1")]).await?;
    other.wait_for_death(REPLY_TIMEOUT).await?;
    let mut left: Vec<i64> = vec![mesh.number("select count(*) from schedule.jobs").await?];
    for node in [one, other] {
        node.start().await?;
    }
    // The second scheduler is killed with the second reminder in hand.
    until("it is held up again", async || Ok(mesh.number(&held_up(712)).await? > 0)).await?;
    second.kill().await?;
    sqlx::query("select pg_advisory_unlock(712)").execute(&mut gates).await?;
    for node in [first, second] {
        node.start().await?;
    }
    person.wait_for_messages(3).await?;
    at_rest(&mesh).await?;

    left.push(mesh.number("select count(*) from schedule.jobs").await?);
    ensure!(left == [2, 2], "there were {left:?} reminders, and not one and the next");
    let expected = ["I will", "time to stretch", "stretch again"];
    ensure!(person.heard() == expected, "the person heard {:?}", person.heard());
    let calls = mesh.fakes.telegram.calls();
    let sent: Vec<_> = calls.iter().filter(|call| call.method == "sendMessage").collect();
    ensure!(sent.len() == 3, "sent was {sent:#?}");
    let chain = "
        select string_agg(payload->>'renewals', ' ' order by created_at) from schedule.jobs
        where kind = 'reminder' and state = 'done' and owner = 'telegram:default:42'";
    let chain = mesh.text(chain).await?;
    ensure!(chain == "0 1", "the chain is `{chain}`");
    let again = "select count(*) from schedule.firings where attempts > 1";
    ensure!(mesh.number(again).await? == 2, "not both firings were handed out again");
    let violations = mesh.fakes.model.violations();
    ensure!(violations.is_empty(), "calls and results do not pair up: {violations:?}");
    Ok(())
}

/// Waits until nothing is under way any more.
async fn at_rest(mesh: &Mesh) -> anyhow::Result<()> {
    const OPEN: &str = "
        select (select count(*) from schedule.jobs where state = 'active')
             + (select count(*) from schedule.firings where state in ('pending', 'delivered'))
             + (select count(*) from session.inbox where state in ('new', 'seen'))
             + (select count(*) from session.deliveries where state in ('pending', 'sending'))
             + (select count(*) from session.session_lease where state in ('READY', 'RUNNING'))";
    until("nothing is under way", async || Ok(mesh.number(OPEN).await? == 0)).await
}
