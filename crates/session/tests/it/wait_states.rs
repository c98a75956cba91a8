//! Property test: the states of a session are those of a simple model, whatever people, events,
//! runners, deadlines and pauses do to it, in any order (spec STM-001, STM-002).

use holdfast_session::Claim;
use holdfast_types::{Body, MessageFilter, SessionId, SessionState, Wait};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::world::{Tenant, World};

/// What a turn ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitFor {
    Anything,
    Message,
    Event,
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Input that a wait for it asks for, or other input.
    Message {
        matches: bool,
    },
    Event {
        matches: bool,
    },
    Claim,
    Complete(WaitFor),
    Release,
    /// The deadline of the wait passes.
    Deadline,
    Pause,
    Resume,
    /// The runner dies, and its lease expires.
    Crash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits(WaitFor),
    Ready,
    Running,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Input {
    is_event: bool,
    matches: bool,
}

/// The session as the model sees it.
#[derive(Debug)]
struct Model {
    state: State,
    is_paused: bool,
    /// Input that no turn has finished.
    unread: Vec<Input>,
    /// How much of it the current claim has loaded.
    loaded: usize,
    /// Crashes since a turn made progress: too many make a dead letter.
    crashes: u32,
}

impl WaitFor {
    fn wait(self) -> Wait {
        let note = String::new();
        // Long enough to pass only where the test says so.
        let deadline_ms = Some(3_600_000);
        let text = |text: &str| Some(text.to_owned());
        match self {
            Self::Anything => Wait::Anything,
            Self::Message => {
                let filter = MessageFilter { contains: text("yes"), ..MessageFilter::default() };
                Wait::Message { filter, deadline_ms, note }
            }
            Self::Event => {
                let filter = MessageFilter { event: text("todo.*"), ..MessageFilter::default() };
                Wait::Event { filter, deadline_ms, note }
            }
        }
    }

    const fn is_ended_by(self, input: Input) -> bool {
        match self {
            Self::Anything => true,
            Self::Message => !input.is_event && input.matches,
            Self::Event => input.is_event && input.matches,
        }
    }
}

impl Model {
    /// Makes the session ready if it waits for some of its input.
    fn wake(&mut self) {
        if let State::Waits(wait) = self.state
            && self.unread.iter().any(|input| wait.is_ended_by(*input))
        {
            self.state = State::Ready;
        }
    }

    const fn expected(&self) -> SessionState {
        match self.state {
            State::Waits(WaitFor::Anything) => SessionState::Wait,
            State::Waits(WaitFor::Message) => SessionState::WaitForMsg,
            State::Waits(WaitFor::Event) => SessionState::WaitForEvent,
            State::Ready => SessionState::Ready,
            State::Running => SessionState::Running,
        }
    }
}

fn operation() -> impl Strategy<Value = Operation> {
    let wait = prop_oneof![Just(WaitFor::Anything), Just(WaitFor::Message), Just(WaitFor::Event)];
    prop_oneof![
        4 => any::<bool>().prop_map(|matches| Operation::Message { matches }),
        3 => any::<bool>().prop_map(|matches| Operation::Event { matches }),
        5 => Just(Operation::Claim),
        5 => wait.prop_map(Operation::Complete),
        1 => Just(Operation::Release),
        2 => Just(Operation::Deadline),
        1 => Just(Operation::Pause),
        2 => Just(Operation::Resume),
        1 => Just(Operation::Crash),
    ]
}

/// The session, and the claim that a runner has on it.
struct Subject<'w> {
    world: &'w World,
    tenant: Tenant<'w>,
    session: SessionId,
    claim: Option<Claim>,
    number: u32,
}

impl Subject<'_> {
    async fn send(&mut self, input: Input) -> anyhow::Result<()> {
        self.number += 1;
        let key = self.number.to_string();
        let text = if input.matches { "yes" } else { "no" };
        let mut message = self.tenant.message("s", &key, text);
        if input.is_event {
            let event = if input.matches { "todo.changed" } else { "mail.new" };
            message.body = Body { event: Some(event.to_owned()), ..message.body };
        }
        self.session = self.world.sessions.ingest(self.tenant.id, message).await?.session;
        Ok(())
    }

    async fn state(&self) -> anyhow::Result<SessionState> {
        Ok(self.world.sessions.views().session(self.tenant.id, self.session).await?.state)
    }
}

/// Makes the operation on both. Those that nobody can make now are left out.
async fn make(
    subject: &mut Subject<'_>,
    model: &mut Model,
    operation: Operation,
) -> anyhow::Result<()> {
    match operation {
        Operation::Message { matches } => {
            send(subject, model, Input { is_event: false, matches }).await?;
        }
        Operation::Event { matches } => {
            send(subject, model, Input { is_event: true, matches }).await?;
        }
        Operation::Claim => claim(subject, model).await?,
        Operation::Complete(wait) => complete(subject, model, wait).await?,
        Operation::Release => {
            if let Some(claim) = subject.claim.take() {
                subject.world.sessions.release(&claim).await?;
                (model.state, model.crashes) = (State::Ready, 0);
            }
        }
        Operation::Deadline if !model.is_paused => deadline(subject, model).await?,
        Operation::Deadline => {}
        Operation::Pause => {
            subject.world.sessions.pause(subject.tenant.id, subject.session).await?;
            model.is_paused = true;
        }
        Operation::Resume => {
            subject.world.sessions.resume(subject.tenant.id, subject.session).await?;
            model.is_paused = false;
            model.wake();
        }
        Operation::Crash if model.crashes < 2 && !model.is_paused => {
            if subject.claim.take().is_some() {
                subject.world.lapse().await?;
                subject.world.sweep().await?;
                let now = "update session.session_lease set ready_at = clock_timestamp()";
                subject.world.admin(now).await?;
                model.state = State::Ready;
                model.crashes += 1;
            }
        }
        Operation::Crash => {}
    }
    Ok(())
}

async fn send(subject: &mut Subject<'_>, model: &mut Model, input: Input) -> anyhow::Result<()> {
    subject.send(input).await?;
    model.unread.push(input);
    if !model.is_paused {
        model.wake();
    }
    Ok(())
}

/// Only a session that is ready and not paused can be claimed.
async fn claim(subject: &mut Subject<'_>, model: &mut Model) -> anyhow::Result<()> {
    let claims = subject.world.claim().await?;
    let expected = usize::from(model.state == State::Ready && !model.is_paused);
    anyhow::ensure!(claims.len() == expected, "{} claims", claims.len());
    if let Some(claim) = claims.into_iter().next() {
        let loaded = subject.world.sessions.load(&claim, 100).await?;
        anyhow::ensure!(loaded.waiting.len() == model.unread.len(), "input is lost");
        (model.state, model.loaded) = (State::Running, model.unread.len());
        subject.claim = Some(claim);
    }
    Ok(())
}

/// The turn finishes what it has loaded; input that came meanwhile is new.
async fn complete(
    subject: &mut Subject<'_>,
    model: &mut Model,
    wait: WaitFor,
) -> anyhow::Result<()> {
    let Some(claim) = subject.claim.take() else { return Ok(()) };
    let waiting = subject.world.sessions.load(&claim, 100).await?.waiting;
    let done = waiting.iter().take(model.loaded).map(|message| message.seq).collect();
    subject.world.finish(&claim, done, "an answer", wait.wait()).await?;
    model.unread.drain(..model.loaded);
    (model.state, model.loaded, model.crashes) = (State::Waits(wait), 0, 0);
    model.wake();
    Ok(())
}

async fn deadline(subject: &Subject<'_>, model: &mut Model) -> anyhow::Result<()> {
    let sql =
        "update session.session_lease set wait_until = clock_timestamp() - interval '1 second'
               where wait_until is not null";
    subject.world.admin(sql).await?;
    subject.world.sweep().await?;
    if matches!(model.state, State::Waits(WaitFor::Message | WaitFor::Event)) {
        model.state = State::Ready;
    }
    Ok(())
}

async fn check(world: &World, operations: &[Operation]) -> anyhow::Result<()> {
    let tenant = world.tenant();
    let session = SessionId::generate();
    let mut subject = Subject { world, tenant, session, claim: None, number: 0 };
    let mut model = Model {
        state: State::Waits(WaitFor::Anything),
        is_paused: false,
        unread: Vec::new(),
        loaded: 0,
        crashes: 0,
    };
    let first = Operation::Message { matches: true };
    for (at, operation) in std::iter::once(&first).chain(operations).enumerate() {
        make(&mut subject, &mut model, *operation).await?;
        // What is below a pause shows when it ends.
        if !model.is_paused {
            let state = subject.state().await?;
            let is_expected = state == model.expected();
            anyhow::ensure!(is_expected, "{at}: {operation:?} gives {state:?}: {model:?}");
        }
    }
    // The next case claims sessions of its own only.
    world.admin("delete from session.session_lease").await?;
    Ok(())
}

#[test]
fn the_states_of_a_session_are_those_of_the_model_whoever_acts() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let world = runtime.block_on(World::start())?;
    let operations = prop::collection::vec(operation(), 1..24);
    let config =
        ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config).run(&operations, |operations| {
        let checked = runtime.block_on(check(&world, &operations));
        checked.map_err(|error| TestCaseError::fail(format!("{error:#}")))
    })?;
    Ok(())
}
