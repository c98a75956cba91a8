//! The hostile tenant: all of its behaviours at once, each counted.
//!
//! Behaviours run on a thread of their own, so that the quiet tenant's calls do not wait for them within
//! this process. Their rates are small multiples of what the limits let through: more would measure how
//! fast this process can send.

use std::{rc::Rc, sync::Arc, thread};

use anyhow::{Context as _, anyhow, bail, ensure};
use sqlx::PgConnection;
use tokio::task::{JoinSet, LocalSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    behavior::{Counts, Target},
    calls, channels, strangers,
};

/// What a behaviour got.
#[derive(Debug, Clone, Copy)]
pub struct BehaviorCount {
    pub name: &'static str,
    pub accepted: usize,
    pub refused: usize,
}

/// A running attack; it ends with the value.
#[derive(Debug)]
pub struct Attack {
    /// Cancels `stop` when it is dropped.
    stop: DropGuard,
    thread: thread::JoinHandle<anyhow::Result<Vec<BehaviorCount>>>,
}

impl Attack {
    /// Begins with all behaviours but those with the names in `left_out`.
    pub fn start(target: Target, admin: PgConnection, left_out: &[String]) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, left_out) = (CancellationToken::new(), left_out.to_vec());
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let attacking = attack(Arc::new(target), (admin, left_out), stopped);
            LocalSet::new().block_on(&runtime, attacking)
        });
        Ok(Self { stop: stop.drop_guard(), thread })
    }

    /// Ends it, and returns what each behaviour got.
    ///
    /// # Errors
    ///
    /// If a behaviour has ended by itself, or was never answered: then nothing was measured.
    pub async fn stop(self) -> anyhow::Result<Vec<BehaviorCount>> {
        drop(self.stop);
        let ended = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        ended.map_err(|_panic| anyhow!("a behaviour panicked"))?
    }
}

/// Runs all behaviours until `stop`.
async fn attack(
    target: Arc<Target>,
    (admin, left_out): (PgConnection, Vec<String>),
    stop: CancellationToken,
) -> anyhow::Result<Vec<BehaviorCount>> {
    let mut behaviors = Behaviors { target, left_out, counts: Vec::new(), tasks: JoinSet::new() };
    behaviors.begin("messages", calls::flood_messages);
    behaviors.begin("huge-prompts", calls::send_huge_prompts);
    behaviors.begin("unread-streams", calls::leave_streams_unread);
    behaviors.begin("large-files", calls::rewrite_large_files);
    behaviors.begin("commands", calls::run_commands);
    behaviors.begin("jobs", |target, counts| calls::add_simultaneous_jobs(admin, target, counts));
    behaviors.begin("unread-websockets", calls::leave_websockets_unread);
    behaviors.begin("signed-webhooks", channels::post_signed_webhooks);
    behaviors.begin("forged-webhooks", channels::post_forged_webhooks);
    behaviors.begin("widget-visitors", channels::open_widgets);
    behaviors.begin("handshakes", strangers::leave_handshakes_open);
    behaviors.begin("silent-connections", strangers::hold_silent_connections);
    behaviors.begin("guessed-keys", strangers::guess_keys);
    let unknown = &behaviors.left_out;
    ensure!(unknown.is_empty(), "there is no behaviour `{}`", unknown.join("`, `"));

    tokio::select! {
        () = stop.cancelled() => {}
        Some(ended) = behaviors.tasks.join_next() => {
            let name = ended??;
            bail!("`{name}` ended before the attack");
        }
    }
    let mut totals = Vec::new();
    for (name, counts) in &behaviors.counts {
        let (accepted, refused) = counts.get();
        ensure!(accepted + refused > 0, "`{name}` was never answered");
        totals.push(BehaviorCount { name, accepted, refused });
    }
    Ok(totals)
}

/// Behaviours that have begun.
struct Behaviors {
    target: Arc<Target>,
    /// Names of behaviours that are not to begin, and have not been seen.
    left_out: Vec<String>,
    counts: Vec<(&'static str, Rc<Counts>)>,
    tasks: JoinSet<anyhow::Result<&'static str>>,
}

impl Behaviors {
    fn begin<F>(&mut self, name: &'static str, behavior: impl FnOnce(Arc<Target>, Rc<Counts>) -> F)
    where
        F: Future<Output = anyhow::Result<()>> + 'static,
    {
        if let Some(number) = self.left_out.iter().position(|left_out| left_out == name) {
            self.left_out.swap_remove(number);
            return;
        }
        let counts = Rc::<Counts>::default();
        let task = behavior(Arc::clone(&self.target), Rc::clone(&counts));
        self.counts.push((name, counts));
        self.tasks.spawn_local(async move {
            task.await.with_context(|| format!("`{name}` failed"))?;
            Ok(name)
        });
    }
}
