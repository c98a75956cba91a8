//! Reconciliation of one resource, the same for all kinds.
//!
//! ```text
//!  resource ──▶ claimed by an older one? ──▶ observe the gateway ──▶ as applied last? ──▶ done
//!                                                                        │ no
//!                                              status ◀── write ◀── finalizer
//! ```
//!
//! The finalizer is set before the first write: a resource with it may have something in the
//! gateway, and one without it has nothing. Each step can be repeated, so that a crash after any of
//! them is finished by the next attempt.

mod agents;
mod channels;
mod providers;
mod tenants;

use std::{sync::Arc, time::Duration};

use kube::{
    ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{
        controller::Action,
        events::{Event, EventType},
    },
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tracing::{debug, info, warn};

use crate::{
    FIELD_MANAGER,
    context::{Context, HasStore, SecretValue},
    error::Failure,
    resources::{DeletionPolicy, FINALIZER, ResourceStatus},
};

/// Maximum length of an event's note, in bytes.
const MAX_NOTE_BYTES: usize = 1_000;

/// State of an object in the gateway.
#[derive(Debug, Clone)]
pub struct Observed {
    pub id: String,
    /// All that the gateway tells of it, without times.
    pub state: Value,
}

/// The object after a write, and what the gateway warned about.
#[derive(Debug)]
pub struct WriteOutcome {
    /// The object as the gateway answered. It is not read again: a later change by somebody else
    /// would count as applied and never be corrected.
    pub observed: Observed,
    pub warnings: Vec<String>,
}

/// How a kind of resource is read from and written to the gateway.
pub trait Reconciled: HasStore {
    /// Reads the object.
    fn observe(
        &self,
        context: &Context,
    ) -> impl Future<Output = Result<Option<Observed>, Failure>> + Send;

    /// Creates or changes the object.
    fn write(
        &self,
        context: &Context,
        observed: Option<&Observed>,
        secrets: &[SecretValue],
    ) -> impl Future<Output = Result<WriteOutcome, Failure>> + Send;

    /// Does what is needed beside the object, each time the object is as desired.
    fn after(&self, _: &Context) -> impl Future<Output = Result<(), Failure>> + Send {
        async { Ok(()) }
    }

    /// Deletes only what the operator made for itself, since the object is retained.
    fn release(&self, _: &Context) -> impl Future<Output = Result<(), Failure>> + Send {
        async { Ok(()) }
    }

    /// Deletes the object. An object that is not there is no error.
    fn remove(&self, context: &Context) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Outcome of applying a resource.
struct Applied {
    observed: Observed,
    secret_version: Option<String>,
    /// Reason of the event; `None` if nothing was written.
    change: Option<&'static str>,
    warnings: Vec<String>,
}

/// Reconciles the resource with this name.
pub async fn reconcile<K: Reconciled>(
    cached: Arc<K>,
    context: Arc<Context>,
) -> Result<Action, Failure> {
    let (name, kind) = (cached.name_any(), K::kind(&()).into_owned());
    // Before their first list, caches would tell that others are missing. The controller waits for
    // the list of its own kind.
    context.tenants.until_listed().await;
    // The cache may be older than what this operator wrote.
    let Some(resource) = context.api::<K>().get_opt(&name).await? else {
        context.succeeded(&kind, &name);
        return Ok(Action::await_change());
    };
    let outcome = if resource.meta().deletion_timestamp.is_some() {
        finish(&resource, &context).await.map(|()| Action::await_change())
    } else {
        apply(&resource, &context).await.map(|()| Action::requeue(context.resync_delay()))
    };
    let outcome_word = if outcome.is_ok() { "done" } else { "failed" };
    metrics::counter!("holdfast_operator_reconciliations_total", "kind" => kind.clone(), "outcome" => outcome_word)
        .increment(1);
    match outcome {
        Ok(action) => {
            context.succeeded(&kind, &name);
            Ok(action)
        }
        Err(failure) => {
            if failure.is_refused_tenant_key()
                && let Some(tenant) = resource.tenant()
            {
                context.forget_key(tenant);
                context.tenants.trigger(|known| known.name_any() == tenant);
            }
            if !failure.is_of_api_server {
                report_failure(&resource, &context, &failure).await?;
            }
            Err(failure)
        }
    }
}

/// When a resource that failed is tried again.
pub fn retry<K: Reconciled>(resource: Arc<K>, failure: &Failure, context: Arc<Context>) -> Action {
    let (name, kind) = (resource.name_any(), K::kind(&()));
    debug!(%kind, name, reason = failure.reason, "a resource could not be reconciled");
    let delay = context.retry_delay(&kind, &name);
    Action::requeue(delay.max(failure.retry_after.unwrap_or(Duration::ZERO)))
}

async fn apply<K: Reconciled>(resource: &K, context: &Context) -> Result<(), Failure> {
    let known = resource.status().cloned().unwrap_or_default();
    let generation = resource.meta().generation;
    if let Some(other) = older_claimant(resource, context) {
        return Err(Failure::new(
            "NameTaken",
            format!("{} `{other}` describes the same object", K::kind(&())),
            "delete one of the two, or give this one another `name` by creating it anew",
        ));
    }
    let mut secrets = Vec::new();
    for wanted in resource.secrets() {
        secrets.push(context.secret_value(wanted).await?);
    }
    let versions: Vec<&str> = secrets.iter().map(|secret| secret.version.as_str()).collect();
    let secret_version = Some(versions.join(",")).filter(|versions| !versions.is_empty());
    let observed = resource.observe(context).await?;
    let is_applied = known.is_ready()
        && known.observed_generation == generation
        && known.secret_version == secret_version
        && observed.as_ref().is_some_and(|observed| known.applied == Some(digest(&observed.state)));
    let applied = match observed {
        Some(observed) if is_applied => {
            Applied { observed, secret_version, change: None, warnings: Vec::new() }
        }
        before => {
            set_finalizer(resource, context, true).await?;
            let WriteOutcome { observed, warnings } =
                resource.write(context, before.as_ref(), &secrets).await?;
            let change = change(&known, before.as_ref(), &observed, generation);
            Applied { observed, secret_version, change, warnings }
        }
    };
    resource.after(context).await?;
    report_applied(resource, context, known, applied).await
}

/// Reason of the event for a write.
fn change(
    known: &ResourceStatus,
    before: Option<&Observed>,
    after: &Observed,
    generation: Option<i64>,
) -> Option<&'static str> {
    match before {
        None if known.applied.is_none() => Some("Created"),
        None => Some("Recreated"),
        Some(_) if known.applied.is_none() => Some("Adopted"),
        Some(_) if known.observed_generation != generation => Some("Updated"),
        Some(before) if before.state != after.state => Some("DriftCorrected"),
        Some(_) => Some("Updated").filter(|_| known.is_ready()),
    }
}

/// Deletes what a resource describes, and lets the resource go.
async fn finish<K: Reconciled>(resource: &K, context: &Context) -> Result<(), Failure> {
    if !resource.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        return Ok(());
    }
    if !is_claimed_by_another(resource, context) {
        let (reason, done) = match resource.deletion_policy() {
            DeletionPolicy::Retain => {
                resource.release(context).await?;
                ("Retained", "left in the gateway")
            }
            DeletionPolicy::Delete => {
                let tenant = resource.tenant();
                if !tenant.is_some_and(|tenant| context.is_tenant_gone(tenant)) {
                    resource.remove(context).await?;
                }
                ("Deleted", "deleted in the gateway")
            }
        };
        publish(resource, context, EventType::Normal, reason, done.to_owned()).await;
    }
    set_finalizer(resource, context, false).await
}

/// Name of an older resource with the same claim.
fn older_claimant<K: Reconciled>(resource: &K, context: &Context) -> Option<String> {
    let age = |resource: &K| (resource.creation_timestamp(), resource.uid());
    let is_older = |other: &K| {
        other.uid() != resource.uid()
            && other.claim() == resource.claim()
            && age(other) < age(resource)
    };
    K::watched(context).store.find(is_older).map(|other| other.name_any())
}

fn is_claimed_by_another<K: Reconciled>(resource: &K, context: &Context) -> bool {
    let is_other = |other: &K| {
        other.uid() != resource.uid()
            && other.claim() == resource.claim()
            && other.meta().deletion_timestamp.is_none()
    };
    K::watched(context).store.find(is_other).is_some()
}

/// Adds or removes the finalizer, unless the resource was changed meanwhile.
async fn set_finalizer<K: Reconciled>(
    resource: &K,
    context: &Context,
    is_wanted: bool,
) -> Result<(), Failure> {
    let mut finalizers = resource.finalizers().to_vec();
    if finalizers.iter().any(|finalizer| finalizer == FINALIZER) == is_wanted {
        return Ok(());
    }
    if is_wanted {
        finalizers.push(FINALIZER.to_owned());
    } else {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    let patch = json!({"metadata": {
        "resourceVersion": resource.resource_version(), "finalizers": finalizers,
    }});
    let parameters =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    context.api::<K>().patch(&resource.name_any(), &parameters, &Patch::Merge(patch)).await?;
    Ok(())
}

async fn report_applied<K: Reconciled>(
    resource: &K,
    context: &Context,
    known: ResourceStatus,
    applied: Applied,
) -> Result<(), Failure> {
    let generation = resource.meta().generation;
    let mut status = ResourceStatus {
        observed_generation: generation,
        id: Some(applied.observed.id),
        applied: Some(digest(&applied.observed.state)),
        secret_version: applied.secret_version,
        conditions: known.conditions.clone(),
    };
    let was_ready = known.is_ready();
    // Warnings come with writes only, and stay until the next one.
    if applied.change.is_some() || !was_ready {
        let (reason, message) = match applied.warnings.is_empty() {
            true => {
                ("Applied", "the gateway has what the resource describes; nothing to do".to_owned())
            }
            false => (
                "AppliedWithWarnings",
                format!(
                    "{}: correct the resource if this is not intended",
                    applied.warnings.join("; ")
                ),
            ),
        };
        status.set_ready(true, reason, message, generation);
    }
    write_status(resource, context, &known, status).await?;
    if let Some(reason) = applied.change {
        info!(kind = %K::kind(&()), name = resource.name_any(), reason, "a resource was applied");
        let note = match reason {
            "Created" => "created in the gateway",
            "Recreated" => "it was deleted in the gateway, and is there again",
            "Adopted" => "it was in the gateway already, and is managed from now on",
            "DriftCorrected" => "it was changed in the gateway, and is as described again",
            _ => "changed in the gateway",
        };
        publish(resource, context, EventType::Normal, reason, note.to_owned()).await;
    }
    Ok(())
}

async fn report_failure<K: Reconciled>(
    resource: &K,
    context: &Context,
    failure: &Failure,
) -> Result<(), Failure> {
    let known = resource.status().cloned().unwrap_or_default();
    let mut status = known.clone();
    status.set_ready(false, failure.reason, failure.to_string(), resource.meta().generation);
    let is_new = known.ready().map(|ready| &*ready.reason) != Some(failure.reason);
    write_status(resource, context, &known, status).await?;
    if is_new {
        warn!(
            kind = %K::kind(&()), name = resource.name_any(), reason = failure.reason,
            "a resource cannot be applied"
        );
        let note = failure.to_string();
        publish(resource, context, EventType::Warning, failure.reason, note).await;
    }
    Ok(())
}

async fn write_status<K: Reconciled>(
    resource: &K,
    context: &Context,
    known: &ResourceStatus,
    status: ResourceStatus,
) -> Result<(), Failure> {
    if *known == status {
        return Ok(());
    }
    let name = resource.name_any();
    let patch = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "metadata": {"name": name}, "status": status,
    });
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let written = context.api::<K>().patch_status(&name, &parameters, &Patch::Apply(patch)).await;
    match written {
        // It was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => Ok(written.map(drop)?),
    }
}

/// Publishes an event. A lost event changes nothing.
async fn publish<K: Reconciled>(
    resource: &K,
    context: &Context,
    type_: EventType,
    reason: &str,
    note: String,
) {
    let end = note.floor_char_boundary(MAX_NOTE_BYTES);
    let event = Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note[..end].to_owned()),
        action: "Reconcile".to_owned(),
        secondary: None,
    };
    let published = context.recorder.publish(&event, &resource.object_ref(&())).await;
    if let Err(error) = published {
        debug!(error = &error as &dyn std::error::Error, "an event was not published");
    }
}

/// SHA-256 of a state, in hex.
fn digest(state: &Value) -> String {
    let hash = Sha256::digest(state.to_string().as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
