//! Completions and man pages.

use std::fs;

use crate::installation::Installation;

#[tokio::test(flavor = "multi_thread")]
async fn shells_complete_and_man_pages_are_written() -> anyhow::Result<()> {
    let installation = Installation::new().await?;
    fs::create_dir_all(&installation.root)?;

    let bash = installation.run(&["completions", "bash"]).ok().out;
    let script = installation.root.join("holdfast.bash");
    fs::write(&script, bash)?;
    // What bash does when a person presses Tab after `holdfast routing rules mo`.
    let tab = format!(
        "source '{}'; COMP_WORDS=(holdfast routing rules mo); COMP_CWORD=3; \
         _holdfast holdfast mo rules; echo \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    let completed = std::process::Command::new("bash").args(["-c", &tab]).output()?;
    assert_eq!(String::from_utf8(completed.stdout)?.trim(), "move");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let script = installation.run(&["completions", shell]).ok().out;
        assert!(script.contains("routing"), "{shell}");
    }

    let dir = installation.root.join("man");
    let written = installation.run(&["man", &dir.display().to_string()]).ok().out;
    assert!(written.contains("pages are in"), "{written}");
    let page = fs::read_to_string(dir.join("holdfast-routing-rules-add.1"))?;
    assert!(page.contains("\\-\\-pattern"), "{page}");
    let version = installation.run(&["version"]).ok().out;
    assert_eq!(version, format!("holdfast {}\n", env!("CARGO_PKG_VERSION")));
    Ok(())
}
