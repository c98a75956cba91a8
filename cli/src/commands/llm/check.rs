//! A real call of a model, through the gateway and a runner.

use std::time::Duration;

use holdfast_proto::gateway::v1::{
    DeleteSessionRequest, Done, Outcome, SendRequest, run_event::Event,
};
use tokio::time::{Instant, timeout};

use crate::{client::Client, error::Error};

/// Maximum time until a model answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Reason why a model did not answer.
#[derive(Debug)]
pub struct Failure {
    /// Reason of the run, as docs/models.md lists them; empty if the call was not made.
    pub reason: String,
    pub message: String,
}

/// Asks an agent something in a session that is deleted afterwards. With a model, that one answers
/// instead of the agent's. Returns the time that it took.
pub async fn ask(client: &Client, agent: &str, model: Option<&str>) -> Result<Duration, Failure> {
    let session = format!("check-{}", uuid::Uuid::now_v7().simple());
    let began = Instant::now();
    let outcome = timeout(ANSWER_TIMEOUT, converse(client, agent, &session, model)).await;
    let key = if agent.is_empty() { session } else { format!("agent:{agent}:api:{session}") };
    let request = client.request(DeleteSessionRequest { session: key });
    drop(client.sessions().delete_session(request).await);
    match outcome {
        Ok(Ok(())) => Ok(began.elapsed()),
        Ok(Err(failure)) => Err(failure),
        Err(_) => Err(Failure {
            reason: "timeout".to_owned(),
            message: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
        }),
    }
}

async fn converse(
    client: &Client,
    agent: &str,
    session: &str,
    model: Option<&str>,
) -> Result<(), Failure> {
    let send = async |text: String| {
        let done = send(client, agent, session, text).await;
        done.map_err(|error| Failure { reason: String::new(), message: error.to_string() })
    };
    if let Some(model) = model {
        send(format!("/model {model}")).await?;
    }
    let done = send("Answer with one word: are you there?".to_owned()).await?;
    if done.outcome() != Outcome::Completed {
        return Err(Failure { reason: done.reason, message: done.text });
    }
    // A fallback may have answered, or the choice was refused. An alias is another name.
    match model.filter(|model| model.contains(':') && *model != done.model) {
        Some(model) => Err(Failure {
            reason: String::new(),
            message: format!("`{}` answered instead of `{model}`", done.model),
        }),
        None => Ok(()),
    }
}

/// Sends a message and waits for the end of its turn.
async fn send(client: &Client, agent: &str, session: &str, text: String) -> Result<Done, Error> {
    let message = SendRequest {
        text,
        agent: agent.to_owned(),
        session: session.to_owned(),
        ..SendRequest::default()
    };
    let events = client.messages().stream(client.request(message)).await;
    let mut events = client.answer(events)?;
    while let Some(event) = events.message().await.map_err(|status| client.error(status))? {
        if let Some(Event::Done(done)) = event.event {
            return Ok(done);
        }
    }
    Err(Error::NoAnswer("the gateway ended the stream early".to_owned()))
}

impl Failure {
    /// Returns advice for the person who set up the model.
    pub fn advice(&self) -> &'static str {
        match self.reason.as_str() {
            "auth" => "the provider refuses the key: check that it is whole and not revoked",
            "quota" => "the account has no credit left: add some at the provider",
            "rate_limited" => "the provider takes no more requests for now: try again later",
            "no_model" | "not_found" => "the provider has no such model: check its name",
            "budget_spent" => "raise the budget with `holdfast budgets set`",
            "timeout" | "unavailable" | "network" => {
                "runners do not reach the provider: check its address, and that it runs; one that \
                 is not public must be listed in `egress.allow` (docs/models.md)"
            }
            _ => "docs/models.md#errors says what each reason means",
        }
    }
}
