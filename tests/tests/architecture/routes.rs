//! Every HTTP route is in the description that the gateway serves, and nothing else is.

use std::collections::BTreeSet;

use holdfast_testkit::openapi::Description;

use super::syntax;

/// Routes of a source file, as `get /path`. A route of any method is one of `post`.
fn routes(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for after in text.split(".route(").skip(1) {
        let Some(rest) = after.trim_start().strip_prefix('"') else { continue };
        let Some((path, rest)) = rest.split_once('"') else { continue };
        let method =
            rest.trim_start_matches([',', ' ', '\n']).split('(').next().unwrap_or_default();
        let method = if method == "any_service" { "post" } else { method };
        // A wildcard of axum is an ordinary parameter in OpenAPI.
        found.insert(format!("{method} {}", path.replace("{*", "{")));
    }
    found
}

#[test]
fn the_description_of_the_http_api_has_every_route_and_no_other() {
    let mut built = BTreeSet::new();
    for parsed in syntax::production() {
        built.extend(routes(parsed.source.text.split("#[cfg(test)]").next().unwrap_or_default()));
    }

    assert!(built.len() > 8, "only {built:?} were found: is the scanner right?");
    let described = Description::read().unwrap().operations();
    assert_eq!(built, described, "write the difference into services/gateway/openapi.json");
}

#[test]
fn a_route_is_seen_in_all_its_forms() {
    let code = ".route(\"/a/{*b}\", get(c)).route(\n    \"/d\",\n    post(e),\n).route(\"/f\", any_service(g)).route(h, get(i))";

    let expected = ["get /a/{b}", "post /d", "post /f"].map(str::to_owned);
    assert_eq!(routes(code), BTreeSet::from(expected));
}
