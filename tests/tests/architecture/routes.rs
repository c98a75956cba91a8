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
        let rest = rest.trim_start_matches([',', ' ', '\n']);
        let method = rest.split('(').next().unwrap_or_default();
        let method = if method == "any_service" { "post" } else { method };
        // A wildcard of axum is an ordinary parameter in OpenAPI.
        let path = path.replace("{*", "{");
        found.insert(format!("{method} {path}"));
        let chained = rest.split_once(')').map_or("", |(_, rest)| rest);
        if chained.starts_with(".delete(") {
            found.insert(format!("delete {path}"));
        }
    }
    found
}

#[test]
fn the_description_of_the_http_api_has_every_route_and_no_other() {
    let mut built = BTreeSet::new();
    for parsed in syntax::production() {
        let code = parsed.source.text.split("#[cfg(test)]").next().unwrap_or_default();
        built.extend(routes(code));
        built.extend(channel_route(&parsed.source.path.to_string_lossy(), code));
    }
    // The bridge takes any path below a channel; the channels themselves decide.
    built.retain(|route| !route.starts_with("any /{channel}/"));

    assert!(built.len() > 8, "only {built:?} were found: is the scanner right?");
    let described = Description::read().unwrap().operations();
    assert_eq!(built, described, "write the difference into services/gateway/openapi.json");
}

/// The path at which a channel's platform calls the bridge, if it does.
fn channel_route(path: &str, code: &str) -> Option<String> {
    let (_, file) = path.split_once("channel-bridge/src/channels/")?;
    let name = file.strip_suffix(".rs").filter(|name| !name.contains('/'))?;
    code.contains("fn receive(").then(|| format!("post /{name}/{{account}}"))
}

#[test]
fn a_route_is_seen_in_all_its_forms() {
    let code = ".route(\"/a/{*b}\", get(c)).route(\n    \"/d\",\n    post(e),\n).route(\"/f\", get(g).delete(j)).route(\"/k\", any_service(g)).route(h, get(i))";

    let expected = ["get /a/{b}", "post /d", "get /f", "delete /f", "post /k"].map(str::to_owned);
    assert_eq!(routes(code), BTreeSet::from(expected));
}
