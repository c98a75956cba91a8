//! The web console from the command line.

use serde_json::{Value, json};

use crate::installation::Installation;

/// Signs in with a link; returns the status, and the names of the cookies.
async fn sign_in(url: &str) -> anyhow::Result<(u16, Value)> {
    let (page, token) = url.split_once("#link=").unwrap_or_else(|| panic!("{url}"));
    let client = reqwest::Client::builder().no_proxy().build()?;
    let shown = client.get(page).send().await?;
    assert_eq!(shown.status(), 200, "{page}");
    assert!(shown.text().await?.contains("<!doctype html>"), "{page}");
    let answer = client.post(format!("{page}sign-in")).json(&json!({ "link": token }));
    let answer = answer.send().await?;
    Ok((answer.status().as_u16(), answer.json().await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn up_and_console_print_links_that_sign_in_once() -> anyhow::Result<()> {
    holdfast_kit::tls::install_crypto();
    let installation = Installation::new().await?;
    let up = installation.run(&["up", "--detach", "--port-base", "0"]).ok();

    let line = up.out.lines().find_map(|line| line.trim().strip_prefix("console   "));
    let printed = line.unwrap_or_else(|| panic!("{}", up.out)).to_owned();
    let made = installation.json(&["console", "--scope", "read", "--name", "Berta"]);
    let made = made["url"].as_str().unwrap();

    assert_eq!(sign_in(&printed).await?.0, 200);
    let (again, refusal) = sign_in(&printed).await?;
    assert_eq!(again, 401, "{refusal}");
    assert_eq!(sign_in(made).await?.0, 200);
    let audit = installation.json(&["audit", "list", "--action", "console."]);
    let actions: Vec<&str> =
        audit.as_array().unwrap().iter().map(|event| event["action"].as_str().unwrap()).collect();
    let expected = ["console.link", "console.link", "console.sign_in", "console.sign_in"];
    let mut sorted = actions.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "{audit}");
    let more = installation.run(&["console", "--scope", "root"]);
    assert_eq!(more.code, Some(2), "{more:?}");
    Ok(())
}
