//! The definitions of the resources: generated files, and what the API server refuses by them.

use std::path::Path;

use serde_json::{Value, json};

use crate::world::{World, resource};

#[test]
fn the_chart_has_the_definitions_that_the_code_generates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helm/holdfast/files/crds");
    let definitions = operator::definitions().unwrap();
    if std::env::var_os("HOLDFAST_WRITE_CRDS").is_some() {
        for (name, text) in &definitions {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }
    let files = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(files, definitions.len(), "a file in {} is of no resource", folder.display());
    for (name, text) in definitions {
        let there = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(
            there == text,
            "helm/holdfast/files/crds/{name} differs from the code: run this test with \
             HOLDFAST_WRITE_CRDS=1"
        );
    }
}

#[tokio::test]
async fn what_a_resource_cannot_be_is_refused_with_what_to_do() {
    let world = World::start().await;
    let refused = |kind: &str, spec: Value| {
        let refused = world.kube.apply(&resource(kind, "x", &spec), "anna").unwrap_err();
        refused["message"].as_str().unwrap().to_owned()
    };
    let secret = json!({"name": "s", "key": "k"});
    for (kind, spec, told) in [
        ("Agent", json!({}), "spec.tenant: Required value"),
        ("Agent", json!({"tenant": "a", "tols": ["read"]}), "field not declared in schema"),
        ("Agent", json!({"tenant": "a", "queueMode": "later"}), "Unsupported value"),
        ("Agent", json!({"tenant": "a", "name": "A b"}), "should match"),
        ("Agent", json!({"tenant": "a", "tools": ["read"], "noTools": true}), "not both"),
        (
            "Agent",
            json!({"tenant": "a", "fallbacks": ["a:1", "a:2", "a:3", "a:4", "a:5", "a:6"]}),
            "items",
        ),
        ("Tenant", json!({"weight": 101}), "out of range"),
        ("Tenant", json!({"name": "-x"}), "should match"),
        ("Channel", json!({"tenant": "a", "type": "fax", "secret": secret}), "Unsupported value"),
        ("Channel", json!({"tenant": "a"}), "spec.type: Required value"),
        (
            "Channel",
            json!({"tenant": "a", "type": "slack", "secrets": {"bot_token": "xoxb-1"}}),
            "must be of type",
        ),
        (
            "Channel",
            json!({"tenant": "a", "type": "webhook", "secret": "s3cret"}),
            "must be of type",
        ),
        (
            "ModelProvider",
            json!({"tenant": "a", "kind": "demo", "apiKey": secret}),
            "remove `apiKey`",
        ),
        ("ModelProvider", json!({"tenant": "a", "kind": "openai", "baseUrl": "h"}), "should match"),
    ] {
        let message = refused(kind, spec.clone());
        assert!(message.contains(told), "{kind} {spec}: {message}");
    }
    let dotted = world.kube.apply(&resource("Agent", "a.b", &json!({"tenant": "a"})), "anna");
    assert!(dotted.unwrap_err().to_string().contains("set `spec.name`"));
}

#[tokio::test]
async fn names_tenants_and_types_never_change() {
    let world = World::start().await;
    let secret = json!({"name": "s", "key": "k"});
    for (kind, before, after) in [
        ("Agent", json!({"tenant": "a", "name": "x"}), json!({"name": "y"})),
        ("Agent", json!({"tenant": "a", "name": "x"}), json!({"tenant": "b"})),
        ("Agent", json!({"tenant": "a"}), json!({"name": "y"})),
        ("Agent", json!({"tenant": "a", "name": "x"}), json!({"name": null})),
        ("Tenant", json!({"name": "x"}), json!({"name": "y"})),
        (
            "Channel",
            json!({"tenant": "a", "type": "webhook", "secret": secret}),
            json!({"type": "telegram"}),
        ),
        ("ModelProvider", json!({"tenant": "a", "kind": "demo"}), json!({"tenant": "b"})),
    ] {
        world.kube.create(&resource(kind, "x", &before)).unwrap();
        let refused = world.kube.merge(kind, "x", json!({"spec": after})).unwrap_err();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("never changes: create another resource"), "{kind}: {message}");
        // Other changes are possible.
        let policy = json!({"spec": {"deletionPolicy": "Retain"}});
        world.kube.merge(kind, "x", policy).unwrap();
        world.kube.delete(kind, "x").unwrap();
    }
}

#[tokio::test]
async fn the_examples_of_the_manual_are_applied() {
    let world = World::start().await;
    let _operator = world.operator().await;
    let manual = include_str!("../../../../docs/operator.md");
    let mut count = 0;
    let blocks = manual.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    for document in blocks.flat_map(|block| block.split("---\n")) {
        let object: Value = serde_saphyr::from_str(document).unwrap();
        // Of the kind `Routing` are documents for `holdfast apply` only.
        if object["kind"].is_null() || object["kind"] == "Routing" {
            continue;
        }
        count += 1;
        if object["kind"] == "Secret" {
            world.kube.create(&object).unwrap();
        } else {
            world.kube.apply(&object, "anna").unwrap_or_else(|error| panic!("{document}: {error}"));
        }
    }
    assert!(count >= 6, "{count}");
    for kind in ["Tenant", "ModelProvider", "Agent", "Channel"] {
        for object in world.kube.list(kind) {
            world.until_ready(kind, object["metadata"]["name"].as_str().unwrap()).await;
        }
    }
    world.check();
}
