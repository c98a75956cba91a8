//! Answers in the conversation that nobody asked for here: of reminders, jobs, and other clients.

use std::{collections::HashSet, time::Duration};

use holdfast_proto::gateway::v1::{Event, EventFilter, SubscribeRequest};
use serde_json::Value;
use tokio::{sync::mpsc, time::sleep};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use crate::client::Client;

/// Type of the events that tell of an answer.
const ANSWER_EVENT: &str = "message.answered";

/// Pause before a broken stream is opened again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Answers that wait to be shown; further ones are read when there is room.
const MAX_WAITING: usize = 64;

/// An answer in the conversation, whoever asked.
pub struct UnaskedAnswer {
    message: String,
    pub run: String,
    pub text: String,
}

/// Answers of one conversation, from the log of events. Needs a key that may read.
pub struct UnaskedAnswers {
    answers: mpsc::Receiver<UnaskedAnswer>,
    /// Ids of the messages that were sent here, and of the runs that answered them.
    own: HashSet<String>,
    _reader: AbortOnDropHandle<()>,
}

impl UnaskedAnswers {
    /// Follows a session, from now on.
    pub fn follow(client: &Client, session: String) -> Self {
        let (send, answers) = mpsc::channel(MAX_WAITING);
        let reader = tokio::spawn(read(client.clone(), session, send));
        Self { answers, own: HashSet::new(), _reader: AbortOnDropHandle::new(reader) }
    }

    /// Registers a message that was sent here: its answer comes by the stream of that call.
    pub fn sent_here(&mut self, message: &str, run: &str) {
        let ids = [message, run].into_iter().filter(|id| !id.is_empty());
        self.own.extend(ids.map(str::to_owned));
    }

    /// Waits for the next answer; forever if there can be none. Cancel safe.
    pub async fn next(&mut self) -> UnaskedAnswer {
        loop {
            match self.answers.recv().await {
                Some(answer) if self.is_own(&answer) => {}
                Some(answer) => return answer,
                None => std::future::pending().await,
            }
        }
    }

    /// The next answer that has come already.
    pub fn take(&mut self) -> Option<UnaskedAnswer> {
        loop {
            let answer = self.answers.try_recv().ok()?;
            if !self.is_own(&answer) {
                return Some(answer);
            }
        }
    }

    /// Whether it answers a message that was sent here, alone or with others.
    fn is_own(&self, answer: &UnaskedAnswer) -> bool {
        self.own.contains(&answer.message) || self.own.contains(&answer.run)
    }
}

/// Reads events until the receiver is gone, or the gateway refuses.
async fn read(client: Client, session: String, send: mpsc::Sender<UnaskedAnswer>) {
    let types = vec![ANSWER_EVENT.to_owned()];
    let filter = EventFilter { types, session, ..EventFilter::default() };
    let mut wanted =
        SubscribeRequest { filter: Some(filter), include_content: true, ..Default::default() };
    loop {
        let status = match client.events().subscribe(client.request(wanted.clone())).await {
            Ok(items) => {
                let mut items = items.into_inner();
                loop {
                    match items.message().await {
                        Ok(Some(item)) => {
                            wanted.cursor = item.cursor;
                            let answer = item.event.and_then(answer_of);
                            if let Some(answer) = answer
                                && send.send(answer).await.is_err()
                            {
                                return;
                            }
                        }
                        Ok(None) => break None,
                        Err(status) => break Some(status),
                    }
                }
            }
            Err(status) => Some(status),
        };
        let is_temporary = status.is_none_or(|status| {
            let code = status.code();
            [Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled, Code::Unknown]
                .contains(&code)
        });
        if !is_temporary {
            return;
        }
        sleep(RECONNECT_DELAY).await;
    }
}

fn answer_of(event: Event) -> Option<UnaskedAnswer> {
    let data: Value = serde_json::from_str(&event.data).ok()?;
    let field = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
    let text = event.text.filter(|text| !text.trim().is_empty())?;
    Some(UnaskedAnswer { message: field("message"), run: field("run"), text })
}
