//! Questions of gateways that any runner of the pool can answer.

use std::sync::Arc;

use holdfast_bus::{Error, PromptQuestion, Questions};
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{mcp_servers::answer_probe, model_questions::answer_model_question};
use crate::{turn::prompt::question::answer_prompt_question, worker::Worker};

pub(crate) async fn answer_gateways(worker: Arc<Worker>, stop: CancellationToken) {
    let (bus, pool) = (&worker.bus, &worker.config.pool);
    tokio::join!(
        answer_each(&worker, bus.mcp_probes(pool), answer_probe, &stop),
        answer_each(&worker, bus.model_questions(pool), answer_model_question, &stop),
        answer_each(&worker, PromptQuestion::of_pool(bus, pool), answer_prompt_question, &stop),
    );
}

/// Answers the questions of a subscription until `stop`, each on a task of its own.
async fn answer_each<Q, A, F>(
    worker: &Arc<Worker>,
    subscribed: impl Future<Output = Result<Questions, Error>>,
    answer: impl Fn(Arc<Worker>, Q) -> F,
    stop: &CancellationToken,
) where
    Q: DeserializeOwned,
    A: Serialize + Send + Sync + 'static,
    F: Future<Output = A> + Send + 'static,
{
    let mut questions = match stop.run_until_cancelled(subscribed).await {
        Some(Ok(questions)) => questions,
        Some(Err(error)) => {
            debug!(%error, "nobody can ask this runner a question");
            return;
        }
        None => return,
    };
    while let Some(Some((question, asker))) = stop.run_until_cancelled(questions.next::<Q>()).await
    {
        let answer = answer(Arc::clone(worker), question);
        tokio::spawn(async move { asker.answer(&answer.await).await });
    }
}
