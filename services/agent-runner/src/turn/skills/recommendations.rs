//! Skill recommendations for a message, in the dynamic part of the prompt (spec CTX-008 to
//! CTX-013).
//!
//! Only for agents whose owner enables it: it costs one query per turn and, if a model is
//! configured and several skills may fit, one short request. A failure never stops the turn.

use std::{sync::Arc, time::Duration};

use holdfast_agent::recommend::{
    Candidate, Channels, Recommendation, SELECTION_OUTPUT_TOKENS, SELECTION_TEMPERATURE, Scoring,
    Shortlist, Skill, SkillUsage, Weights, are_wanted, parse_selection, selection_chat, shortlist,
};
use holdfast_llm::{Delta, Request};
use holdfast_types::{AgentKind, Chat, Entry};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    agents::{
        selections::SelectionCache,
        snapshots::{AgentLookup, AgentSnapshot},
    },
    error::Error,
    turn::{budget, state::TurnState, think},
};

/// Recommended skills.
const MAX_RECOMMENDED: usize = 5;

/// Time limit of the model's choice.
const SELECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Determines, once per turn, the skills that may fit the last message.
pub(crate) async fn recommend_skills(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
) -> Result<(), Error> {
    let Some(wanted) = snapshot.context.recommend_skills.clone() else { return Ok(()) };
    let is_told = snapshot.kind == AgentKind::Embedded && are_wanted(&snapshot.context);
    if turn.recommended.is_some() || !is_told {
        return Ok(());
    }
    let skills = recommendable_skills(snapshot);
    if skills.is_empty() {
        return Ok(());
    }
    let Some(said) = last_message(turn) else { return Ok(()) };
    let place = turn.conversation_target();
    let channel = place.map(|place| place.channel).unwrap_or_default();
    let used = turn.worker.workspaces.skill_uses(turn.lease.claim.tenant, snapshot.agent).await;
    let used = used.unwrap_or_else(|error| {
        warn!(error = &error as &dyn std::error::Error, "the uses of skills are not known");
        Vec::new()
    });
    let uses: Vec<SkillUsage<'_>> =
        used.iter().map(|one| SkillUsage { skill: &one.skill, age: one.age }).collect();
    let known: Vec<Skill<'_>> =
        skills.iter().map(|(name, description)| Skill { name, description }).collect();
    let weights = wanted.weights.map(|parts| parts.map(|part| f64::from(part) / 100.0));
    let weights = weights.and_then(|[a, b, c, d]| Weights::new(a, b, c, d).ok());
    let words = &turn.worker.config.prompt.channel_words;
    let channels = words.iter().fold(Channels::default(), |all, (kind, own)| all.with(kind, own));
    let scoring = Scoring { weights: weights.unwrap_or_default(), channels };
    let fit = shortlist(&known, &said, &channel, &uses, &scoring);
    let chosen = match (Shortlist::from(fit), &wanted.model) {
        (Shortlist::Decided(chosen), _) => chosen,
        (Shortlist::Open(fit), None) => fit.into_iter().map(Recommendation::from).collect(),
        (Shortlist::Open(fit), Some(model)) => {
            let chat = selection_chat(&fit, &said, &channel);
            let chosen = select(turn, snapshot, model, &fit, chat).await?;
            chosen.unwrap_or_else(|| fit.into_iter().map(Recommendation::from).collect())
        }
    };
    metrics::counter!("holdfast_runner_skills_recommended_total")
        .increment(chosen.len().min(MAX_RECOMMENDED) as u64);
    turn.recommended =
        Some(chosen.into_iter().take(MAX_RECOMMENDED).map(|one| one.skill).collect());
    Ok(())
}

/// Names and descriptions of the skills that can be recommended.
fn recommendable_skills(snapshot: &AgentSnapshot) -> Vec<(String, String)> {
    let skill_set = &snapshot.skills.skill_set;
    let excluded = snapshot.context.exclude_skills.as_deref().unwrap_or_default();
    let shown =
        skill_set.visible_skills(&[]).filter(|skill| !excluded.iter().any(|e| e == skill.name()));
    shown.map(|s| (s.name().to_owned(), s.manifest.description.clone())).collect()
}

fn last_message(turn: &TurnState<'_>) -> Option<String> {
    turn.journal.turn().iter().rev().find_map(|entry| match entry {
        Entry::Heard { body, .. } if super::invocation::is_from_person(body) => {
            Some(body.text_and_speech().into_owned()).filter(|text| !text.trim().is_empty())
        }
        Entry::Heard { .. }
        | Entry::Thought { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    })
}

/// Lets a model choose, unless it has already chosen for the same message and skills; `None` if it
/// gives no usable answer.
async fn select(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    model: &str,
    fit: &[Candidate<'_>],
    chat: Chat,
) -> Result<Option<Vec<Recommendation>>, Error> {
    let key = SelectionCache::key(turn.lease.claim.tenant, model, &chat);
    let kept = turn.worker.selections.get(&key);
    let answer = match &kept {
        Some(_) => kept.clone(),
        None => ask_selection_model(turn, snapshot, model, chat).await?,
    };
    let Some(answer) = answer else { return Ok(None) };
    let chosen = parse_selection(fit, &answer).ok();
    if kept.is_none() && chosen.is_some() {
        turn.worker.selections.store(key, answer);
    }
    Ok(chosen)
}

/// Asks a model which skills would help; `None` if it gives no answer.
async fn ask_selection_model(
    turn: &mut TurnState<'_>,
    snapshot: &AgentSnapshot,
    model: &str,
    chat: Chat,
) -> Result<Option<String>, Error> {
    let (tenant, agents) = (turn.lease.claim.tenant, &turn.worker.agents);
    let found = agents.find(tenant, snapshot.agent, Some(model.to_owned())).await?;
    let AgentLookup::Ready(asking) = found else { return Ok(None) };
    turn.ensure_owned().await?;
    let until = (Instant::now() + SELECTION_TIMEOUT.min(turn.worker.config.model_timeout))
        .min(turn.deadline);
    let mut request = Request {
        max_output: Some(SELECTION_OUTPUT_TOKENS),
        temperature: Some(SELECTION_TEMPERATURE),
        card: Some(Arc::clone(&asking.card)),
        ..Request::new(asking.model_id.clone(), chat, until)
    };
    if budget::reserve(turn, &asking, &mut request).await?.is_some() {
        return Ok(None);
    }
    let (began, cancelled) = (Instant::now(), CancellationToken::new());
    let mut pass_over = |_: Delta| {};
    let replied = tokio::select! {
        replied = asking.model.reply(&request, &mut pass_over, &cancelled) => Some(replied),
        unwanted = think::until_interrupted(turn) => {
            unwanted?;
            budget::charge_read(turn);
            None
        }
    };
    turn.timing.model += began.elapsed();
    let answer = match replied {
        None => None,
        Some(Ok(reply)) => {
            turn.journal.charge_reply(&reply.model, &reply.usage);
            Some(reply.text)
        }
        Some(Err(error)) => {
            info!(error = &error as &dyn std::error::Error, "no model chose among the skills");
            None
        }
    };
    budget::release_reservation(turn).await;
    Ok(answer)
}
