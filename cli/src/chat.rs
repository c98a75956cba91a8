//! `holdfast chat`: sends messages to an agent and streams the answers.
//!
//! When the connection breaks after the gateway has accepted the message, the accepted message is
//! followed on a new connection. It is not sent again.

mod answer;
mod approval_texts;
mod lines;
#[cfg(test)]
mod tests;
mod unasked_answers;

use std::{future::pending, time::Duration};

use clap::Args;
use holdfast_kit::Backoff;
use holdfast_proto::gateway::v1::{
    CancelRequest, FollowRequest, GetSessionRequest, Outcome, ResolveApprovalRequest, RunEvent,
    SendRequest,
};
use holdfast_types::StopReason;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::{Code, Response, Status, Streaming};

use self::{
    answer::Answer,
    lines::Lines,
    unasked_answers::{UnaskedAnswer, UnaskedAnswers},
};
use crate::{
    client::Client,
    error::Error,
    screen::{Screen, plain, progress},
    view,
};

/// Maximum duration of a connection loss after the gateway has accepted the message.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
const RECONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(2));

/// Beginning of an answer that nobody asked for here.
const UNASKED_PREFIX: &str = "[unasked] ";

#[derive(Debug, Args)]
pub struct ChatArgs {
    /// The message; without it, an interactive conversation starts
    text: Option<String>,

    /// Name or id of the agent [default: the tenant's default agent]
    #[arg(long, default_value = "", hide_default_value = true)]
    agent: String,

    /// The session: an id, a key, or any name of your choice [default: the agent's main session]
    #[arg(long, default_value = "", hide_default_value = true)]
    session: String,
}

/// Runs `holdfast chat`.
///
/// # Errors
///
/// If the gateway refuses, or a single message ends without an answer.
pub async fn run(args: ChatArgs, client: &Client, screen: &Screen) -> Result<(), Error> {
    let chat = Chat { client, screen: *screen, agent: args.agent, session: args.session };
    match args.text {
        Some(text) => {
            let answer = chat.send(text, &mut Lines::new(*screen)).await?;
            chat.show_result(&answer)?;
            answer.check()
        }
        None => chat.converse().await,
    }
}

struct Chat<'a> {
    client: &'a Client,
    screen: Screen,
    agent: String,
    session: String,
}

impl Chat<'_> {
    /// Reads messages until `exit`, `quit` (also with `/`), the end of input, or Ctrl-C.
    async fn converse(&self) -> Result<(), Error> {
        let mut lines = Lines::new(self.screen);
        lines.show_hint()?;
        let mut unasked = self.follow_unasked().await;
        while let Some(line) = self.next_line(&mut lines, &mut unasked).await? {
            match line.trim() {
                "" => {}
                "exit" | "quit" | "/exit" | "/quit" => break,
                _ => match self.send_interruptible(line, &mut lines).await {
                    Ok(answer) => {
                        self.show_result(&answer)?;
                        self.note_own_message(&answer, &mut unasked);
                        if let Err(error) = answer.check() {
                            self.screen.fail(&error);
                        }
                    }
                    // The next message may be accepted although this one was refused.
                    Err(Error::Refused(status)) if is_about_the_message(&status) => {
                        self.screen.fail(&Error::Refused(status));
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Follows the conversation, if it exists.
    async fn follow_unasked(&self) -> Option<UnaskedAnswers> {
        let session = match (self.session.as_str(), self.agent.as_str()) {
            ("", "") => "main".to_owned(),
            ("", agent) => format!("agent:{agent}:main"),
            (session, _) => session.to_owned(),
        };
        let request = self.client.request(GetSessionRequest { session });
        let found = self.client.sessions().get_session(request).await.ok()?;
        let session = found.into_inner().session?.id;
        Some(UnaskedAnswers::follow(self.client, session))
    }

    /// Tells the follower of the conversation that the message was sent here.
    fn note_own_message(&self, answer: &Answer, unasked: &mut Option<UnaskedAnswers>) {
        if unasked.is_none()
            && let Some(session) = answer.session()
        {
            *unasked = Some(UnaskedAnswers::follow(self.client, session.to_owned()));
        }
        if let (Some(unasked), Some(message)) = (unasked, answer.message_id()) {
            unasked.sent_here(message, answer.run_id());
        }
    }

    /// Returns the next line, and shows meanwhile what nobody asked for.
    async fn next_line(
        &self,
        lines: &mut Lines,
        unasked: &mut Option<UnaskedAnswers>,
    ) -> Result<Option<String>, Error> {
        while let Some(answer) = unasked.as_mut().and_then(UnaskedAnswers::take) {
            self.show_unasked(&answer)?;
        }
        lines.prompt()?;
        loop {
            let next = async {
                match unasked {
                    Some(unasked) => unasked.next().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = next => {
                    lines.leave_prompt()?;
                    self.show_unasked(&answer)?;
                    lines.prompt()?;
                }
                line = lines.next() => return line,
            }
        }
    }

    fn show_unasked(&self, answer: &UnaskedAnswer) -> Result<(), Error> {
        if self.screen.is_json() {
            let shown = json!({"unasked": true, "run_id": answer.run, "text": answer.text});
            return self.screen.one(&[], &shown);
        }
        self.screen.print(&format!("{UNASKED_PREFIX}{}\n", plain(&answer.text)))
    }

    /// Sends a message. Ctrl-C cancels the turn and returns the answer so far.
    async fn send_interruptible(&self, text: String, lines: &mut Lines) -> Result<Answer, Error> {
        let mut saying = Box::pin(self.send(text, lines));
        tokio::select! {
            said = &mut saying => return said,
            _ = tokio::signal::ctrl_c() => {}
        }
        self.screen.note("")?;
        self.cancel().await?;
        saying.await
    }

    async fn cancel(&self) -> Result<(), Error> {
        let request = self
            .client
            .request(CancelRequest { session: self.session.clone(), agent: self.agent.clone() });
        self.client.answer(self.client.messages().cancel(request).await).map(|_| ())
    }

    /// Sends a message and follows its run to the end, with any number of reconnects.
    ///
    /// The next line decides a call that needs approval.
    ///
    /// # Errors
    ///
    /// [`Error::NoAnswer`] if a call needs approval and there are no more lines.
    async fn send(&self, text: String, lines: &mut Lines) -> Result<Answer, Error> {
        let message = SendRequest {
            request_id: format!("cli-{}", uuid::Uuid::now_v7().simple()),
            text,
            agent: self.agent.clone(),
            session: self.session.clone(),
            ..SendRequest::default()
        };
        progress::begin("waiting for a runner");
        let mut answer = Answer::new(self.screen);
        let mut lost: Option<(Instant, u32)> = None;
        loop {
            let status = match self.follow(&message, &mut answer, lines).await {
                Ok(()) => return Ok(answer),
                Err(StreamFailure::Screen(error)) => return Err(error),
                Err(StreamFailure::Stream(status)) => status,
            };
            let (since, tries) = lost.unwrap_or_else(|| (Instant::now(), 0));
            let is_worth_it = answer.message_id().is_some() && is_connection_failure(&status);
            if !is_worth_it || since.elapsed() > RECONNECT_TIMEOUT {
                if let Some(session) = answer.session() {
                    self.screen.note(&format!(
                        "the message is accepted and will be answered; later, `holdfast sessions \
                         history {session}` shows it"
                    ))?;
                }
                return Err(self.client.error(status));
            }
            if tries == 0 {
                self.screen.aside("[the connection broke, trying again]")?;
            }
            lost = Some((since, tries + 1));
            sleep(RECONNECT_BACKOFF.cap(tries)).await;
        }
    }

    /// Sends the message, or follows it if it is accepted already.
    async fn events(
        &self,
        message: &SendRequest,
        accepted: Option<&str>,
    ) -> Result<Streaming<RunEvent>, Status> {
        let mut messages = self.client.messages();
        let events = match accepted {
            Some(id) => {
                let request = FollowRequest { message_id: id.to_owned() };
                messages.follow(self.client.request(request)).await
            }
            None => messages.stream(self.client.request(message.clone())).await,
        };
        events.map(Response::into_inner)
    }

    /// Streams until the run ends or the connection breaks.
    async fn follow(
        &self,
        message: &SendRequest,
        answer: &mut Answer,
        lines: &mut Lines,
    ) -> Result<(), StreamFailure> {
        let mut events =
            self.events(message, answer.message_id()).await.map_err(StreamFailure::Stream)?;
        answer.reconnected();
        loop {
            let line = async {
                match answer.pending_approval() {
                    Some(_) => lines.read().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                event = events.message() => {
                    let Some(event) = event.map_err(StreamFailure::Stream)? else { break };
                    if answer.apply_event(event).map_err(StreamFailure::Screen)? {
                        return Ok(());
                    }
                }
                line = line => match line.map_err(StreamFailure::Screen)? {
                    Some(line) => self.decide(&line, answer).await.map_err(StreamFailure::Screen)?,
                    None => return Err(StreamFailure::Screen(undecided(answer))),
                },
            }
        }
        Err(StreamFailure::Stream(Status::unavailable("the gateway ended the stream early")))
    }

    /// Resolves the pending approval as the typed line says.
    async fn decide(&self, line: &str, answer: &mut Answer) -> Result<(), Error> {
        let Some(asked) = answer.pending_approval() else { return Ok(()) };
        let Some(decision) = approval_texts::decision(line) else {
            return self.screen.note(approval_texts::REPLY_HINT);
        };
        let request = ResolveApprovalRequest {
            approval: asked.approval_id,
            decision: decision.into(),
            ..Default::default()
        };
        let request = self.client.request(request);
        match self.client.answer(self.client.approvals().resolve_approval(request).await) {
            Ok(_) => answer.approval_decided(),
            // The approval was decided by someone else or has expired. The stream shows the result.
            Err(Error::Refused(status)) if status.code() == Code::Aborted => {
                answer.approval_decided();
                self.screen.fail(&Error::Refused(status));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn show_result(&self, answer: &Answer) -> Result<(), Error> {
        let done = answer.done();
        if !self.screen.is_json() {
            return match StopReason::of_early_end(&done.reason) {
                Some(_) => self.screen.note(&format!("the answer ended early: {}", done.reason)),
                None => Ok(()),
            };
        }
        self.screen.one(
            &[],
            &json!({
                "message_id": answer.message_id().unwrap_or_default(),
                "session_id": answer.session(),
                "run_id": answer.run_id(),
                "outcome": view::outcome(done.outcome),
                "text": done.text,
                "reason": done.reason,
                "model": done.model,
                "usage": done.usage.as_ref().map(view::usage),
            }),
        )
    }
}

/// Reason why a stream ended before the run did.
enum StreamFailure {
    Stream(Status),
    Screen(Error),
}

/// Error for an approval that nobody here can decide, because the input has ended.
fn undecided(answer: &Answer) -> Error {
    let slug = answer.pending_approval().unwrap_or_default().slug;
    let session = answer.session().unwrap_or_default();
    Error::NoAnswer(format!(
        "the approval {slug} is not decided, and the input has ended: `holdfast approvals allow \
         {slug}` or `holdfast approvals deny {slug}` decides it, and then `holdfast sessions \
         history {session}` shows the answer"
    ))
}

/// Whether the failure is one of the connection and not of the message.
pub fn is_connection_failure(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Internal)
}

fn is_about_the_message(status: &Status) -> bool {
    matches!(status.code(), Code::InvalidArgument | Code::ResourceExhausted | Code::Aborted)
}

impl Answer {
    /// Returns an error unless the run completed.
    fn check(&self) -> Result<(), Error> {
        let done = self.done();
        let why = |what: &str| match done.reason.as_str() {
            "" => what.to_owned(),
            reason => format!("{what}: {reason}"),
        };
        match done.outcome() {
            Outcome::Completed => Ok(()),
            Outcome::Interrupted => Err(Error::NoAnswer(why("a newer message ended the turn"))),
            Outcome::Cancelled => Err(Error::NoAnswer(why("the turn was cancelled"))),
            Outcome::Failed => Err(Error::NoAnswer(why("the turn failed"))),
            Outcome::Dead => {
                Err(Error::NoAnswer(why("the message was given up, `holdfast dead list` shows it")))
            }
            Outcome::Unspecified => {
                Err(Error::NoAnswer(why("the gateway is newer than this command: update it")))
            }
        }
    }
}
