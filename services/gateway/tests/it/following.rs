//! A message is accepted, followed, and answered once; a client that disconnects stops nothing.

use std::time::Duration;

use futures::StreamExt as _;
use holdfast_proto::gateway::v1::{
    CancelRequest, GetCanvasRequest, Outcome, RunEvent, SendRequest, StepProgress,
    run_event::Event, sessions_client::SessionsClient,
};
use holdfast_session::NewSurface;
use holdfast_types::QueueMode;
use tonic::Code;

use crate::world::{Tenant, World, done, message, text};

fn kinds(events: &[RunEvent]) -> Vec<&'static str> {
    let kind = |event: &RunEvent| match event.event.as_ref().unwrap() {
        Event::Accepted(_) => "accepted",
        Event::StepStarted(_) => "step",
        Event::Text(_) => "text",
        Event::ToolStarted(_) => "tool",
        Event::ToolEnded(_) => "tool ended",
        Event::ApprovalRequested(_) => "approval",
        Event::Thinking(_) => "thinking",
        Event::CanvasChanged(_) => "canvas",
        Event::StepProgress(_) => "progress",
        Event::Done(_) => "done",
    };
    let mut kinds: Vec<&str> = events.iter().map(kind).collect();
    kinds.dedup();
    kinds
}

#[tokio::test]
async fn what_is_sent_is_answered_to_whoever_follows() {
    let world = World::start().await.unwrap();

    let sent = world.send(&world.anna, message("hi")).await.unwrap();
    let events = world.follow(&world.anna, &sent.message_id).await.unwrap();

    let answer = done(&events);
    assert_eq!(answer.text, "echo: hi");
    assert_eq!(answer.outcome(), Outcome::Completed);
    assert_eq!(answer.usage.unwrap().input_tokens, 5);
    assert_eq!((sent.seq, sent.duplicate), (1, false));

    let again = world.follow(&world.anna, &sent.message_id).await.unwrap();
    assert_eq!(kinds(&again), ["done"]);
    assert_eq!(done(&again).text, "echo: hi");
}

#[tokio::test]
async fn a_stream_tells_a_turn_from_its_acceptance_to_its_answer() {
    let world = World::start().await.unwrap();

    let events = world.stream(&world.anna, message("tool please")).await.unwrap();

    assert_eq!(
        kinds(&events),
        ["accepted", "step", "text", "tool", "tool ended", "step", "text", "done"]
    );
    assert_eq!(text(&events), "let me seeecho: tool please");
    assert_eq!(done(&events).text, "echo: tool please");
    assert!(events[1..].iter().all(|event| event.run_id.starts_with("run_")));
    assert_eq!(events.last().unwrap().step, 1);
}

#[tokio::test]
async fn a_step_that_begins_anew_is_told_as_such() {
    let world = World::start().await.unwrap();

    let events = world.stream(&world.anna, message("other words")).await.unwrap();

    let again = events
        .iter()
        .position(|event| matches!(&event.event, Some(Event::StepStarted(step)) if step.again));
    assert_eq!(text(&events[..again.unwrap()]), "something else ");
    assert_eq!(text(&events[again.unwrap()..]), "echo: other words");
}

#[tokio::test]
async fn a_message_that_joins_a_running_turn_gets_its_answer() {
    let world = World::start().await.unwrap();
    let first = world.send(&world.anna, message("hold on")).await.unwrap();
    world.until_runs(&world.anna, &first.session_id).await.unwrap();

    let mut client = world.messages().await.unwrap();
    let second = client.stream(world.anna.request(message("linger a bit")));
    let mut second = second.await.unwrap().into_inner().map(Result::unwrap);
    let accepted = second.next().await.unwrap();
    world.runner.release(1);
    // All deltas arrive before the turn ends, so that the journal cannot report first.
    let mut events: Vec<RunEvent> = Vec::new();
    while text(&events) != "echo: linger a bit" {
        events.push(second.next().await.unwrap());
    }
    world.runner.release(1);
    events.extend(second.collect::<Vec<_>>().await);

    assert_eq!(accepted.session_id, first.session_id);
    assert_eq!(done(&events).text, "echo: linger a bit");
    assert_eq!(text(&events), "echo: linger a bit");
    let run = first.message_id.replace("msg_", "run_");
    assert_eq!(events.last().unwrap().run_id, run);
    let first = world.follow(&world.anna, &first.message_id).await.unwrap();
    assert_eq!(done(&first).text, "echo: linger a bit");
}

#[tokio::test]
async fn a_message_that_waits_behind_another_hears_nothing_of_its_turn() {
    let world = World::start().await.unwrap();
    world.agent(&world.anna, "queue", QueueMode::Followup).await.unwrap();
    let to = |text: &str| SendRequest { agent: "queue".into(), ..message(text) };
    let first = world.send(&world.anna, to("hold on")).await.unwrap();
    world.until_runs(&world.anna, &first.session_id).await.unwrap();

    let second = world.stream(&world.anna, to("and this"));
    let (events, ()) = tokio::join!(second, async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.runner.release(1);
    });

    let events = events.unwrap();
    assert_eq!(text(&events), "echo: and this");
    assert_eq!(done(&events).text, "echo: and this");
}

#[tokio::test]
async fn a_follower_that_goes_away_takes_nothing_with_it() {
    let world = World::start().await.unwrap();
    let mut client = world.messages().await.unwrap();
    let stream = client.stream(world.anna.request(message("hold on")));
    let mut stream = stream.await.unwrap().into_inner();
    let accepted = stream.next().await.unwrap().unwrap();

    drop(stream);
    world.runner.release(1);

    let events = world.follow(&world.anna, &accepted.message_id).await.unwrap();
    assert_eq!(done(&events).text, "echo: hold on");
}

#[tokio::test]
async fn a_caller_whose_patience_ends_is_told_and_the_turn_goes_on() {
    let world = World::start().await.unwrap();
    let mut client = world.messages().await.unwrap();
    let keyed = || SendRequest { request_id: "once".into(), ..message("hold on") };
    let accepted = world.send(&world.anna, keyed()).await.unwrap();

    let mut stream = loop {
        let mut request = world.anna.request(keyed());
        request.set_timeout(Duration::from_secs(2));
        match client.stream(request).await {
            Ok(begun) => break begun.into_inner(),
            // The client itself waits no longer than that for the headers.
            Err(status) => assert!(
                matches!(status.code(), Code::Cancelled | Code::DeadlineExceeded),
                "{status}"
            ),
        }
    };
    let end = loop {
        match stream.next().await.unwrap() {
            Ok(_) => {}
            Err(status) => break status,
        }
    };

    assert_eq!(end.code(), Code::DeadlineExceeded);
    world.runner.release(1);
    let events = world.follow(&world.anna, &accepted.message_id).await.unwrap();
    assert_eq!(done(&events).text, "echo: hold on");
}

#[tokio::test]
async fn cancelling_says_whether_anything_ran() {
    let world = World::start().await.unwrap();
    let cancel = async |session: &str| {
        let request = CancelRequest { session: session.to_owned(), ..CancelRequest::default() };
        let mut client = world.messages().await.unwrap();
        client.cancel(world.anna.request(request)).await.map(|answer| answer.into_inner().running)
    };

    assert_eq!(cancel("nowhere").await.unwrap_err().code(), Code::NotFound);
    let sent = world.send(&world.anna, message("hold on")).await.unwrap();
    world.until_runs(&world.anna, &sent.session_id).await.unwrap();

    assert!(cancel("agent:main:main").await.unwrap());
    assert!(cancel(&sent.session_id).await.unwrap());
    world.runner.release(1);
    world.follow(&world.anna, &sent.message_id).await.unwrap();
    // The answer is published after it is committed, and the session is idle from then on.
    assert!(!cancel(&sent.session_id).await.unwrap());
}

#[tokio::test]
async fn a_session_is_found_by_its_id_its_key_and_its_callers_own_name() {
    let world = World::start().await.unwrap();
    let sent = async |session: &str, agent: &str| {
        let request =
            SendRequest { session: session.to_owned(), agent: agent.to_owned(), ..message("hi") };
        world.send(&world.anna, request).await
    };

    let main = sent("", "").await.unwrap();
    assert_eq!(sent("agent:main:main", "").await.unwrap().session_id, main.session_id);
    assert_eq!(sent(&main.session_id, "main").await.unwrap().session_id, main.session_id);
    let own = sent("my own", "").await.unwrap();
    assert_ne!(own.session_id, main.session_id);
    assert_eq!(sent("my own", "main").await.unwrap().session_id, own.session_id);

    world.agent(&world.anna, "coach", QueueMode::Steer).await.unwrap();
    let theirs = sent("my own", "coach").await.unwrap();
    assert_ne!(theirs.session_id, own.session_id);
    let refused = sent(&theirs.session_id, "main").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("`coach`"), "{}", refused.message());
}

#[tokio::test]
async fn a_change_of_the_canvas_is_told_and_the_canvas_can_be_read() {
    let world = World::start().await.unwrap();

    let events = world.stream(&world.anna, message("canvas please")).await.unwrap();
    let session = events[0].session_id.clone();
    let plan = NewSurface {
        name: "plan".into(),
        title: "Plan".into(),
        kind: "markdown".into(),
        content: "# Plan".into(),
        shown: true,
    };
    let of = session.parse().unwrap();
    world.sessions.canvas().change(world.anna.id, of, &[plan], &[]).await.unwrap();
    let mut client = SessionsClient::new(world.channel().await.unwrap());
    let read = client.get_canvas(ask(&world.anna, &session)).await.unwrap().into_inner();
    let foreign = client.get_canvas(ask(&world.ben, &session)).await.unwrap_err();

    let told: Vec<_> = events
        .iter()
        .filter_map(|event| match event.event.as_ref().unwrap() {
            Event::CanvasChanged(changed) => Some(changed.surfaces.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(told, [["plan"]]);
    let [shown] = read.surfaces.as_slice() else { panic!("{read:?}") };
    assert_eq!((shown.name.as_str(), shown.content.as_str(), shown.version), ("plan", "# Plan", 1));
    assert_eq!(foreign.code(), Code::NotFound);
}

#[tokio::test]
async fn a_step_of_a_behavior_is_told_and_the_answer_is_streamed_as_ever() {
    let world = World::start().await.unwrap();

    let events = world.stream(&world.anna, message("progress please")).await.unwrap();

    assert_eq!(kinds(&events), ["accepted", "step", "progress", "text", "done"]);
    let told = events.iter().find_map(|event| match event.event.as_ref().unwrap() {
        Event::StepProgress(progress) => Some(progress.clone()),
        _ => None,
    });
    let expected = StepProgress {
        behavior: "DO".into(),
        step: 2,
        todo: "T001".into(),
        todos_done: 1,
        todos: 3,
        cost_micros: 20_000,
    };
    assert_eq!(told, Some(expected));
}

fn ask(of: &Tenant, session: &str) -> tonic::Request<GetCanvasRequest> {
    of.request(GetCanvasRequest { session: session.to_owned() })
}
