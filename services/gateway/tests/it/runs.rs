//! Runs in detail, what goes on now, and pages of lists: what a console shows.

use anyhow::Context as _;
use futures::StreamExt as _;
use holdfast_proto::gateway::v1::{
    self as pb, Entry, approvals_client::ApprovalsClient, budgets_client::BudgetsClient,
    operations_client::OperationsClient, runs_client::RunsClient, sessions_client::SessionsClient,
};
use serde_json::Value;
use tokio::time::timeout;
use tonic::{Code, transport::Channel};

use crate::world::{PATIENCE, Tenant, World, message, until};

async fn sessions(world: &World) -> SessionsClient<Channel> {
    SessionsClient::new(world.channel().await.unwrap())
}

async fn runs(world: &World) -> RunsClient<Channel> {
    RunsClient::new(world.channel().await.unwrap())
}

/// Sends a text to a session of this name, and waits for the end of its turn.
async fn say(world: &World, session: &str, text: &str) -> pb::SendResponse {
    let sent = send(world, session, text).await;
    world.follow(&world.anna, &sent.message_id).await.unwrap();
    sent
}

async fn send(world: &World, session: &str, text: &str) -> pb::SendResponse {
    let request = pb::SendRequest { session: session.into(), ..message(text) };
    world.send(&world.anna, request).await.unwrap()
}

async fn trace(
    world: &World,
    of: &Tenant,
    run: &str,
    (limit, page_token): (u32, String),
) -> Result<pb::GetRunTraceResponse, tonic::Status> {
    let request = pb::GetRunTraceRequest { run_id: run.into(), limit, page_token };
    Ok(runs(world).await.get_run_trace(of.request(request)).await?.into_inner())
}

async fn activities(world: &World, doing: &[&str]) -> Vec<pb::Activity> {
    let doing = doing.iter().map(|word| (*word).to_owned()).collect();
    let request = pb::ListActivityRequest { doing, ..Default::default() };
    let found = runs(world).await.list_activity(world.anna.request(request)).await.unwrap();
    found.into_inner().activities
}

#[tokio::test]
async fn a_run_is_seen_step_by_step_while_it_runs_and_after_its_end() {
    let world = World::start().await.unwrap();
    let sent = send(&world, "trip", "steps to Rome").await;
    let run = sent.message_id.replace("msg_", "run_");
    let calling = async || activities(&world, &["calling"]).await.pop();

    let now = until(calling).await;

    assert_eq!((now.run_id.as_str(), now.step, now.tools), (&*run, 0, vec!["look".to_owned()]));
    assert!(now.runner_id.starts_with("rnr_") && now.since.is_some(), "{:?}", now.since);
    assert_eq!(now.message, "steps to Rome");
    let open = trace(&world, &world.anna, &run, (0, String::new())).await.unwrap();
    assert_eq!(open.run.unwrap().status, "running");
    assert_eq!(open.messages[0].text, "steps to Rome");
    assert_eq!(open.steps.len(), 1);
    let request = world.anna.request(pb::GetRunRequest { run_id: run.clone() });
    let got = sessions(&world).await.get_run(request).await.unwrap().into_inner();
    assert_eq!((got.run.unwrap().status.as_str(), got.entries.len()), ("running", 2));

    world.runner.release(1);
    world.follow(&world.anna, &sent.message_id).await.unwrap();
    let whole = trace(&world, &world.anna, &run, (0, String::new())).await.unwrap();

    let ended = whole.run.unwrap();
    assert_eq!((ended.status.as_str(), ended.channel.as_str()), ("completed", "api"));
    assert!(ended.person.starts_with("api:key_"), "{}", ended.person);
    let [first, last] = &whole.steps[..] else { panic!("{:?}", whole.steps) };
    let model = first.model.clone().unwrap();
    assert_eq!((model.model.as_str(), model.provider.as_str()), ("test:echo", "test"));
    assert_eq!(model.usage.unwrap().output_tokens, 3);
    let call = first.calls[0].call.clone().unwrap();
    assert_eq!((call.tool.as_str(), call.state.as_str()), ("look", "abandoned"));
    assert_eq!((first.number, last.number, last.text.as_str()), (0, 1, "it is noon"));
    // In two pages.
    let page = trace(&world, &world.anna, &run, (1, String::new())).await.unwrap();
    assert_eq!(page.steps, whole.steps[..1]);
    let rest = trace(&world, &world.anna, &run, (1, page.next_page_token)).await.unwrap();
    assert_eq!((rest.steps, rest.next_page_token), (whole.steps[1..].to_vec(), String::new()));
    assert_eq!(activities(&world, &[]).await, []);
    let refused = trace(&world, &world.ben, &run, (0, String::new())).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test]
async fn the_prompt_of_a_call_is_asked_of_a_runner_and_said_to_be_composed_again() {
    let world = World::start().await.unwrap();
    let run = say(&world, "trip", "one").await.message_id.replace("msg_", "run_");
    let render = async |of: &Tenant, seq| {
        let request = pb::RenderPromptRequest { run_id: run.clone(), seq };
        let rendered = runs(&world).await.render_prompt(of.request(request)).await?;
        Ok::<_, tonic::Status>(rendered.into_inner())
    };

    let last = render(&world.anna, 0).await.unwrap();

    assert!(last.rendered_again);
    assert_eq!((last.system.as_str(), last.missing), ("before 2", vec!["memories".to_owned()]));
    let calls: Value = serde_json::from_str(&last.messages[0].calls).unwrap();
    assert_eq!((last.messages[0].role.as_str(), &calls[0]["tool"]), ("assistant", &"look".into()));
    assert_eq!(render(&world.anna, 2).await.unwrap().system, "before 2");
    // The first entry is the message.
    assert_eq!(render(&world.anna, 1).await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(render(&world.ben, 0).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn what_goes_on_is_streamed_when_it_changes() {
    let world = World::start().await.unwrap();
    let request = world.anna.request(pb::WatchActivityRequest::default());
    let mut lists = runs(&world).await.watch_activity(request).await.unwrap().into_inner();
    let next = async |lists: &mut tonic::Streaming<pb::WatchActivityResponse>| {
        timeout(PATIENCE, lists.next()).await.unwrap().unwrap().unwrap().activities
    };
    assert_eq!(next(&mut lists).await, []);

    let sent = send(&world, "trip", "hold").await;
    let mut begun = next(&mut lists).await;
    // An unchanged list comes again after a while.
    while begun.is_empty() {
        begun = next(&mut lists).await;
    }
    world.runner.release(1);
    world.follow(&world.anna, &sent.message_id).await.unwrap();
    let mut after = next(&mut lists).await;
    while !after.is_empty() {
        after = next(&mut lists).await;
    }

    assert_eq!(begun[0].session.as_ref().unwrap().id, sent.session_id);
    assert!(["thinking", "queued"].contains(&begun[0].doing.as_str()), "{}", begun[0].doing);
}

#[tokio::test]
async fn runs_are_listed_in_pages_and_by_what_they_were() {
    let world = World::start().await.unwrap();
    let mut said = Vec::new();
    for text in ["one", "two", "fail", "three"] {
        said.push(say(&world, "trip", text).await.message_id.replace("msg_", "run_"));
    }
    let list = async |request: pb::ListRunsRequest| {
        let found = sessions(&world).await.list_runs(world.anna.request(request)).await?;
        Ok::<_, tonic::Status>(found.into_inner())
    };
    let ids = |found: &pb::ListRunsResponse| {
        found.runs.iter().map(|run| run.id.clone()).collect::<Vec<_>>()
    };
    let all = list(pb::ListRunsRequest::default()).await.unwrap();
    let newest_first: Vec<String> = said.iter().rev().cloned().collect();
    assert_eq!((ids(&all), all.next_page_token.as_str()), (newest_first.clone(), ""));

    let page = pb::ListRunsRequest { limit: 3, ..Default::default() };
    let first = list(page.clone()).await.unwrap();
    let page_token = first.next_page_token.clone();
    let last = list(pb::ListRunsRequest { page_token, ..page }).await.unwrap();

    assert_eq!([ids(&first), ids(&last)].concat(), newest_first);
    assert_eq!(last.next_page_token, "");
    let person = all.runs[0].person.clone();
    let since = all.runs[1].finished_at;
    type Change = fn(&mut pb::ListRunsRequest);
    let filters: [(Change, usize); 8] = [
        (|ask| ask.status = "failed".into(), 1),
        (|ask| ask.status = "waiting_approval".into(), 0),
        (|ask| ask.model = "test:echo".into(), 4),
        (|ask| ask.model = "test:other".into(), 0),
        (|ask| ask.min_cost_micros = 1, 0),
        (|ask| ask.channel = "api".into(), 4),
        (|ask| ask.channel = "telegram".into(), 0),
        (|ask| ask.agent = "main".into(), 4),
    ];
    for (at, (change, expected)) in filters.into_iter().enumerate() {
        let mut ask = pb::ListRunsRequest::default();
        change(&mut ask);
        assert_eq!(list(ask).await.unwrap().runs.len(), expected, "filter {at}");
    }
    let of_person = pb::ListRunsRequest { person, ..Default::default() };
    assert_eq!(list(of_person).await.unwrap().runs.len(), 4);
    let recent = list(pb::ListRunsRequest { since, ..Default::default() }).await.unwrap();
    assert_eq!(ids(&recent), newest_first[..2]);
    let older = list(pb::ListRunsRequest { until: since, ..Default::default() }).await.unwrap();
    assert_eq!(ids(&older), newest_first[2..]);
    let wrong = pb::ListRunsRequest { status: "lost".into(), ..Default::default() };
    assert_eq!(list(wrong).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_journal_is_read_forward_without_gaps() {
    let world = World::start().await.unwrap();
    let session = say(&world, "trip", "one").await.session_id;
    say(&world, "trip", "two").await;
    let read = async |request: pb::GetHistoryRequest| {
        let request = pb::GetHistoryRequest { session: session.clone(), limit: 3, ..request };
        let found = sessions(&world).await.get_history(world.anna.request(request)).await?;
        Ok::<_, tonic::Status>(found.into_inner())
    };
    let seqs = |entries: &[Entry]| entries.iter().map(|entry| entry.seq).collect::<Vec<_>>();
    let after = |after| pb::GetHistoryRequest { after_seq: Some(after), ..Default::default() };

    let first = read(after(0)).await.unwrap();
    let rest = read(after(3)).await.unwrap();
    let none = read(after(4)).await.unwrap();

    assert_eq!((first.first_seq, first.last_seq), (1, 4));
    assert_eq!((seqs(&first.entries), seqs(&rest.entries)), (vec![1, 2, 3], vec![4]));
    assert_eq!(none.entries, []);
    say(&world, "trip", "three").await;
    assert_eq!(seqs(&read(after(4)).await.unwrap().entries), [5, 6]);
    let both = pb::GetHistoryRequest { before_seq: 3, ..after(1) };
    assert_eq!(read(both).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_text_is_found_in_all_conversations_and_only_in_those_of_the_tenant() {
    let world = World::start().await.unwrap();
    say(&world, "trip", "The Pantheon opens at nine").await;
    say(&world, "trip", "and the 100% ticket?").await;
    let other = say(&world, "work", "a pantheon of engineers").await;
    let search = async |of: &Tenant, request: pb::SearchMessagesRequest| {
        let found = sessions(&world).await.search_messages(of.request(request)).await?;
        Ok::<_, tonic::Status>(found.into_inner())
    };
    let of = |query: &str| pb::SearchMessagesRequest { query: query.into(), ..Default::default() };

    let found = search(&world.anna, of("pantheon")).await.unwrap();

    // Each message is echoed.
    assert_eq!(found.hits.len(), 4);
    let hit = &found.hits[0];
    assert_eq!((hit.session_id.as_str(), hit.kind.as_str()), (&*other.session_id, "thought"));
    assert_eq!((hit.excerpt.as_str(), hit.hits[0].start), ("echo: a pantheon of engineers", 8));
    let phrase = search(&world.anna, of("\"opens at\" PANTHEON")).await.unwrap();
    assert_eq!(phrase.hits.len(), 2);
    assert_eq!(search(&world.anna, of("100%")).await.unwrap().hits.len(), 2);
    assert_eq!(search(&world.anna, of("1__%")).await.unwrap().hits.len(), 0);
    let heard = pb::SearchMessagesRequest { kinds: vec!["heard".into()], ..of("pantheon") };
    assert_eq!(search(&world.anna, heard).await.unwrap().hits.len(), 2);
    let session = other.session_id.clone();
    let one = pb::SearchMessagesRequest { session, ..of("pantheon") };
    assert_eq!(search(&world.anna, one.clone()).await.unwrap().hits.len(), 2);
    // Page by page the same.
    let (mut paged, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = pb::SearchMessagesRequest { limit: 1, page_token, ..of("pantheon") };
        let page = search(&world.anna, page).await.unwrap();
        paged.extend(page.hits);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(paged, found.hits);
    assert_eq!(search(&world.ben, of("pantheon")).await.unwrap().hits, []);
    assert_eq!(search(&world.ben, one).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(search(&world.anna, of(" ")).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn what_waits_for_a_person_is_counted() {
    let world = World::start().await.unwrap();
    let counts = async |of: &Tenant| {
        let mut client = OperationsClient::new(world.channel().await.unwrap());
        let request = of.request(pb::GetInboxCountsRequest {});
        client.get_inbox_counts(request).await.unwrap().into_inner()
    };
    assert_eq!(counts(&world.anna).await, pb::GetInboxCountsResponse::default());

    send(&world, "trip", "ask").await;
    say(&world, "work", "die").await;
    let waiting = async || activities(&world, &["waiting_approval"]).await.pop();
    let waits = until(waiting).await;

    let counted = counts(&world.anna).await;
    assert_eq!((counted.approvals, counted.dead_letters, counted.total), (1, 1, 2));
    assert_eq!(waits.tools.len(), 1);
    assert_eq!(counts(&world.ben).await.total, 0);
}

#[tokio::test]
async fn dead_letters_and_approvals_come_in_pages() {
    let world = World::start().await.unwrap();
    let mut letters = Vec::new();
    for session in ["a", "b", "c"] {
        letters.push(say(&world, session, "die").await);
        send(&world, &format!("{session}2"), "ask").await;
    }
    let mut client = OperationsClient::new(world.channel().await.unwrap());
    let mut approvals = ApprovalsClient::new(world.channel().await.unwrap());
    let asked =
        async || Some(activities(&world, &["waiting_approval"]).await).filter(|a| a.len() == 3);
    until(asked).await;

    let (mut dead, mut page_token) = (Vec::new(), String::new());
    loop {
        let page = pb::ListDeadLettersRequest { limit: 1, page_token, ..Default::default() };
        let page = client.list_dead_letters(world.anna.request(page)).await.unwrap().into_inner();
        dead.extend(page.letters.into_iter().map(|letter| letter.message_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let (mut found, mut page_token) = (0, String::new());
    loop {
        let page = pb::ListApprovalsRequest { limit: 2, page_token, ..Default::default() };
        let page = approvals.list_approvals(world.anna.request(page)).await.unwrap().into_inner();
        found += page.approvals.len();
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }

    let newest_first: Vec<_> = letters.iter().rev().map(|sent| sent.message_id.clone()).collect();
    assert_eq!((dead, found), (newest_first, 3));
    let session = letters[1].session_id.clone();
    let one = pb::ListDeadLettersRequest { session, ..Default::default() };
    let one = client.list_dead_letters(world.anna.request(one)).await.unwrap().into_inner();
    assert_eq!(one.letters.len(), 1);
}

#[tokio::test]
async fn usage_is_summed_up_by_what_is_asked_for() {
    let world = World::start().await.unwrap();
    for text in ["one", "two", "fail"] {
        say(&world, "trip", text).await;
    }
    let usage = async |group_by: &[&str]| {
        let group_by = group_by.iter().map(|word| (*word).to_owned()).collect();
        let request = pb::GetUsageRequest { group_by, ..Default::default() };
        let mut client = BudgetsClient::new(world.channel().await.unwrap());
        let found = client.get_usage(world.anna.request(request)).await?;
        Ok::<_, tonic::Status>(found.into_inner().lines)
    };

    let by_person = usage(&["person", "channel"]).await.unwrap();

    let [line] = &by_person[..] else { panic!("{by_person:?}") };
    assert_eq!((line.runs, line.completed, line.failed), (3, 2, 1));
    assert_eq!((line.channel.as_str(), line.day.as_str(), line.agent.as_str()), ("api", "", ""));
    assert!(line.person.starts_with("api:key_") && !line.person_name.is_empty(), "{line:?}");
    assert!(line.p50_ms <= line.p95_ms, "{line:?}");
    let by_hour = usage(&["hour"]).await.unwrap();
    assert_eq!((by_hour[0].day.len(), by_hour[0].model.as_str()), ("2026-11-22T14".len(), ""));
    let usual = usage(&[]).await.unwrap();
    assert_eq!((usual[0].agent.as_str(), usual[0].day.len()), ("main", "2026-11-22".len()));
    assert_eq!(usage(&["colour"]).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn sessions_are_listed_by_state_as_it_is_shown() {
    let world = World::start().await.unwrap();
    say(&world, "rests", "one").await;
    let asks = send(&world, "asks", "ask").await;
    let waiting = async || activities(&world, &["waiting_approval"]).await.pop();
    until(waiting).await;
    let list = async |states: &[&str]| {
        let states = states.iter().map(|word| (*word).to_owned()).collect();
        let request = pb::ListSessionsRequest { states, ..Default::default() };
        let found = sessions(&world).await.list_sessions(world.anna.request(request)).await?;
        Ok::<_, tonic::Status>(found.into_inner().sessions)
    };

    let waits = list(&["WAIT_FOR_EVENT", "WAIT_FOR_MSG"]).await.unwrap();

    assert_eq!(waits.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), [asks.session_id]);
    assert_eq!(list(&["WAIT"]).await.unwrap().len(), 1);
    assert_eq!(list(&["SLEEP", "PAUSE"]).await.unwrap(), []);
    assert_eq!(list(&[]).await.unwrap().len(), 2);
    assert_eq!(list(&["DEAD"]).await.unwrap_err().code(), Code::InvalidArgument);
}

/// Files of the messages of a session, as its journal names them.
fn files(entries: &[Entry]) -> Vec<Value> {
    let details = entries.iter().filter_map(|entry| serde_json::from_str(&entry.detail).ok());
    let files = |detail: Value| detail["attachments"][0]["file"].clone();
    details.map(files).filter(|file| !file.is_null()).collect()
}

#[tokio::test]
async fn an_attachment_is_read_as_it_was_sent() -> anyhow::Result<()> {
    let world = World::start().await?;
    let png = b"\x89PNG\r\n\x1a\nand more".to_vec();
    let attachment = pb::MessageAttachment {
        name: "plan.png".into(),
        content: png.clone(),
        ..Default::default()
    };
    let attachments = vec![attachment];
    let request = pb::SendRequest { session: "trip".into(), attachments, ..message("look") };
    let sent = world.send(&world.anna, request).await?;
    world.follow(&world.anna, &sent.message_id).await?;
    let session = sent.session_id;
    let request = pb::GetHistoryRequest { session, ..Default::default() };
    let read = sessions(&world).await.get_history(world.anna.request(request)).await?.into_inner();
    let file = files(&read.entries).pop().context("the message has a file")?;
    let hash = file["hash"].as_str().context("a hash")?.to_owned();
    let mut client = pb::files_client::FilesClient::new(world.channel().await?);
    let request = pb::ReadAttachmentRequest { agent: "main".into(), hash };

    let found = client.read_attachment(world.anna.request(request.clone())).await?.into_inner();

    assert_eq!((found.content, found.media_type.as_str()), (png, "image/png"));
    let refused = client.read_attachment(world.ben.request(request)).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    Ok(())
}
