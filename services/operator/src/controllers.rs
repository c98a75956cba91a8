//! The controllers of all kinds, as the leader runs them.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, channel::mpsc, future};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{
        Controller, Predicate as _, PredicateConfig, WatchStreamExt as _, controller,
        events::{Recorder, Reporter},
        predicates,
        reflector::{self, ObjectRef, store::Writer},
        watcher,
    },
};
use tracing::debug;

use crate::{
    FIELD_MANAGER,
    config::Operator,
    context::{Context, Watched},
    gateway::Gateway,
    reconcile::{self, Reconciled},
    resources::{Managed, SecretReference},
    tenant_keys,
};

/// What a controller needs besides the context.
struct Inputs<K: Managed> {
    writer: Writer<K>,
    triggers: mpsc::UnboundedReceiver<ObjectRef<K>>,
}

/// Reconciles until it is dropped.
pub async fn run(
    client: Client,
    gateway: Gateway,
    settings: Operator,
    namespace: String,
    identity: String,
) {
    let (tenants, of_tenants) = watched();
    let (agents, of_agents) = watched();
    let (channels, of_channels) = watched();
    let (providers, of_providers) = watched();
    let reporter = Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(identity) };
    let recorder = Recorder::new(client.clone(), reporter);
    let watched = (tenants, agents, channels, providers);
    let context = Arc::new(Context::new(client, gateway, settings, namespace, recorder, watched));
    tokio::join!(
        control(context.clone(), of_tenants),
        control(context.clone(), of_agents),
        control(context.clone(), of_channels),
        control(context.clone(), of_providers),
        watch_secrets(context),
    );
}

fn watched<K: Managed>() -> (Watched<K>, Inputs<K>) {
    let (store, writer) = reflector::store();
    let (triggers, receiver) = mpsc::unbounded();
    (Watched::new(store, triggers), Inputs { writer, triggers: receiver })
}

async fn control<K: Reconciled>(context: Arc<Context>, inputs: Inputs<K>) {
    let relevant =
        predicates::generation.combine(predicates::annotations).combine(predicates::finalizers);
    let listed = context.clone();
    let changes = watcher(context.api::<K>(), watcher::Config::default())
        .default_backoff()
        .reflect(inputs.writer)
        .inspect_ok(move |event| {
            if matches!(event, watcher::Event::InitDone) {
                K::watched(&listed).set_listed();
            }
        })
        .applied_objects()
        // The operator's own writes of a status are no reason to reconcile.
        .predicate_filter(relevant, PredicateConfig::default());
    let concurrency = context.settings.concurrency;
    Controller::for_stream(changes, K::watched(&context).store.clone())
        .reconcile_on(inputs.triggers)
        .with_config(controller::Config::default().concurrency(concurrency))
        .run(reconcile::reconcile, reconcile::retry, context)
        .for_each(|outcome| {
            // Failures of resources are in their conditions; the rest is tried again.
            if let Err(error) = outcome {
                debug!(error = &error as &dyn std::error::Error, "a reconciliation failed");
            }
            future::ready(())
        })
        .await;
}

/// Reconciles what refers to a Secret when it changes. Only metadata of Secrets is cached.
async fn watch_secrets(context: Arc<Context>) {
    let metadata: Api<PartialObjectMeta<Secret>> =
        Api::namespaced(context.client.clone(), &context.namespace);
    watcher(metadata, watcher::Config::default())
        .default_backoff()
        .touched_objects()
        .for_each(|changed| {
            match changed {
                Ok(secret) => secret_changed(&context, &secret),
                Err(error) => {
                    debug!(error = &error as &dyn std::error::Error, "a watch failed");
                }
            }
            future::ready(())
        })
        .await;
}

fn secret_changed(context: &Context, secret: &PartialObjectMeta<Secret>) {
    let name = secret.name_any();
    if let Some(tenant) = tenant_keys::tenant_of(&name) {
        context.forget_key(tenant);
        context.tenants.trigger(|known| known.name_any() == tenant);
    }
    let refers = |secrets: Vec<&SecretReference>| secrets.iter().any(|secret| secret.name == name);
    context.channels.trigger(|channel| refers(channel.secrets()));
    context.providers.trigger(|provider| refers(provider.secrets()));
}
