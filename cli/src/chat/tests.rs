//! Conversations with a gateway whose streams break.

use std::sync::{Arc, Mutex};

use holdfast_kit::net;
use holdfast_proto::gateway::v1::{
    Accepted, CancelResponse, Done, SendResponse, TextDelta,
    messages_server::{Messages, MessagesServer},
    run_event::Event,
};
use tokio_stream::{Iter, iter};
use tonic::{
    Request,
    transport::{Server, server::TcpIncoming},
};

use super::*;
use crate::{
    global::Global,
    screen::{Color, Format},
};

type Events = Iter<std::vec::IntoIter<Result<RunEvent, Status>>>;

/// Gateway that accepts a message, and then loses the connection as often as it is told to.
#[derive(Clone, Default)]
struct Gateway {
    losses: usize,
    calls: Arc<Mutex<Vec<String>>>,
}

fn event(event: Event) -> Result<RunEvent, Status> {
    Ok(RunEvent { message_id: "msg_1".to_owned(), event: Some(event), ..RunEvent::default() })
}

#[tonic::async_trait]
impl Messages for Gateway {
    type StreamStream = Events;
    type FollowStream = Events;

    async fn send(&self, _: Request<SendRequest>) -> Result<Response<SendResponse>, Status> {
        Err(Status::unimplemented("not called"))
    }

    async fn stream(&self, request: Request<SendRequest>) -> Result<Response<Events>, Status> {
        let text = request.into_inner().text;
        self.calls.lock().unwrap().push(format!("stream {text}"));
        let events = vec![
            event(Event::Accepted(Accepted::default())),
            event(Event::Text(TextDelta { text: "Hel".to_owned() })),
            Err(Status::unavailable("the gateway stops")),
        ];
        Ok(Response::new(iter(events)))
    }

    async fn follow(&self, request: Request<FollowRequest>) -> Result<Response<Events>, Status> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(format!("follow {}", request.into_inner().message_id));
        if calls.len() <= self.losses {
            return Err(Status::unavailable("the gateway is not there"));
        }
        let outcome = Outcome::Completed.into();
        let done = Done { outcome, text: "Hello".to_owned(), ..Done::default() };
        Ok(Response::new(iter(vec![event(Event::Done(done))])))
    }

    async fn cancel(&self, _: Request<CancelRequest>) -> Result<Response<CancelResponse>, Status> {
        Err(Status::unimplemented("not called"))
    }
}

#[tokio::test]
async fn a_message_is_sent_once_and_followed_when_the_stream_breaks() {
    let gateway = Gateway { losses: 3, ..Gateway::default() };
    let calls = Arc::clone(&gateway.calls);
    let listener = net::listen(([127, 0, 0, 1], 0).into(), "gateway").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(
        Server::builder()
            .add_service(MessagesServer::new(gateway))
            .serve_with_incoming(TcpIncoming::from(listener)),
    );
    let (gateway, key) = (Some(url), Some("hf_1_2".to_owned()));
    let global = Global {
        gateway,
        key,
        ca_file: None,
        dir: None,
        output: Format::Json,
        color: Color::Never,
    };
    let client = Client::new(&global).await.unwrap();
    let screen = Screen::new(Format::Json, Color::Never);
    let chat = Chat { client: &client, screen, agent: String::new(), session: String::new() };

    let answer = chat
        .send("hello".to_owned(), &mut Lines::new(Screen::new(Format::Text, Color::Never)))
        .await
        .unwrap();

    assert_eq!(answer.done().text, "Hello");
    let follow = "follow msg_1";
    assert_eq!(*calls.lock().unwrap(), ["stream hello", follow, follow, follow]);
}
