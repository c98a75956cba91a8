//! Packages that are read, refused, and written as they were.

use proptest::prelude::*;

use super::*;

const FULL: &str = r#"
name: travel-agent
version: "1.0"
author: Ada
agent:
  id: travel
  prompt: |
    You plan journeys.
    Ask before you book.
tools: [web_search, mcp.maps.*]
routing:
  pattern: "(?i)trip|journey"
behaviors:
  default: plan
  max_hops: 3
  documents:
    plan: |
      process_rule: Plan.
hit_points: {max: 50, floor: 5}
"#;

fn full() -> AgentPackage {
    AgentPackage {
        name: "travel-agent".parse().unwrap(),
        version: "1.0".to_owned(),
        author: Some("Ada".to_owned()),
        agent: PackagedAgent {
            id: AgentName::new("travel"),
            prompt: "You plan journeys.\nAsk before you book.\n".to_owned(),
        },
        tools: Some(vec!["web_search".to_owned(), "mcp.maps.*".to_owned()]),
        routing: Some(PackagedRoute { pattern: "(?i)trip|journey".to_owned() }),
        behaviors: Some(PackagedBehaviors {
            default: Some("plan".to_owned()),
            max_hops: Some(3),
            documents: [("plan".to_owned(), "process_rule: Plan.\n".to_owned())].into(),
            ..PackagedBehaviors::default()
        }),
        hit_points: Some(HitPointSettings { max: 50, floor: 5, ..HitPointSettings::default() }),
    }
}

#[test]
fn all_of_a_package_is_read_and_written_for_people() {
    assert_eq!(AgentPackage::read("f", FULL.as_bytes()).unwrap(), full());

    let written = full().write().unwrap();

    assert!(written.contains("prompt: |\n"), "{written}");
    assert_eq!(AgentPackage::read("f", written.as_bytes()).unwrap(), full());
    assert_eq!(full().file_name(), "travel-agent.skill.yaml");
}

#[test]
fn no_list_of_tools_is_not_an_empty_one() {
    let read = |tools: &str| {
        let text = format!("name: a\nversion: '1'\nagent: {{ id: a, prompt: b }}\n{tools}");
        AgentPackage::read("f", text.as_bytes()).unwrap()
    };

    for (text, tools) in [("", None), ("tools: []", Some(vec![]))] {
        let package = read(text);
        assert_eq!(package.tools, tools);
        let written = package.write().unwrap();
        assert_eq!(AgentPackage::read("f", written.as_bytes()).unwrap().tools, tools, "{written}");
    }
}

#[test]
fn an_error_names_the_file_the_field_and_what_to_write() {
    let with = |from: &str, to: &str| FULL.replace(from, to);
    for (text, told) in [
        (with("name: travel-agent", "name: travel agent"), "`name` cannot be taken"),
        (with("name: travel-agent\n", ""), "`name` is missing: write `name: travel-agent`"),
        (with("version: \"1.0\"\n", ""), "`version` is missing"),
        (
            with("id: travel", "id: Travel Agent"),
            "`agent.id` is no name of an agent: write `id: travel-agent`",
        ),
        (with("  id: travel\n", ""), "`agent.id` is missing"),
        (with("author: Ada", "autor: Ada"), "`autor` is no field: there are `name`, `version`"),
        (with("  id: travel", "  model: x\n  id: travel"), "`agent.model` is no field"),
        (with("web_search", "\"web search\""), "`tools` has `web search`"),
        (with("(?i)trip|journey", " "), "`routing.pattern` is missing"),
        (with("max_hops: 3", "max_hops: x"), "`behaviors.max_hops` must be a whole number"),
        (with("max_hops", "hops"), "`behaviors.hops` is no field"),
        (
            with("process_rule: Plan.", "process_rule: \"{{nothing}}\""),
            "`behaviors.documents.plan` cannot be used",
        ),
        (
            with("process_rule: Plan.", "name: do\n      process_rule: Plan."),
            "`behaviors.documents.plan` has another name",
        ),
        (with("floor: 5", "floor: 500"), "`hit_points` `floor` is below `max`"),
        (with("max: 50", "maximum: 50"), "`hit_points.maximum` is no field"),
        ("- a".to_owned(), "is no list of fields"),
        ("{".to_owned(), "f: "),
    ] {
        let error = AgentPackage::read("f", text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(told) && error.starts_with("f: "), "{error}");
    }
    assert!(AgentPackage::read("f", b"\xff").is_err());
}

#[test]
fn what_could_not_be_read_again_is_not_written() {
    let mut package = full();
    package.author = Some(" Ada ".to_owned());
    assert!(package.write().is_err());
}

fn short() -> impl Strategy<Value = String> {
    "[!-~é日]([ -~é日]{0,30}[!-~é日])?|true|null|~|1e3|0x1f|- a|'|\"|#"
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same(
        name in "[a-z0-9]{1,8}(-[a-z0-9]{1,8}){0,2}",
        version in short(),
        author in prop::option::of(short()),
        id in "[a-z0-9]{1,10}",
        prompt in "[ \t]{0,3}[\\PC\n]{0,60}x[\\PC\n\t ]{0,60}|x{100}( x{50}){3}",
        tools in prop::option::of(prop::collection::btree_set("[a-z_.:*0-9-]{1,12}", 0..5)),
        pattern in prop::option::of(short()),
    ) {
        let package = AgentPackage {
            name: name.parse().unwrap(),
            version,
            author,
            agent: PackagedAgent { id: AgentName::new(&id), prompt },
            tools: tools.map(|tools| tools.into_iter().collect()),
            routing: pattern.map(|pattern| PackagedRoute { pattern }),
            behaviors: None,
            hit_points: None,
        };

        let written = package.write().unwrap();

        prop_assert_eq!(AgentPackage::read("f", written.as_bytes()).unwrap(), package);
    }

    #[test]
    fn whatever_is_in_a_file_it_is_read_or_refused(text in "(?s)(name: a\n|version: b\n|agent:\n|  id: a\n|  prompt: |tools: |[{\\[\\]}:,'\"&*!|>-]|\\PC|\n){0,30}") {
        if let Ok(package) = AgentPackage::read("f", text.as_bytes()) {
            prop_assert_eq!(AgentPackage::read("f", package.write().unwrap().as_bytes()).unwrap(), package);
        }
    }
}
