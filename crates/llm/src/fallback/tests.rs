//! Choice of the candidates that are asked.

use std::sync::{Mutex, PoisonError};

use futures::FutureExt as _;
use holdfast_types::{Fault as _, Image, ImageData, Kind, Reply};

use super::*;
use crate::{ScriptedModel, scripted_model::tests::request};

/// Records the calls, and reports these models as cooling.
#[derive(Debug, Default)]
struct Noted {
    cooling: Vec<&'static str>,
    told: Mutex<Vec<String>>,
}

impl Noted {
    fn note(&self, what: String) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

impl Cooldowns for Noted {
    fn is_cooling<'a>(&'a self, model: &'a ModelId) -> BoxFuture<'a, bool> {
        async move { self.cooling.contains(&model.id()) }.boxed()
    }

    fn failed<'a>(&'a self, model: &'a ModelId, reason: Reason) -> BoxFuture<'a, ()> {
        async move { self.note(format!("{} {}", model.id(), reason.as_str())) }.boxed()
    }

    fn succeeded<'a>(&'a self, model: &'a ModelId) -> BoxFuture<'a, ()> {
        async move { self.note(format!("{} ok", model.id())) }.boxed()
    }
}

fn answers(id: &str) -> Candidate {
    candidate(
        id,
        ScriptedModel::answering(|request| Ok(ScriptedModel::text(&request.model.to_string()))),
    )
}

fn fails(id: &str, with: fn() -> Error) -> Candidate {
    candidate(id, ScriptedModel::answering(move |_| Err(with())))
}

fn candidate(id: &str, model: ScriptedModel) -> Candidate {
    Candidate { id: format!("p:{id}").parse().unwrap(), model: Arc::new(model), card: None }
}

async fn ask(
    candidates: Vec<Candidate>,
    cooling: &[&'static str],
    request: &Request,
) -> (Result<Reply, Error>, Vec<String>) {
    let noted = Noted { cooling: cooling.to_vec(), ..Noted::default() };
    let fallback = Fallback::new(candidates, noted);
    let answer = fallback.reply(request, &mut |_| {}, &CancellationToken::new()).await;
    (answer, fallback.cooldowns.told.into_inner().unwrap())
}

const fn busy() -> Error {
    Error::Unavailable { status: Some(529), source: None }
}

#[tokio::test(start_paused = true)]
async fn the_first_that_answers_is_the_last_that_is_asked() {
    let candidates =
        vec![fails("a", busy), fails("b", || Error::Quota), answers("c"), answers("d")];

    let (answer, told) = ask(candidates, &[], &request()).await;

    assert_eq!(answer.unwrap().text, "p:c");
    assert_eq!(told, ["a overloaded", "b billing", "c ok"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_cooling_is_passed_over_unless_there_are_pictures() {
    let candidates = || vec![answers("a"), answers("b")];
    let (answer, told) = ask(candidates(), &["a"], &request()).await;
    assert_eq!((answer.unwrap().text.as_str(), told), ("p:b", vec!["b ok".to_owned()]));

    let image = Image { media_type: "image/png".into(), data: ImageData::Base64("aGk=".into()) };
    let mut shows = request();
    shows.chat.messages = vec![ChatMessage::User { text: "look".into(), images: vec![image] }];
    let (answer, _) = ask(candidates(), &["a"], &shows).await;
    assert_eq!(answer.unwrap().text, "p:a");
}

#[tokio::test(start_paused = true)]
async fn what_would_fail_elsewhere_too_is_returned_at_once_and_nobody_cools_down() {
    for with in [
        || Error::BadRequest { status: 400, code: "none".into() },
        || Error::ContextOverflow,
        || Error::Filtered,
        || Error::Empty,
        || Error::Cancelled,
    ] {
        let (answer, told) = ask(vec![fails("a", with), answers("b")], &[], &request()).await;

        assert_eq!(answer.unwrap_err().class(), with().class());
        assert_eq!(told, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_not_there_is_no_reason_to_give_up() {
    let missing = || Error::NoModel("p:a".into());

    let (answer, told) = ask(vec![fails("a", missing), answers("b")], &[], &request()).await;

    assert_eq!((answer.unwrap().text.as_str(), told), ("p:b", vec!["b ok".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn when_all_failed_it_is_said_of_each_why() {
    let candidates =
        vec![fails("a", || Error::Auth), answers("b"), fails("a", busy), fails("c", busy)];

    let (answer, _) = ask(candidates, &["b"], &request()).await;

    let error = answer.unwrap_err();
    assert_eq!(
        error.to_string(),
        "none of the models answered: p:a (auth), p:b (cooling), p:c (unavailable)"
    );
    assert_eq!((error.kind(), error.reason()), (Kind::Unavailable, Reason::Overloaded));
    let (answer, _) = ask(vec![fails("a", || Error::Quota)], &[], &request()).await;
    assert_eq!(answer.unwrap_err().kind(), Kind::Exhausted);
}

#[tokio::test(start_paused = true)]
async fn those_who_watch_are_told_when_another_model_begins_anew() {
    /// Emits half of the reply, then fails.
    #[derive(Debug)]
    struct Half;
    impl Model for Half {
        fn reply<'a>(
            &'a self,
            _: &'a Request,
            on_delta: OnDelta<'a>,
            _: &'a CancellationToken,
        ) -> ReplyFuture<'a> {
            on_delta(Delta::Text("half".into()));
            Box::pin(async { Err(Error::Interrupted) })
        }
    }
    let half = Candidate { id: "p:a".parse().unwrap(), model: Arc::new(Half), card: None };
    let fallback = Fallback::new([half, answers("b")], Noted::default());
    let mut deltas = vec![];
    let mut note = |delta| deltas.push(delta);
    let request = request();

    let answer = fallback.reply(&request, &mut note, &CancellationToken::new()).await;

    assert!(answer.is_ok());
    let text = |text: &str| Delta::Text(text.into());
    assert_eq!(deltas, [text("half"), Delta::Restarted, text("p:b")]);
}
