//! Shipped catalogue, and a tenant's additions.

use super::*;

fn id(text: &str) -> ModelId {
    text.parse().unwrap()
}

fn card(text: &str) -> &'static ModelCard {
    Catalogue::built_in().card(&id(text))
}

#[test]
fn the_file_can_be_read_and_says_of_when_it_is() {
    let file: File = serde_json::from_str(BUILT_IN).unwrap();

    assert_eq!(file.as_of.len(), "2026-11-22".len());
    assert_eq!(Catalogue::built_in().models().count(), file.models.len());
    let is_alive = |model: &ModelId| {
        !file.retired.get(model).is_some_and(|retired| retired.is_off(&file.as_of))
    };
    for (alias, model) in &file.aliases {
        assert!(file.models.contains_key(model) && is_alive(model), "{alias} -> {model}");
    }
    for model in &file.suggested {
        assert!(file.models.contains_key(model) || model.provider() == "openrouter", "{model}");
        assert!(!file.retired.contains_key(model), "{model} is retired");
    }
    for (model, retired) in &file.retired {
        let successor = &retired.successor;
        assert!(file.models.contains_key(successor) && is_alive(successor), "{model}");
        assert_ne!(model, successor);
    }
    for (model, card) in &file.models {
        assert!(u64::from(card.max_output) <= card.context, "{model}");
        if let Some(prices) = card.prices {
            assert!(prices.cached.unwrap_or_default() <= prices.input, "{model}");
            assert!(prices.written.unwrap_or(prices.input) >= prices.input, "{model}");
            assert!(prices.input <= prices.output, "{model}");
        }
    }
}

#[test]
fn the_file_is_what_the_script_makes_of_the_public_list() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/dev/models.py");
    let checked = std::process::Command::new("python3").args([script, "check"]).output().unwrap();

    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn a_model_is_found_under_each_of_its_names() {
    let sonnet = card("anthropic:claude-sonnet-4-5");
    assert!(sonnet.images && sonnet.context >= 200_000);

    for other in [
        "anthropic:claude-sonnet-4-5-20250929",
        "claude:claude-sonnet-4-5",
        "my-own-account:claude-sonnet-4-5",
        "my-own-account:claude-sonnet-4-5-20250929",
    ] {
        assert_eq!(card(other), sonnet, "{other}");
    }
    assert_eq!(card("openai:gpt-5-2025-08-07"), card("openai:gpt-5"));
}

#[test]
fn a_retired_model_is_known_under_each_name_of_its_provider() {
    let retired = |name: &str| {
        Catalogue::built_in().retired(&id(name)).map(|retired| retired.successor.to_string())
    };

    assert_eq!(retired("deepseek:deepseek-chat").as_deref(), Some("deepseek:deepseek-flash"));
    assert_eq!(retired("kimi:kimi-k2-thinking").as_deref(), Some("moonshot:kimi-k3"));
    assert_eq!(retired("deepseek:deepseek-flash"), None);
    let announced = Catalogue::built_in().retired(&id("openai:gpt-5")).unwrap();
    assert!(!announced.is_off("2026-12-10") && announced.is_off("2026-12-11"));
    let some_year = RetiredModel { on: "2026".into(), ..announced.clone() };
    assert!(some_year.is_off("2026-01-01") && !some_year.is_off("2025-12-31"));
}

#[test]
fn a_model_that_nobody_knows_is_believed_to_be_small() {
    let unknown = card("ollama:nobodys-model:4b");

    assert_eq!(unknown, &ModelCard::default());
    assert_eq!((unknown.context, unknown.max_output), (32_768, 4_096));
    assert_eq!(
        (unknown.images, unknown.thinking.by, unknown.prices),
        (false, ThinkingForm::No, None)
    );
}

#[test]
fn an_alias_is_found_in_any_case_and_leads_to_a_known_model() {
    for alias in ["sonnet", "opus", "haiku", "gpt", "gemini", "Sonnet"] {
        let model = Catalogue::built_in().alias(alias).unwrap();
        assert!(Catalogue::built_in().find(model).is_some(), "{alias}");
    }
}

#[test]
fn a_tenant_knows_better_and_besides() {
    let supplement: Supplement = serde_json::from_str(
        r#"{
            "models": {
                "openai:gpt-4o": { "context": 1000, "max_output": 10, "prices": { "input": 1, "output": 2 } },
                "ollama:mine": { "context": 8192, "images": true, "thinking": { "by": "switch" } }
            },
            "aliases": { "gpt": "ollama:mine" }
        }"#,
    )
    .unwrap();

    let catalogue = Catalogue::built_in().with(supplement);

    assert_eq!(catalogue.card(&id("openai:gpt-4o")).context, 1_000);
    let mine = catalogue.card(&id("ollama:mine"));
    assert_eq!((mine.max_output, mine.thinking.by), (4_096, ThinkingForm::Switch));
    assert_eq!(catalogue.alias("gpt"), Some(&id("ollama:mine")));
    assert_eq!(catalogue.alias("opus"), Catalogue::built_in().alias("opus"));
    assert_eq!(card("openai:gpt-4o").context, 128_000);
    assert!(serde_json::from_str::<Supplement>(r#"{ "model": {} }"#).is_err());
}

#[test]
fn only_a_date_is_left_aside() {
    for (id, without) in [
        ("claude-sonnet-4-20250514", "claude-sonnet-4"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5", "gpt-5"),
        ("model-12345678", "model"),
        ("model-1234567x", "model-1234567x"),
        ("20250514", "20250514"),
        ("qwen3:4b", "qwen3"),
        ("größe-20250514", "größe"),
        ("ß-2025-08-0x", "ß-2025-08-0x"),
    ] {
        assert_eq!(without_date_or_tag(id), without);
    }
}

#[test]
fn ids_of_bedrock_are_those_of_anthropics_models() {
    let card = |id: &str| Catalogue::built_in().find(&id.parse().unwrap()).cloned();
    let own = card("anthropic:claude-sonnet-4-5");

    assert!(own.is_some());
    for id in [
        "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "mine:global.anthropic.claude-sonnet-4-5",
    ] {
        assert_eq!(card(id), own, "{id}");
    }
    assert_eq!(card("bedrock:us.anthropic.claude-unknown-v1:0"), None);
}
