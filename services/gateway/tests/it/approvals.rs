//! A turn that needs an approval: a client that streams gets the request and waits, a client that
//! cannot wait is told how to go on, and the decision is made over gRPC.

use futures::StreamExt as _;
use holdfast_proto::gateway::v1::{
    Decision, GetRunRequest, GetSessionRequest, ListApprovalsRequest, ListRunsRequest,
    ResolveApprovalRequest, approvals_client::ApprovalsClient, run_event::Event,
    sessions_client::SessionsClient,
};
use serde_json::{Value, json};
use tonic::{Code, Request, transport::Channel};

use crate::world::{World, message};

async fn approvals(world: &World) -> ApprovalsClient<Channel> {
    ApprovalsClient::new(world.channel().await.unwrap())
}

fn resolve(approval: &str, decision: Decision) -> ResolveApprovalRequest {
    ResolveApprovalRequest {
        approval: approval.to_owned(),
        decision: decision.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_stream_tells_that_a_word_is_needed_and_goes_on_once_it_is_said() {
    let world = World::start().await.unwrap();
    let mut door = approvals(&world).await;
    let mut messages = world.messages().await.unwrap();
    let request: Request<_> = world.anna.request(message("ask me"));
    let mut events = messages.stream(request).await.unwrap().into_inner();

    let mut asked = None;
    let mut answer = None;
    let mut times = 0;
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        match event.event.unwrap() {
            Event::ApprovalRequested(told) => {
                times += 1;
                let list = ListApprovalsRequest { state: "pending".into(), ..Default::default() };
                let listed = door.list_approvals(world.anna.request(list)).await.unwrap();
                let listed = listed.into_inner().approvals;
                assert_eq!((listed.len(), &listed[0].id), (1, &told.approval_id));
                assert_eq!((told.summary.as_str(), told.slug.len()), ("ask me", 8));
                assert_eq!(told.subject, listed[0].subject);
                let mut sessions = SessionsClient::new(world.channel().await.unwrap());
                let get = GetSessionRequest { session: event.session_id.clone() };
                let session = sessions.get_session(world.anna.request(get)).await.unwrap();
                assert_eq!(session.into_inner().session.unwrap().approvals, 1);
                let runs = sessions.list_runs(world.anna.request(ListRunsRequest::default()));
                let runs = runs.await.unwrap().into_inner().runs;
                assert_eq!(runs[0].status, "waiting_approval");
                let get = GetRunRequest { run_id: event.run_id.clone() };
                let run = sessions.get_run(world.anna.request(get.clone())).await.unwrap();
                let run = run.into_inner();
                assert_eq!(run.run.as_ref(), Some(&runs[0]));
                let others = sessions.get_run(world.ben.request(get)).await.unwrap_err();
                assert_eq!(others.code(), Code::NotFound);

                let say = resolve(&told.slug, Decision::AllowOnce);
                let said = door.resolve_approval(world.anna.request(say.clone())).await.unwrap();
                assert_eq!(said.into_inner().approval.unwrap().state, "allowed_once");
                let again = door.resolve_approval(world.anna.request(say)).await.unwrap();
                assert!(again.into_inner().duplicate);
                asked = Some(told.approval_id);
            }
            Event::Done(done) => answer = Some(done.text),
            _ => {}
        }
    }

    assert_eq!((answer.as_deref(), times), (Some("echo: ask me"), 1));
    let other = resolve(&asked.unwrap(), Decision::Deny);
    let refused = door.resolve_approval(world.anna.request(other)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.message().contains("already allowed once by key_"), "{refused}");
    let nothing = door.resolve_approval(world.anna.request(resolve("x", Decision::Unspecified)));
    assert_eq!(nothing.await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn an_openai_client_is_not_kept_waiting_and_its_key_brings_the_answer() {
    let world = World::start().await.unwrap();
    let ask = |stream: bool, key: &'static str| {
        let body = json!({
            "model": "holdfast",
            "stream": stream,
            "messages": [{"role": "user", "content": "ask me"}],
        });
        let post = world.post(&world.anna, "/v1/chat/completions");
        post.header("Idempotency-Key", key).json(&body).send()
    };
    let text = |answer: &Value| {
        answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    };

    let first: Value = ask(false, "one").await.unwrap().json().await.unwrap();
    let streamed = crate::world::chunks(ask(true, "two").await.unwrap()).await.unwrap();
    let mut door = approvals(&world).await;
    let list = ListApprovalsRequest::default();
    let listed = door.list_approvals(world.anna.request(list)).await.unwrap().into_inner();
    for one in &listed.approvals {
        let say = resolve(&one.id, Decision::AllowOnce);
        door.resolve_approval(world.anna.request(say)).await.unwrap();
    }
    let mut then = String::new();
    for _ in 0..200 {
        then = text(&ask(false, "one").await.unwrap().json().await.unwrap());
        if then == "echo: ask me" {
            break;
        }
    }

    let told = text(&first);
    assert!(told.starts_with("This needs approval before it goes on ("), "{told}");
    assert!(told.contains("\n```\nask me\n```\n"), "{told}");
    assert!(told.contains("holdfast approvals allow "), "{told}");
    let streamed: String = streamed
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert!(streamed.starts_with("This needs approval"), "{streamed}");
    assert_eq!(listed.approvals.len(), 2);
    assert_eq!(then, "echo: ask me");
}

#[tokio::test]
async fn a_denial_has_a_reason_that_is_kept_with_it_and_an_allowance_has_none() {
    let world = World::start().await.unwrap();
    let mut door = approvals(&world).await;
    let mut messages = world.messages().await.unwrap();
    let mut events =
        messages.stream(world.anna.request(message("ask me"))).await.unwrap().into_inner();

    let mut kept = None;
    while let Some(event) = events.next().await {
        let Event::ApprovalRequested(told) = event.unwrap().event.unwrap() else { continue };
        let decide = |decision, reason: &str| ResolveApprovalRequest {
            reason: reason.to_owned(),
            ..resolve(&told.approval_id, decision)
        };
        for (wrong, why) in [
            (decide(Decision::AllowOnce, "why not"), "`reason` is for denials only"),
            (decide(Decision::Deny, &"x".repeat(1_001)), "`reason` has 1001 characters"),
            (decide(Decision::Deny, "a\0b"), "`reason` has a NUL character"),
        ] {
            let refused = door.resolve_approval(world.anna.request(wrong)).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().starts_with(why), "{refused}");
        }
        let deny = decide(Decision::Deny, "not on Friday");
        let denied = door.resolve_approval(world.anna.request(deny)).await.unwrap();
        kept = denied.into_inner().approval;
    }

    let kept = kept.unwrap();
    assert_eq!((kept.state.as_str(), kept.reason.as_str()), ("denied", "not on Friday"));
}
